"""The rows of requests that pages read."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from analysis.over_time import phases
from store.queries import request_table
from telemetry.window import Window

PAGE_COLUMNS: Final = tuple(
    dict.fromkeys(
        (
            *("trace_id", "span_id", "request_id", "received_unix_ns", "outcome"),
            *phases.COLUMNS,
            *("ttft_s", "first_content_s", "tpot_s", "itl_max_s", "streamed"),
            *("prompt_tokens", "output_tokens", "cached_tokens", "tenant", "replica"),
            "source",
        )
    )
)
"""The columns that most pages read."""


def page_requests(engine: Engine, window: Window, equals: Mapping[str, str]) -> pa.Table:
    """The requests of a window with `PAGE_COLUMNS`, in order of receipt."""
    return request_table(engine, window, equals=equals, columns=PAGE_COLUMNS)


def received_at(engine: Engine, at_unix_ns: Sequence[int], equals: Mapping[str, str]) -> pa.Table:
    """The requests that were received at these instants and match the filters, in the instants'
    order, with `PAGE_COLUMNS`."""
    found = [page_requests(engine, Window(at, at + 1), equals) for at in dict.fromkeys(at_unix_ns)]
    nothing = page_requests(engine, Window(0, 0), {})
    return without_ttft_of_whole_answers(pa.concat_tables([nothing, *found]))


def without_ttft_of_whole_answers(requests: pa.Table) -> pa.Table:
    """Set the TTFT of non-streamed responses to null, because it equals the end-to-end latency."""
    whole = pc.equal(requests["streamed"], False).fill_null(False)
    ttft_s = pc.if_else(whole, pa.scalar(None, pa.float64()), requests["ttft_s"])
    return requests.set_column(requests.schema.get_field_index("ttft_s"), "ttft_s", ttft_s)
