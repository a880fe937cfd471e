"""Store the outbox: notifications about incidents, with their channel and delivery state.

There is one row for each incident, transition and channel, so no notification is sent twice. A row
contains no address and no credentials. One thread at a time writes a row. The channel's thread
claims it before sending (`store.alerting.notification_claims`). If a second collector takes over
the lease during an attempt, the second collector claims the row again. It then resends the message
with the same deduplication key.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Select,
    Table,
    Text,
    and_,
    func,
    or_,
    select,
)

from store import dialects
from store.alerting.incidents import INCIDENTS
from store.connections import reading, writing
from store.schema import STATE_METADATA
from store.state import state_of
from telemetry.notifications import Delivery, Notification

AHEAD_S: Final = 60
"""If a row's creation time is further in the future than this, the clock was wrong. The row is then
sent immediately."""


HANG: Final = "hang:"
"""A notification about a hung replica stores this prefix and the replica's name as the name of its
objective. Objectives' names contain no colon."""
FIRING: Final = "firing"
RESOLVED: Final = "resolved"


NOTIFICATIONS = Table(
    "slo_notifications",
    STATE_METADATA,
    Column("slo", Text, primary_key=True),
    Column("severity", Text, primary_key=True),
    Column("fired_unix_s", BigInteger, primary_key=True, autoincrement=False),
    Column("transition", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("message", Text, nullable=False),
    Column("created_unix_s", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("failures", BigInteger, nullable=False),
    Column("next_unix_s", BigInteger),
    Column("delivered_unix_s", BigInteger),
    Column("problem", Text),
    Column("claimed_term", BigInteger),
)


def store_notifications(engine: Engine, rows: Sequence[Notification]) -> None:
    """Add rows, or replace rows with the same key."""
    if rows:
        with writing(state_of(engine)) as connection:
            upsert = dialects.of(connection.engine).upsert
            upsert(connection, NOTIFICATIONS, [plain_values(row) for row in rows])


def add_notifications(engine: Engine, rows: Sequence[Notification]) -> None:
    """Add the rows whose key is not stored. Stored rows do not change, because other collectors may
    have claimed them."""
    state = state_of(engine)
    if dialects.of(state).ADDITIVE:  # ClickHouse cannot ignore a stored key
        store_notifications(engine, rows)
    elif rows:
        add = dialects.of(state).inserting(state, NOTIFICATIONS)
        names = NOTIFICATIONS.columns.keys()
        values = [plain_values(row) for row in rows]
        with writing(state) as connection:
            add(connection, [tuple(each[name] for name in names) for each in values])


def abandon_others(engine: Engine, channels: Collection[str], slos: Collection[str]) -> None:
    """Stop notifications for removed channels, and reminders for removed objectives.

    Call this before any sender runs.
    """
    due = _read(engine, select(NOTIFICATIONS).where(NOTIFICATIONS.c.next_unix_s.is_not(None)))
    ended = []
    for row in due:
        waiting = row.state == Delivery.PENDING
        if row.channel not in channels and waiting:
            why = "the channel is no longer configured"
            ended.append(replace(row, state=Delivery.DEAD, next_unix_s=None, problem=why))
        elif row.channel not in channels or (row.slo not in slos and not waiting):
            ended.append(replace(row, next_unix_s=None))
    store_notifications(engine, ended)


def due_notifications(engine: Engine, channel: str, now_s: int) -> list[Notification]:
    """The notifications that a channel must deliver now, in order.

    The message about the end of an incident is sent only after the message about its start was
    delivered. After the end, no reminders are sent.
    """
    rows = NOTIFICATIONS.c
    of_channel = select(NOTIFICATIONS).where(rows.channel == channel)
    # A row that was written while the clock was ahead must not wait until that time.
    ahead = and_(
        rows.state == Delivery.PENDING.value,
        rows.created_unix_s > now_s + AHEAD_S,
        rows.next_unix_s.is_not(None),
    )
    due = _read(engine, of_channel.where(or_(rows.next_unix_s <= now_s, ahead)))
    if not due:
        return []
    fired = {row.fired_unix_s for row in due}
    known = _read(engine, of_channel.where(rows.fired_unix_s.in_(sorted(fired))))
    begun = {row.incident: row for row in known if row.transition == FIRING}
    over = {row.incident for row in known if row.transition == RESOLVED}
    ready, finished = [], []
    for row in due:
        waiting = row.state == Delivery.PENDING
        beginning = begun.get(row.incident)
        if row.transition == FIRING:
            if waiting or row.incident not in over:
                ready.append(row)
            else:
                finished.append(replace(row, next_unix_s=None, problem=None))
        elif beginning is None or beginning.state == Delivery.DEAD:
            why = "not sent, because the start of the incident could not be sent"
            finished.append(replace(row, state=Delivery.DEAD, next_unix_s=None, problem=why))
        elif beginning.state == Delivery.DELIVERED:
            ready.append(row)
    store_notifications(engine, finished)
    return sorted(ready, key=lambda row: (row.created_unix_s, row.fired_unix_s, row.transition))


def oldest_pending_unix_s(engine: Engine, channel: str) -> int | None:
    """Return when a channel's oldest undelivered message was created, or None."""
    rows = NOTIFICATIONS.c
    waiting = select(func.min(rows.created_unix_s)).where(
        rows.channel == channel,
        rows.state == Delivery.PENDING.value,
        rows.next_unix_s.is_not(None),
    )
    with reading(state_of(engine)) as connection:
        created_unix_s: int | None = connection.scalar(waiting)
    return created_unix_s


def read_notifications(engine: Engine, slo: str) -> list[Notification]:
    """All notifications about an objective, the newest first."""
    rows = _read(engine, select(NOTIFICATIONS).where(NOTIFICATIONS.c.slo == slo))
    return sorted(rows, key=lambda row: (row.fired_unix_s, row.created_unix_s), reverse=True)


def read_hangs(engine: Engine) -> list[Notification]:
    """All notifications about hangs, the newest first."""
    rows = _read(
        engine, select(NOTIFICATIONS).where(NOTIFICATIONS.c.slo.startswith(HANG, autoescape=True))
    )
    return sorted(rows, key=lambda row: (row.fired_unix_s, row.created_unix_s), reverse=True)


def delete_old_notifications(engine: Engine, before_unix_s: int) -> int:
    """Delete the notifications about incidents that ended before a time. Return the number of
    incidents.

    All rows of an incident are deleted together, and only when no row is due. A notification
    without a row would be sent again.
    """
    over = select(INCIDENTS.c.slo, INCIDENTS.c.severity, INCIDENTS.c.fired_unix_s).where(
        INCIDENTS.c.ended_unix_s < before_unix_s
    )
    with reading(state_of(engine)) as connection:
        ended = {tuple(row) for row in connection.execute(over)}
    rows = _read(
        engine, select(NOTIFICATIONS).where(NOTIFICATIONS.c.created_unix_s < before_unix_s)
    )
    ended |= {
        row.incident for row in rows if row.slo.startswith(HANG) and row.transition == RESOLVED
    }
    removable = {row.incident for row in rows} & ended - {
        row.incident for row in rows if row.next_unix_s is not None
    }
    for incident in sorted(removable):
        with writing(state_of(engine)) as connection:
            remove_notifications(connection, incident)
    return len(removable)


def remove_notifications(connection: Connection, incident: tuple[str, str, int]) -> None:
    """Delete the notifications about an incident."""
    columns = NOTIFICATIONS.c
    slo, severity, fired_unix_s = incident
    which = and_(
        columns.slo == slo, columns.severity == severity, columns.fired_unix_s == fired_unix_s
    )
    dialects.of(connection.engine).remove(connection, NOTIFICATIONS, which)


def plain_values(row: Notification) -> dict[str, Any]:
    """A row's values by column."""
    return {**asdict(row), "state": str(row.state), "transition": str(row.transition)}


def _read(engine: Engine, statement: Select[Any]) -> list[Notification]:
    with reading(state_of(engine)) as connection:
        return [Notification(**row._mapping) for row in connection.execute(statement)]
