"""Reads from the store that several pages use. Errors of the store become `Unreadable`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine, true
from sqlalchemy.exc import SQLAlchemyError

from analysis.compare.question import VERSION
from analysis.compare.versions import versions_in
from store.queries import label_values, request_table, simulated
from store.requests.lookup import find_requests
from store.rollups.queries import rolled_label_values, rollups
from store.rollups.tables import LABELS as ROLLED_LABELS
from telemetry.store_errors import DatabaseMissing, NotAllowed, StoreError
from telemetry.window import Window
from ui.kit import phases
from ui.kit.request_key import RequestKey

COLUMNS: Final = tuple(
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
"""The columns of requests that most pages read. The Request page reads all columns."""

LONG_NS: Final = 3_600 * 10**9
"""For ranges longer than this, the values of labels are read from rollups."""

EVER: Final = Window(0, 2**63 - 1)


class Unreadable(Exception):  # noqa: N818 -- it names the state of the store
    """The store cannot be read. The message is for the reader."""


@contextmanager
def store_errors() -> Iterator[None]:
    """Convert the store's errors to `Unreadable`, except for DatabaseMissing and NotAllowed."""
    try:
        yield
    except (DatabaseMissing, NotAllowed):
        raise
    except StoreError as error:
        raise Unreadable(str(error)) from error
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or type(error).__name__
        raise Unreadable(f"The database does not respond: {reason}.") from error


def without_ttft_of_whole_answers(requests: pa.Table) -> pa.Table:
    """Set the TTFT of non-streamed responses to null, because it equals the end-to-end latency."""
    whole = pc.equal(requests["streamed"], False).fill_null(False)
    ttft_s = pc.if_else(whole, pa.scalar(None, pa.float64()), requests["ttft_s"])
    return requests.set_column(requests.schema.get_field_index("ttft_s"), "ttft_s", ttft_s)


def is_simulated(engine: Engine, window: Window) -> bool:
    """Whether a window has simulated data. For a long window, the answer comes from rollups."""
    if window.to_unix_ns - window.from_unix_ns > LONG_NS:
        rolled = rollups(engine, window)
        if rolled is not None:
            rolled.sums([])
            return rolled.simulated
    return simulated(engine, window)


def values(engine: Engine, window: Window, label: str) -> list[str]:
    """The values of a label in a window."""
    with store_errors():
        if label == VERSION:
            return versions_in(engine, window)
        if label in ROLLED_LABELS and window.to_unix_ns - window.from_unix_ns > LONG_NS:
            rolled = rolled_label_values(engine, window, label)
            if rolled is not None:
                return rolled
        return label_values(engine, window, label)


def one(engine: Engine, key: RequestKey) -> dict[str, Any] | None:
    """The whole row of one request, or None if it is not stored. It may be a row that other pages
    leave out, because a better source reported the same request."""
    at = key.received_unix_ns
    with store_errors():
        if at is None:
            instants = find_requests(engine, f"{key.trace_id}/{key.span_id}")["received_unix_ns"]
            if not instants:
                return None
            at = instants[0].as_py()
        equals = {"trace_id": key.trace_id, "span_id": key.span_id}
        found = request_table(engine, Window(at, at + 1), equals=equals, limit=1, which=true())
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows[0] if rows else None


def received_at(engine: Engine, at_unix_ns: Sequence[int], equals: Mapping[str, str]) -> pa.Table:
    """The requests that were received at these instants and match the filters, in the instants'
    order."""
    with store_errors():
        found = [
            request_table(engine, Window(at, at + 1), equals=equals, columns=COLUMNS)
            for at in dict.fromkeys(at_unix_ns)
        ]
        nothing = request_table(engine, Window(0, 0), columns=COLUMNS)
    return without_ttft_of_whole_answers(pa.concat_tables([nothing, *found]))


def newest_match(engine: Engine, equals: Mapping[str, str]) -> int | None:
    """When the newest request that matches the filters was received. All stored requests are
    searched."""
    with store_errors():
        found = request_table(
            engine,
            EVER,
            equals=equals,
            columns=["received_unix_ns"],
            order_by="-received_unix_ns",
            limit=1,
        )
    rows: list[int] = found.column(0).to_pylist()
    return rows[0] if rows else None
