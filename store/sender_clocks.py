"""Store how far each sender's clock is ahead, so that all collectors correct its samples equally.

Each collector measures the lead itself. The start of an engine's counters is corrected too, so
collectors with different measurements would divide the counters of one engine into several series,
and a bill would count each of them. Therefore the samples of a sender get the correction that is
stored. It is replaced if a collector measures a lead that differs by more than `CHANGED_NS`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import BigInteger, Column, Connection, Table, Text, select

from store import dialects
from store.clock_corrections import Places, Row
from store.schema import METADATA

SENDERS: Final = Table(
    "sender_clocks",
    METADATA,
    Column("replica", Text, primary_key=True),
    Column("ahead_ns", BigInteger, nullable=False),
    Column("at_unix_ns", BigInteger, nullable=False),
)
"""The correction of each sender whose clock is ahead, and the time of the first row with it."""
CHANGED_NS: Final = 2 * 10**9
"""A larger difference between two corrections shows that the sender's clock has changed. Two
collectors that measure the same lead can correct by values that differ by 2 s, because each keeps a
correction that is within 1 s of its measurements (`TOLERANCE_NS` in
`collector/rows/clock_correction.py`)."""
_AT_ONCE: Final = 500
"""Number of replicas in a statement. Databases limit the number of parameters."""


def equally_corrected(
    connection: Connection, tables: Sequence[tuple[Table, list[Row]]]
) -> list[list[Row]]:
    """Correct the samples of each sender by the stored correction, and store new corrections.

    Args:
        connection: in the transaction that stores the rows.
        tables: tables of rows of senders, each with rows to store.

    Returns: the rows of each table.
    """
    several = [(Places(table, "replica"), rows) for table, rows in tables]
    own = {
        places.ids(row): (places.ids(row), places.ahead_ns(row), places.at(row))
        for places, rows in several
        for row in rows
        if places.ahead_ns(row)
    }
    if not own:
        return [rows for _, rows in tables]
    stored = _stored(connection, own)
    if new := [row for replica, row in own.items() if replica not in stored]:
        dialects.of(connection.engine).inserting(connection.engine, SENDERS)(connection, new)
        stored = _stored(connection, own)  # another collector may have been faster
    changed = [
        dict(zip(SENDERS.columns.keys(), row, strict=True))
        for replica, row in sorted(own.items())
        if abs(row[1] - stored.get(replica, row[1])) > CHANGED_NS
    ]
    if changed:
        dialects.of(connection.engine).put(connection, SENDERS, changed)
        stored |= {row["replica"]: row["ahead_ns"] for row in changed}
    return [[_corrected(places, row, stored) for row in rows] for places, rows in several]


def _corrected(places: Places, row: Row, stored: dict[str, int]) -> Row:
    own_ns = places.ahead_ns(row)
    ahead_ns = stored.get(places.ids(row), own_ns)
    if not own_ns or abs(ahead_ns - own_ns) > CHANGED_NS:
        return row
    return places.corrected(row, ahead_ns)


def _stored(connection: Connection, replicas: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    wanted = sorted(replicas)
    for first in range(0, len(wanted), _AT_ONCE):
        some = SENDERS.c.replica.in_(wanted[first : first + _AT_ONCE])
        rows = connection.execute(select(SENDERS.c.replica, SENDERS.c.ahead_ns).where(some))
        found |= {row.replica: row.ahead_ns for row in rows}
    return found
