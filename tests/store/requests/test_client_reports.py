from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from store.requests.client_reports import Reports, RequestIds
from store.requests.operations import MAX_IN_SQL
from telemetry.requests import Basis, RequestTimeline, Source
from telemetry.window import Window

START_NS = 1_763_634_000 * 10**9
WINDOW = Window(START_NS, START_NS + 600 * 10**9)


@pytest.mark.parametrize("others", [0, MAX_IN_SQL])
def test_only_the_reports_of_the_wanted_requests_are_read(
    engine: Engine,
    write: Callable[..., None],
    request_row: Callable[..., RequestTimeline],
    others: int,
) -> None:
    """The database selects few ids, this process selects many."""
    rows = [
        request_row(
            number,
            trace_id=f"{number:032x}",
            request_id=name,
            received_unix_ns=START_NS + number,
            source=Source.CLIENT,
            basis=Basis.CLIENT,
            e2e_s=1.0 + number,
        )
        for number, name in enumerate(("chatcmpl-a", "cmpl-b", None, "chatcmpl-c", None), 1)
    ]
    write(*rows)
    asked = [
        ("f" * 32, "chatcmpl-a"),
        ("f" * 32, "cmpl-b-0"),
        (f"{3:032x}", None),
        *((f"{1000 + number:032x}", f"chatcmpl-other-{number}") for number in range(others)),
    ]
    found = Reports.read(engine, WINDOW, RequestIds.of(asked))
    assert [report.e2e_s for ids in asked[:3] if (report := found.of(*ids))] == [2.0, 3.0, 4.0]
    assert found.of(f"{4:032x}", "chatcmpl-c") is None
    assert found.of(f"{5:032x}", None) is None
    every = Reports.read(engine, WINDOW)
    assert every.of(f"{4:032x}", "chatcmpl-c") is not None
