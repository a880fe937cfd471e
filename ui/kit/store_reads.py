"""What a page reads from the store, and how what goes wrong there is told.

Only this module of the explorer talks to the store, `rolled` for it, and the three that read
for one page: `answering`, `story`, `fleet_reading`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from store.errors import DatabaseMissing, StoreError
from store.queries import (
    Window,
    label_values,
    request_table,
    simulated,
)
from store.requests.lookup import find_requests
from store.rollups.queries import rolled_label_values, rollups
from ui.kit import phases
from ui.kit.request_key import RequestKey

COLUMNS: Final = tuple(
    dict.fromkeys(
        (
            *("trace_id", "span_id", "request_id", "received_unix_ns", "outcome"),
            *phases.COLUMNS,
            *("ttft_s", "tpot_s", "itl_max_s", "streamed"),
            *("prompt_tokens", "output_tokens", "cached_tokens", "tenant", "replica"),
            "source",
        )
    )
)
"""Of every request; the rest is read only of the one that the reader opens."""

LONG_NS: Final = 3_600 * 10**9
"""Of longer ranges the filters' values come from rollups, rather than of each request."""

EVER: Final = Window(0, 2**63 - 1)


class Unreadable(Exception):  # noqa: N818 -- it says what is the case
    """The store cannot be read just now; the message is a sentence for the reader."""


@contextmanager
def store_errors() -> Iterator[None]:
    """What goes wrong in the store, as `Unreadable`; no database at all stays what it is."""
    try:
        yield
    except DatabaseMissing:
        raise
    except StoreError as error:
        raise Unreadable(str(error)) from error
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or type(error).__name__
        raise Unreadable(f"The database does not answer: {reason}.") from error


def without_ttft_of_whole_answers(requests: pa.Table) -> pa.Table:
    """Leave out the TTFT of answers that were not streamed.

    The first byte of such an answer is its last: among the others' TTFT a few of them are the
    whole tail, and it is E2E that tells of them.
    """
    whole = pc.equal(requests["streamed"], False).fill_null(False)
    ttft_s = pc.if_else(whole, pa.scalar(None, pa.float64()), requests["ttft_s"])
    return requests.set_column(requests.schema.get_field_index("ttft_s"), "ttft_s", ttft_s)


def is_simulated(engine: Engine, window: Window) -> bool:
    """Whether anything of a window comes from a simulator; of a long one, rollups tell."""
    if window.to_unix_ns - window.from_unix_ns > LONG_NS:
        rolled = rollups(engine, window)
        if rolled is not None:
            rolled.sums([])
            return rolled.simulated
    return simulated(engine, window)


def values(engine: Engine, window: Window, label: str) -> list[str]:
    """The values of a label in a window."""
    with store_errors():
        if window.to_unix_ns - window.from_unix_ns > LONG_NS:
            rolled = rolled_label_values(engine, window, label)
            if rolled is not None:
                return rolled
        return label_values(engine, window, label)


def one(engine: Engine, key: RequestKey) -> dict[str, Any] | None:
    """The whole row of one request; None where the store does not have it."""
    at = key.received_unix_ns
    with store_errors():
        if at is None:
            instants = find_requests(engine, f"{key.trace_id}/{key.span_id}")["received_unix_ns"]
            if not instants:
                return None
            at = instants[0].as_py()
        equals = {"trace_id": key.trace_id, "span_id": key.span_id}
        found = request_table(engine, Window(at, at + 1), equals=equals, limit=1)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows[0] if rows else None


def received_at(engine: Engine, at_unix_ns: Sequence[int], equals: Mapping[str, str]) -> pa.Table:
    """The requests that were received at some instants and pass the filters, in that order."""
    with store_errors():
        found = [
            request_table(engine, Window(at, at + 1), equals=equals, columns=COLUMNS)
            for at in dict.fromkeys(at_unix_ns)
        ]
        nothing = request_table(engine, Window(0, 0), columns=COLUMNS)
    return without_ttft_of_whole_answers(pa.concat_tables([nothing, *found]))


def newest_match(engine: Engine, equals: Mapping[str, str]) -> int | None:
    """When the latest request that passes the filters was received, whenever that was."""
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
