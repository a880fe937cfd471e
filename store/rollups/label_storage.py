"""Write and read the tables with the label sets of rollups and the values stored by name."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, and_, or_, select

from store import dialects
from store.connections import reading
from store.rollups.coded_labels import LabelSet
from store.rollups.label_sets import KnownLabelSet, LabelSets, grouped, no_names, number_of
from store.rollups.names import EXPORTED_TENANT, LabelValue, LabelValues
from store.rollups.tables import HOUR_S, LABEL_SETS, LABELS, NAMES

_AT_ONCE: Final = 1_000
"""Maximum number of values in a condition."""


def store_label_sets(connection: Connection, label_sets: LabelSets) -> None:
    """Store the changed label sets and names."""
    dialect = dialects.of(connection.engine)
    sets = [
        {
            "label_set": number_of(labels),
            **dict(zip(LABELS, labels, strict=True)),
            "newest_unix_s": label_sets.known[labels].newest_unix_s,
            "grouping": label_sets.known[labels].grouping,
        }
        for labels in label_sets.changed
    ]
    names = []
    for label, of in label_sets.names.items():
        gone = [value for value in of.changed if value not in of.known]
        for some in _batches(gone):
            dialect.remove(connection, NAMES, and_(NAMES.c.label == label, NAMES.c.value.in_(some)))
        names += [_row(label, value, of.known[value]) for value in of.changed & of.known.keys()]
    for table, rows in ((LABEL_SETS, sets), (NAMES, names)):
        if rows:
            dialect.upsert(connection, table, rows)


def _row(label: str, value: str, name: LabelValue) -> dict[str, object]:
    return {
        "label": label,
        "value": value,
        "owner": name.owner,
        "hours": name.hours,
        "newest_hour": name.newest_hour,
        "named_from_unix_s": name.named_from_unix_s,
    }


def label_sets_since(
    engine: Engine, from_unix_s: int, until_unix_s: int | None = None
) -> dict[LabelSet, KnownLabelSet]:
    """The label sets that occurred since a time. Label sets that occurred at or after
    `until_unix_s` are left out."""
    statement = select(LABEL_SETS).where(LABEL_SETS.c.newest_unix_s >= from_unix_s)
    if until_unix_s is not None:
        statement = statement.where(LABEL_SETS.c.newest_unix_s < until_unix_s)
    with reading(engine) as connection:
        rows = connection.execute(statement).all()
    return {_labels(row): KnownLabelSet(row.newest_unix_s, row.grouping) for row in rows}


def meaning(
    engine: Engine, grouping: int, from_unix_s: int, numbers: Collection[int]
) -> dict[int, LabelSet]:
    """Map each number (`label_sets.number_of`) to its label set in a grouping, at least for the
    wanted numbers."""
    columns = LABEL_SETS.c
    # The stored time of a label set's newest bucket may be up to an hour too early.
    recent = and_(
        columns.newest_unix_s >= from_unix_s - 2 * HOUR_S,
        columns.grouping.in_({0: (0,), 1: (0, 1)}.get(grouping, (1, grouping))),
    )
    with reading(engine) as connection:
        rows = list(connection.execute(select(LABEL_SETS).where(recent)))
        found = _of_grouping(rows, grouping)
        for some in _batches(set(numbers) - found.keys()):
            more = list(connection.execute(select(LABEL_SETS).where(columns.label_set.in_(some))))
            found.update(_of_grouping(more, grouping))
    return found


def _of_grouping(rows: Sequence[Row[Any]], grouping: int) -> dict[int, LabelSet]:
    found = {row.label_set: _labels(row) for row in rows}
    if grouping == 1:
        # Older versions stored only label sets with all labels.
        found.update((number_of(each), each) for each in set(grouped(found.values(), grouping)))
    return found


def known_values(engine: Engine, from_unix_s: int, label: str) -> set[str]:
    """The values of a label whose last stored occurrence is at or after a time.

    Occurrences are stored once per hour. To find all values since a time, pass a time that is an
    hour earlier.
    """
    column = LABEL_SETS.c[label]
    statement = (
        select(column)
        .where(LABEL_SETS.c.newest_unix_s >= from_unix_s, column.is_not(None))
        .distinct()
    )
    with reading(engine) as connection:
        return set(connection.scalars(statement))


def load_names(engine: Engine) -> dict[str, LabelValues]:
    """The values of each label that are stored by name, and the candidates for names."""
    names = no_names()
    with reading(engine) as connection:
        for row in connection.execute(select(NAMES)):
            if row.label in names:
                names[row.label].known[row.value] = LabelValue(
                    row.hours, row.newest_hour, row.owner, row.named_from_unix_s
                )
    return names


def exported_tenants(engine: Engine) -> list[str]:
    """The tenants that every collector reports by name on `/metrics`."""
    return sorted(named_from(engine, EXPORTED_TENANT))


def named_from(engine: Engine, label: str) -> dict[str, int]:
    """The time in unix seconds since which each named value of a label is stored under its name."""
    statement = select(NAMES.c.value, NAMES.c.named_from_unix_s).where(
        NAMES.c.label == label, NAMES.c.named_from_unix_s.is_not(None)
    )
    with reading(engine) as connection:
        return {row.value: row.named_from_unix_s for row in connection.execute(statement)}


def lack_names(engine: Engine, label: str, values: Iterable[str], from_unix_s: int) -> bool:
    """Whether one of these values may have been stored as `_other` since a time."""
    late = or_(NAMES.c.named_from_unix_s.is_(None), NAMES.c.named_from_unix_s > from_unix_s)
    with reading(engine) as connection:
        for some in _batches(set(values)):
            which = and_(NAMES.c.label == label, NAMES.c.value.in_(some), late)
            if connection.execute(select(NAMES.c.value).where(which).limit(1)).first() is not None:
                return True
    return False


def _labels(row: Row[Any]) -> LabelSet:
    return tuple(row[1 : 1 + len(LABELS)])


def _batches(values: Collection[Any]) -> Iterator[list[Any]]:
    rest = iter(values)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
