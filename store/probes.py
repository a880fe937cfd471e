"""Query the results of probes in a time window."""

from collections.abc import Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, Engine, and_, func, literal, or_, select
from sqlalchemy.exc import DBAPIError

from store.columns.request_columns import encoded_schema, has_few_rows
from store.connections import read_columns, reading
from store.errors import NotQuick
from store.queries import fetched
from store.schema import PROBES, arrow_type
from telemetry.probes import LABELS, WAIT_PARTS, Probe, ProbeOutcome
from telemetry.window import Window

MAX_ROWS: Final = 200_000
"""Maximum number of probes to read."""
LONGEST_S: Final = 7 * 86_400
"""Longest allowed duration of a probe. The collector refuses longer probes, so that no sum
overflows."""
_PARTS: Final = 96
_AT: Final = "at_unix_ns"
_ANSWERED: Final = tuple(each.value for each in ProbeOutcome if each.succeeded)
_ALL: Mapping[str, str | None] = MappingProxyType({})


class ProbeSample(NamedTuple):
    """A sample of probes, in order of time."""

    table: pa.Table
    scale: float
    """Number of stored probes that each answered probe in the sample stands for."""
    unanswered_scale: float
    """Number of stored probes that each unanswered probe in the sample stands for. It is 1 if all
    unanswered probes were read."""


def probe_table(
    engine: Engine,
    window: Window,
    columns: Sequence[str],
    equals: Mapping[str, str | None] = _ALL,
) -> pa.Table:
    """The probes that were due in a window, in order of time.

    Args:
        window: range of `at_unix_ns`.
        columns: must include `at_unix_ns`.
        equals: required `LABELS`. None selects rows without the label.

    Returns: a table. Text columns are dictionary-encoded, except ids.
    """
    return _table(engine, [_conditions(window, equals)], columns)


def ended_probes(
    engine: Engine, window: Window, columns: Sequence[str], ended_after_unix_ns: int
) -> pa.Table:
    """The probes that were due in a window and ended after an instant. The database rounds times by
    up to a millisecond."""
    lasted_s = sum((func.coalesce(PROBES.c[name], 0.0) for name in WAIT_PARTS), literal(0.0))
    after = lasted_s * 1e9 > ended_after_unix_ns - 10**6 - PROBES.c[_AT]
    return _table(engine, [[*_conditions(window, _ALL), after]], columns)


def probe_sample(
    engine: Engine,
    window: Window,
    columns: Sequence[str],
    equals: Mapping[str, str | None] = _ALL,
    max_rows: int = MAX_ROWS,
) -> ProbeSample:
    """A sample of at most about `max_rows` probes. The other arguments are as in `probe_table`.

    A window with more probes is divided into 96 parts. From each part, only the answered probes of
    one interval are read. The start of the interval is random, because probes have a fixed
    schedule. If there are at most `max_rows / 2` probes without an answer, all of them are read. If
    there are more, only those of the same intervals are read.
    """
    number = probe_count(engine, window, equals)
    if number <= max_rows:
        return ProbeSample(probe_table(engine, window, columns, equals), 1.0, 1.0)
    answered = PROBES.c["outcome"].in_(_ANSWERED)
    which = _conditions(window, equals)
    some = select(PROBES.c[_AT]).where(*which, ~answered).limit(max_rows // 2 + 1)
    with reading(engine) as connection:
        others = connection.scalar(select(func.count()).select_from(some.subquery())) or 0
    share = max_rows / number
    inside = _part_of_each(window, share)
    if others > max_rows // 2:
        found = _table(engine, [[*which, inside]], columns)
        return ProbeSample(found, 1 / share, 1 / share)
    found = _table(
        engine, [[*_label_conditions(equals), inside, answered], [*which, ~answered]], columns
    )
    return ProbeSample(found, 1 / share, 1.0)


def _part_of_each(window: Window, share: float) -> ColumnElement[bool]:
    random = Random(window.from_unix_ns)
    at, length_ns = PROBES.c[_AT], (window.to_unix_ns - window.from_unix_ns) / _PARTS
    starts = [
        window.from_unix_ns + int((part + random.random() * (1 - share)) * length_ns)
        for part in range(_PARTS)
    ]
    return or_(*(and_(at >= start, at < start + int(share * length_ns)) for start in starts))


def _table(
    engine: Engine, parts: Sequence[Sequence[ColumnElement[bool]]], columns: Sequence[str]
) -> pa.Table:
    """The lists of conditions in `parts` must select disjoint sets of probes."""
    statements = [select(*(PROBES.c[name] for name in columns)).where(*each) for each in parts]
    schema = pa.schema([(name, arrow_type(name, Probe)) for name in columns])
    encoded = encoded_schema(schema)
    try:
        with reading(engine) as connection:
            few = has_few_rows(connection, select(PROBES.c[_AT]).where(*parts[0]))
        if few:
            raise NotQuick("there are few rows")
        found = read_columns(engine, statements, encoded)
    except (NotQuick, DBAPIError):
        tables = [fetched(engine, each, schema) for each in statements]
        found = pa.concat_tables(tables).cast(encoded)
    order = pc.sort_indices(found, [(_AT, "ascending")])
    return found.take(order).unify_dictionaries().combine_chunks()


def probe_count(engine: Engine, window: Window, equals: Mapping[str, str | None] = _ALL) -> int:
    """The number of probes that were due in a window."""
    statement = select(func.count()).select_from(PROBES).where(*_conditions(window, equals))
    with reading(engine) as connection:
        return connection.scalar(statement) or 0


def probe_label_values(engine: Engine, window: Window, label: str) -> list[str]:
    """The values of a label in a window, sorted, without unknown values."""
    column = PROBES.c[label]
    statement = select(column).distinct().where(*_conditions(window, _ALL), column.is_not(None))
    with reading(engine) as connection:
        return sorted(connection.scalars(statement).all())


def newest_probe_unix_ns(engine: Engine, equals: Mapping[str, str | None] = _ALL) -> int | None:
    """When the latest probe was due, or None."""
    return _bound(engine, func.max(PROBES.c[_AT]), equals)


def oldest_probe_unix_ns(engine: Engine) -> int | None:
    """When the earliest stored probe was due, or None."""
    return _bound(engine, func.min(PROBES.c[_AT]), _ALL)


def _bound(
    engine: Engine, bound: ColumnElement[int], equals: Mapping[str, str | None]
) -> int | None:
    with reading(engine) as connection:
        found: Any = connection.scalar(select(bound).where(*_label_conditions(equals)))
        return None if found is None else int(found)


def _conditions(window: Window, equals: Mapping[str, str | None]) -> list[ColumnElement[bool]]:
    inside = and_(PROBES.c[_AT] >= window.from_unix_ns, PROBES.c[_AT] < window.to_unix_ns)
    return [inside, *_label_conditions(equals)]


def _label_conditions(equals: Mapping[str, str | None]) -> list[ColumnElement[bool]]:
    return [
        PROBES.c[label].is_(None) if value is None else PROBES.c[label] == value
        for label, value in equals.items()
        if _check_label(label)
    ]


def _check_label(label: str) -> bool:
    if label not in LABELS:
        raise ValueError(f"unknown label {label!r}; allowed: {', '.join(LABELS)}")
    return True
