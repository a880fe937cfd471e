"""Read the cold starts of engines: the parts of the time until a server was ready."""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Engine, select

from store.connections import reading
from store.schema import COLD_STARTS
from telemetry.cold_starts import ColdStart
from telemetry.starts import MAX_LOADING_S

MAX_STARTS: Final = 1_000
"""Maximum number of starts. The newest are read."""


def cold_starts_between(engine: Engine, from_unix_ns: int, to_unix_ns: int) -> list[ColdStart]:
    """The starts whose server was ready in [from, to), without failed starts. See
    `all_starts_between`."""
    found = all_starts_between(engine, from_unix_ns, to_unix_ns)
    return [each for each in found if each.reached is None]


def all_starts_between(engine: Engine, from_unix_ns: int, to_unix_ns: int) -> list[ColdStart]:
    """The newest `MAX_STARTS` starts of [from, to), including failed starts, in order of time."""
    begun = COLD_STARTS.c.at_unix_ns
    statement = (
        select(*COLD_STARTS.columns)
        .where(begun >= max(from_unix_ns - round(MAX_LOADING_S * 1e9), 0), begun < to_unix_ns)
        .order_by(begun.desc())
        .limit(MAX_STARTS)
    )
    with reading(engine) as connection:
        rows = connection.execute(statement).all()
    found = _longest_of_each(ColdStart(**row._mapping) for row in reversed(rows))
    return [each for each in found if from_unix_ns <= each.ready_unix_ns < to_unix_ns]


def _longest_of_each(found: Iterable[ColdStart]) -> list[ColdStart]:
    """Return the longest report of each start, because several API servers can report the same
    start."""
    longest: dict[tuple[str, str], ColdStart] = {}
    for each in found:
        key = each.trace_id, each.span_id
        known = longest.get(key)
        if known is None or each.length_s > known.length_s:
            longest[key] = each
    return list(longest.values())
