from collections.abc import Callable
from typing import Any

import pyarrow as pa

from store.database import open_database
from telemetry.window import Window
from ui.views.requests.read import read_requests


def test_an_answer_sent_whole_has_no_ttft_on_the_page(
    database: Callable[..., str], one_request: Callable[..., Any]
) -> None:
    """An unstreamed response has its first byte at its end, so it would always be in the tail."""
    rows = [
        one_request(trace_id=f"{n:032x}", streamed=streamed, ttft_s=1.0)
        for n, streamed in enumerate((True, False, None), start=1)
    ]
    engine = open_database(database(rows, []), create=False)
    found = read_requests(engine, Window(0, 2**62), {}).requests
    engine.dispose()
    values = dict(zip(found["streamed"].to_pylist(), found["ttft_s"].to_pylist(), strict=True))
    assert values == {True: 1.0, False: None, None: 1.0}
    assert found.schema.field("ttft_s").type == pa.float64()
