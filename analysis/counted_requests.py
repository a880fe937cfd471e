"""Read the requests of users for counts and percentiles.

If prefill and decode are on different servers, each server has its own row for a request. This
module joins these rows to one request with the user's TTFT and E2E, as for objectives
(`store.joined.user_requests`). If the caller asks about servers, the rows are counted separately.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from store.joined.prefill_engines import known_roles
from store.joined.user_requests import COLUMNS, join_user_requests
from store.queries import request_table
from telemetry.joined_request import EngineRole
from telemetry.window import Window

SERVER_LABELS: Final = ("replica", "engine", "config")
"""A question that selects or groups by one of these labels is about servers."""

_OWN_OF_HOP: Final = ("outcome", "streamed")
"""Labels that can differ between the hops of a request. They are compared after the join, because
a failed attempt must not count if the request was answered."""
_ALL: Final[Mapping[str, str | None]] = MappingProxyType({})


class CountedAs(StrEnum):
    """What one counted row is."""

    REQUESTS = "requests"
    """A request. No server does only prefills."""
    JOINED = "joined_requests"
    """A user's request. The rows of its servers are joined."""
    ENGINE_ROWS = "engine_rows"
    """The row of one server. A joined request has one such row for each of its servers."""

    @property
    def in_rollups(self) -> "CountedAs":
        """What rollups count instead. They contain the row of each server."""
        return CountedAs.ENGINE_ROWS if self is CountedAs.JOINED else self


_NOTES: Final = {
    CountedAs.JOINED: "Prefill and decode are on different servers: each user’s request counts"
    " once, with its TTFT and E2E from the first server’s receipt. Other times are the decode"
    " server’s.",
    CountedAs.ENGINE_ROWS: "Engine rows: prefill and decode are on different servers, and a request"
    " counts once for each server, with this server’s times.",
}


def counting_notes(kind: CountedAs, without_prefill: int = 0) -> list[str]:
    """Sentences that state what is counted. There are none if no server does only prefills."""
    notes = [_NOTES[kind]] if kind in _NOTES else []
    if without_prefill:
        notes.append(
            f"{without_prefill:,} requests have no row of a prefill server, so their TTFT and E2E"
            " lack the prefill."
        )
    return notes


@dataclass(frozen=True, slots=True)
class CountedRequests:
    """Requests, and what one row is."""

    table: pa.Table
    counted_as: CountedAs
    without_prefill: int = 0
    """Number of rows with a loaded KV cache whose prefill row was not found. Their TTFT and E2E are
    the decode server's."""


def counted_as(engine: Engine, window: Window, labels: Collection[str] = ()) -> CountedAs:
    """Return what one row is in the answer to a question that uses these labels."""
    roles = known_roles(engine, window.to_unix_ns)
    if EngineRole.PREFILL not in roles.values():
        return CountedAs.REQUESTS
    if any(label in SERVER_LABELS for label in labels):
        return CountedAs.ENGINE_ROWS
    return CountedAs.JOINED


def read_counted_requests(
    engine: Engine,
    window: Window,
    *,
    equals: Mapping[str, str | None] = _ALL,
    columns: Sequence[str],
    by: Collection[str] = (),
) -> CountedRequests:
    """Read the requests of a window, in the order of receipt.

    A joined request belongs to the window in which its decode server received it. Its
    `received_unix_ns`, `ttft_s`, `first_content_s` and `e2e_s` are the user's. Its other values are
    the decode server's.

    Args:
        equals: required labels, as in `store.queries.request_table`.
        by: labels by which the caller groups the requests.
    """
    kind = counted_as(engine, window, [*equals, *by])
    if kind is not CountedAs.JOINED:
        return CountedRequests(request_table(engine, window, equals=equals, columns=columns), kind)
    wanted = list(dict.fromkeys([*columns, *COLUMNS]))
    same = {name: value for name, value in equals.items() if name not in _OWN_OF_HOP}
    rows = request_table(engine, window, equals=same, columns=wanted)
    found = join_user_requests(engine, rows, known_roles(engine, window.to_unix_ns))
    table = found.table
    for name in _OWN_OF_HOP:
        if name in equals:
            table = table.filter(_is(table[name], equals[name]))
    return CountedRequests(table.select(list(columns)), kind, found.without_prefill)


def _is(values: pa.ChunkedArray, wanted: str | None) -> pa.ChunkedArray:
    if wanted is None:
        return pc.is_null(values)
    if pa.types.is_boolean(values.type):
        return pc.fill_null(pc.equal(values, wanted == "true"), False)
    return pc.fill_null(pc.equal(values, wanted), False)
