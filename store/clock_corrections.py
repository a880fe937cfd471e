"""Store the corrections of rows' timestamps, so that all collectors correct a row equally.

If a sender's clock is ahead, the collector subtracts the measured difference from the timestamps of
the sender's rows. Timestamps are part of the rows' keys. If a row is sent again and corrected
differently, it would be stored twice. Therefore, the first correction of each row is stored with
the row, and is used again.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Connection, Table, Text, select

from store import dialects
from store.schema import KEEP_FIRST, METADATA

CORRECTIONS: Final = Table(
    "clock_corrections",
    METADATA,
    Column("sent_unix_ns", BigInteger, primary_key=True, autoincrement=False),
    Column("trace_id", Text, primary_key=True),
    Column("span_id", Text, primary_key=True),
    Column("ahead_ns", BigInteger, nullable=False),
    info={KEEP_FIRST: True},
)
"""The corrections. The key is the sent timestamp and the row's ids."""
MAX_NS: Final = 2**53
"""Maximum stored correction, about 104 days. `clock_ahead_s` cannot represent larger corrections
exactly."""
_ANY: Final = select(CORRECTIONS.c.ahead_ns).limit(1)
_AT_ONCE: Final = 500
_INSTANTS: Final = ("received_unix_ns", "at_unix_ns", "started_unix_ns")
"""The timestamp columns that a table can have. The first of them is part of the table's key."""

Row = tuple[Any, ...]
Sent = tuple[int, str, str]
"""The timestamp that the sender sent, the trace id and the span id."""


def apply_trace_clock_corrections(
    connection: Connection, tables: Sequence[tuple[Table, list[Row]]]
) -> list[list[Row]]:
    """Store the corrections of new rows, and apply the stored corrections to repeated rows.

    Args:
        tables: tables with their rows to store. A table's key is a timestamp and a span's ids.
    """
    if not any(rows for _, rows in tables):
        return [rows for _, rows in tables]
    several = [(ColumnPositions.of(table, "trace_id", "span_id"), rows) for table, rows in tables]
    own: dict[Sent, int] = {
        places.sent(row): places.ahead_ns(row)
        for places, rows in several
        for row in rows
        if places.ahead_ns(row) and abs(places.sent(row)[0]) < 2**63
    }
    if own:
        uncorrected = {
            key for table, _ in tables for key in _stored(connection, list(table.primary_key), own)
        }
        new = [(*key, 0 if key in uncorrected else ahead_ns) for key, ahead_ns in own.items()]
        dialects.of(connection.engine).inserting(connection.engine, CORRECTIONS)(connection, new)
    elif connection.execute(_ANY).first() is None:
        return [rows for _, rows in tables]
    sent = {places.sent(row) for places, rows in several for row in rows}
    known = {row[:3]: row[3] for row in _stored(connection, list(CORRECTIONS.c), sent)}
    return [
        [places.corrected(row, known.get(places.sent(row), places.ahead_ns(row))) for row in rows]
        for places, rows in several
    ]


def nanoseconds(ahead_s: float | None) -> int:
    """Return a correction in nanoseconds, or 0 if there is none or if it is above `MAX_NS`."""
    if ahead_s is None or abs(ahead_s) * 1e9 > MAX_NS:
        return 0
    return round(ahead_s * 1e9)


class ColumnPositions:
    """Positions of the timestamps, ids and correction in a row."""

    def __init__(self, table: Table, *ids: str) -> None:
        names = table.columns.keys()
        self._instants = [names.index(name) for name in _INSTANTS if name in names]
        self._ahead = names.index("clock_ahead_s")
        self.ahead_s = itemgetter(self._ahead)
        self.at = itemgetter(self._instants[0])
        self.ids = itemgetter(*map(names.index, ids))

    @classmethod
    @cache
    def of(cls, table: Table, *ids: str) -> "ColumnPositions":
        """The cached positions in a table's rows."""
        return cls(table, *ids)

    def ahead_ns(self, row: Row) -> int:
        """The correction of a row, or 0 if the row was not corrected."""
        return nanoseconds(row[self._ahead])

    def sent(self, row: Row) -> Any:
        """The timestamp that the sender sent, and the row's ids."""
        return self.at(row) + self.ahead_ns(row), *self.ids(row)

    def corrected(self, row: Row, ahead_ns: int) -> Row:
        """The row with `ahead_ns` as its correction."""
        more_ns = self.ahead_ns(row) - ahead_ns
        if not more_ns:
            return row
        values = list(row)
        for place in self._instants:
            values[place] += more_ns
        values[self._ahead] = ahead_ns / 1e9 or None
        return tuple(values)


def _stored(
    connection: Connection, columns: Sequence[Column[Any]], sent: Iterable[Sent]
) -> Iterator[Row]:
    """Yield the stored values of these columns. The first three columns are the key."""
    wanted = {each for each in sent if abs(each[0]) < 2**63}
    instants = sorted({each[0] for each in wanted})
    for first in range(0, len(instants), _AT_ONCE):
        some = columns[0].in_(instants[first : first + _AT_ONCE])
        for row in connection.execute(select(*columns).where(some)):
            if row[:3] in wanted:
                yield tuple(row)
