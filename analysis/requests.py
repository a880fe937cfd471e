"""List requests, count them, and report why a window has none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from sqlalchemy import Engine

from store import queries
from store.access.restricted import with_masked_rows
from store.replicas.scraped_replicas import scraped_replicas
from store.requests.network_time import networks
from telemetry.window import Window

COLUMNS: Final = queries.REQUEST_COLUMNS
"""All columns of a request."""

_ALL: Final[Mapping[str, str | None]] = MappingProxyType({})
_EVER: Final = Window(0, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class RequestsQuestion:
    """Which requests to list.

    Attributes:
        order_by: one of `COLUMNS`. A - before it means descending.
        limit: the maximum number of requests, or None for all.
        network: whether to compute `network_s`.
    """

    window: Window
    equals: Mapping[str, str | None]
    order_by: str
    limit: int | None = None
    network: bool = False


@dataclass(frozen=True, slots=True)
class RequestsAnswer:
    """The listed requests, with `COLUMNS`.

    `network_s` has the seconds that each request spent in the network, or None. It is empty if it
    was not asked for.
    """

    rows: pa.Table
    network_s: Sequence[float | None] = ()


def answer_requests(engine: Engine, question: RequestsQuestion) -> RequestsAnswer:
    """List the requests of a window.

    Raises:
        ValueError: the order is not one of `COLUMNS`, or a label is unknown.
    """
    found = queries.request_table(
        engine,
        question.window,
        equals=question.equals,
        columns=COLUMNS,
        order_by=question.order_by,
        limit=question.limit,
    )
    if not question.network or not found.num_rows:
        return RequestsAnswer(found)
    return RequestsAnswer(found, networks(engine, question.window, found))


def count_requests(
    engine: Engine,
    window: Window,
    equals: Mapping[str, str | None] = _ALL,
    *,
    with_hidden: bool = False,
) -> int:
    """The number of requests of a window. `with_hidden` includes those that the reader may not
    see."""
    read = with_masked_rows(engine) if with_hidden else engine
    return queries.request_count(read, window, equals=equals)


@dataclass(frozen=True, slots=True)
class KnownRequests:
    """Which requests the store has.

    Attributes:
        oldest_unix_ns, newest_unix_ns: when the oldest and the newest request were received, or
            None without requests.
    """

    oldest_unix_ns: int | None
    newest_unix_ns: int | None


def known_requests(engine: Engine) -> KnownRequests:
    """The time range of the stored requests."""
    return KnownRequests(
        queries.oldest_request_unix_ns(engine),
        queries.newest_request_unix_ns(engine),
    )


def scraped_servers(engine: Engine, window: Window) -> int:
    """The number of servers that are known from `/metrics`, which has no single requests."""
    return scraped_replicas(engine, window)


def newest_match(engine: Engine, equals: Mapping[str, str]) -> int | None:
    """When the newest request that matches the filters was received. All stored requests are
    searched."""
    found = queries.request_table(
        engine,
        _EVER,
        equals=equals,
        columns=["received_unix_ns"],
        order_by="-received_unix_ns",
        limit=1,
    )
    rows: list[int] = found.column(0).to_pylist()
    return rows[0] if rows else None
