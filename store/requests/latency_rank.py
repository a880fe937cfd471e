"""Count how many comparable requests were faster, and how many slower, than a request."""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import ColumnElement, Engine, and_, case, func, or_, select

from store.connections import reading
from store.queries import conditions_of, requests_in
from store.schema import REQUESTS
from telemetry.latency_rank import LatencyRank
from telemetry.requests import Outcome
from telemetry.window import Window

LATENCIES: Final = ("ttft_s", "e2e_s")


def latency_ranks(
    engine: Engine,
    window: Window,
    equals: Mapping[str, str | None],
    values_s: Mapping[str, float],
) -> dict[str, LatencyRank]:
    """For each latency of a request, its rank among the requests of a window.

    TTFT is compared only with streamed answers, because other answers send their first byte at the
    end. E2E is compared only with complete answers.

    Args:
        window: range of `received_unix_ns`.
        equals: labels of the requests to compare with.
        values_s: latencies in seconds, by name.

    Raises:
        ValueError: a name is not in `LATENCIES`.
    """
    columns: list[ColumnElement[int]] = []
    for name, value_s in values_s.items():
        if name not in LATENCIES:
            raise ValueError(f"cannot rank {name!r}; allowed: {', '.join(LATENCIES)}")
        known, column = _has_latency(name), REQUESTS.c[name]
        for which in (known, and_(known, column < value_s), and_(known, column > value_s)):
            columns.append(func.sum(case((which, 1), else_=0)))
    if not columns:
        return {}
    statement = select(*columns).where(*requests_in(window, equals), *conditions_of(equals))
    with reading(engine) as connection:
        found = [int(each or 0) for each in connection.execute(statement).one()]
    return {
        name: LatencyRank(*found[3 * place : 3 * place + 3]) for place, name in enumerate(values_s)
    }


def _has_latency(name: str) -> ColumnElement[bool]:
    known = REQUESTS.c[name].is_not(None)
    if name == "ttft_s":
        return and_(known, or_(REQUESTS.c.streamed.is_(None), REQUESTS.c.streamed))
    answered = [outcome.value for outcome in Outcome if outcome.answered]
    return and_(known, REQUESTS.c.outcome.in_(answered))
