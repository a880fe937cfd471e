"""Store by how much each sender's clock is ahead, so that all collectors correct its samples
equally.

With different corrections, a bill would count an engine's counters several times. Therefore, the
database has one record for each sender. All collectors correct the sender's samples by this record.
Each message is handled on its own, because several machines can send samples of one replica, with
different clocks:

- The first correction of a sample becomes the record.
- A collector uses the record if its own measurement is within `CHANGED_NS` of the record. This
  applies even if the measurement is too small to begin a correction.
- A correction that differs by more than `CHANGED_NS` becomes the record.
- A measurement above `MIN_NS` and within `CHANGED_NS` of the record confirms the record.
- The record becomes 0 if a measurement does not confirm it, and the last confirmation by any
  collector is more than `SUPPORTED_NS` before or after the message. It is after the message if a
  clock was set back.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from sqlalchemy import BigInteger, Column, Connection, Table, Text, select

from store import dialects
from store.clock_corrections import ColumnPositions, Row
from store.schema import METADATA

SENDERS: Final = Table(
    "sender_clocks",
    METADATA,
    Column("replica", Text, primary_key=True),
    Column("ahead_ns", BigInteger, nullable=False),
    Column("at_unix_ns", BigInteger, nullable=False),
)
"""The correction of each sender whose clock is or was ahead. The time of the last confirmation is
on the sender's clock."""
CHANGED_NS: Final = 2 * 10**9
"""The corrections by two collectors can differ by up to 2 s, because each correction differs by up
to 1 s from its measurement (`TOLERANCE_NS` in `collector/rows/clock_correction.py`)."""
MIN_NS: Final = 5 * 10**8
"""A correction begins if the clock is ahead by more than twice this time (`TOLERANCE_NS`). It
continues above this time. With a single limit, small changes could switch the correction on and
off."""
SUPPORTED_NS: Final = 30 * 10**9
"""A correction ends if no measurement confirms it for this long. Suppose that one of three
collectors measures too small a value. It ends the correction too early only if it receives all 6
messages of this time, which has a probability of (1/3)⁶ = 0.1 %."""
_RENEWED_NS: Final = 10 * 10**9
"""To save writes, a confirmation is stored only if the stored confirmation is older than this."""
_ANY: Final = select(SENDERS.c.replica).limit(1)
_AT_ONCE: Final = 500


class _Record(NamedTuple):
    ahead_ns: int
    at_unix_ns: int


class _Sent(NamedTuple):
    own_ns: int
    """This collector's correction, or 0 without a correction."""
    at_unix_ns: int


def apply_sender_clock_corrections(
    connection: Connection,
    tables: Sequence[tuple[Table, Sequence[list[Row]]]],
    leads_ns: Sequence[Mapping[str, int]],
) -> list[list[Row]]:
    """Correct the samples of each sender by its record, and keep the record up to date.

    Args:
        tables: tables with the senders' rows to store, one list for each message.
        leads_ns: for each message, the measured nanoseconds by which each replica's clock is ahead.
            Replicas without a measurement are absent.

    Returns: the corrected rows of all messages, for each table.
    """
    unchanged = [list(chain.from_iterable(messages)) for _, messages in tables]
    if not any(unchanged):
        return unchanged
    several = [(ColumnPositions.of(table, "replica"), messages) for table, messages in tables]
    corrected = any(
        any(map(places.ahead_s, rows)) for (places, _), rows in zip(several, unchanged, strict=True)
    )
    if not corrected and connection.execute(_ANY).first() is None:
        return unchanged
    sent = [
        _sent((places, messages[number]) for places, messages in several)
        for number in range(len(leads_ns))
    ]
    stored = _stored(connection, {replica for each in sent for replica in each})
    new: dict[str, _Sent] = {}
    for replica, message in chain.from_iterable(each.items() for each in sent):
        if message.own_ns and replica not in stored:
            new.setdefault(replica, message)
    records = dict(stored)
    if new:
        rows = [(replica, *message) for replica, message in new.items()]
        dialects.of(connection.engine).inserting(connection.engine, SENDERS)(connection, rows)
        stored |= _stored(connection, new)  # another collector may have stored a record first
    together: list[list[Row]] = [[] for _ in tables]
    for number, (messages_sent, leads) in enumerate(zip(sent, leads_ns, strict=True)):
        shared_ns = {}
        for replica, message in messages_sent.items():
            if message.own_ns:
                records.setdefault(replica, stored[replica])
            if replica in records:
                lead_ns = leads.get(replica)
                record = records[replica] = _record(records[replica], message, lead_ns)
                if _follows(record, message, lead_ns):
                    shared_ns[replica] = record.ahead_ns
        for rows, (places, messages) in zip(together, several, strict=True):
            rows += [_corrected(places, row, shared_ns) for row in messages[number]]
    changed = [
        {"replica": replica, **record._asdict()}
        for replica, record in sorted(records.items())
        if record != stored[replica]
    ]
    if changed:
        dialects.of(connection.engine).upsert(connection, SENDERS, changed)
    return together


def _record(before: _Record, sent: _Sent, lead_ns: int | None) -> _Record:
    own_ns, at_unix_ns = sent
    if own_ns and not _near(before, own_ns):
        return _Record(own_ns, at_unix_ns)
    silent_ns = at_unix_ns - before.at_unix_ns
    measured_ns = own_ns or lead_ns
    if measured_ns is not None and measured_ns > MIN_NS and _near(before, measured_ns):
        return _Record(before.ahead_ns, at_unix_ns) if silent_ns > _RENEWED_NS else before
    if before.ahead_ns and lead_ns is not None and abs(silent_ns) > SUPPORTED_NS:
        return _Record(0, at_unix_ns)
    return before


def _follows(record: _Record, sent: _Sent, lead_ns: int | None) -> bool:
    measured_ns = sent.own_ns or lead_ns
    if measured_ns is None:
        return bool(record.ahead_ns) and abs(sent.at_unix_ns - record.at_unix_ns) <= SUPPORTED_NS
    return _near(record, measured_ns)


def _near(record: _Record, ahead_ns: int) -> bool:
    return bool(record.ahead_ns) and abs(record.ahead_ns - ahead_ns) <= CHANGED_NS


def _sent(several: Iterable[tuple[ColumnPositions, list[Row]]]) -> dict[str, _Sent]:
    sent: dict[str, _Sent] = {}
    for places, rows in several:
        for row in rows:
            replica, ahead_ns = places.ids(row), places.ahead_ns(row)
            before = sent.get(replica, _Sent(0, 0))
            at_unix_ns = max(before.at_unix_ns, places.at(row) + ahead_ns)
            sent[replica] = _Sent(ahead_ns or before.own_ns, at_unix_ns)
    return sent


def _corrected(places: ColumnPositions, row: Row, shared_ns: Mapping[str, int]) -> Row:
    ahead_ns = shared_ns.get(places.ids(row))
    own_ns = places.ahead_ns(row)
    if ahead_ns is None or (places.ahead_s(row) and abs(ahead_ns - own_ns) > CHANGED_NS):
        return row
    return places.corrected(row, ahead_ns)


def _stored(connection: Connection, replicas: Iterable[str]) -> dict[str, _Record]:
    found: dict[str, _Record] = {}
    wanted = sorted(replicas)
    for first in range(0, len(wanted), _AT_ONCE):
        some = SENDERS.c.replica.in_(wanted[first : first + _AT_ONCE])
        for replica, *record in connection.execute(select(*SENDERS.c).where(some)):
            found[replica] = _Record(*record)
    return found
