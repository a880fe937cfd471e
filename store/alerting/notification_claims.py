"""Claim a row of the outbox (`notifications`) before its message is sent, and store the result.

A claim contains the token of the sender's lease (`store.leases`). Each new holder of the lease has
a higher token. So if a collector loses its lease while it sends, it cannot overwrite the new
holder's result.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Engine, and_, or_, update

from store import dialects
from store.alerting.notifications import NOTIFICATIONS, plain_values
from store.connections import writing
from store.state import state_of
from telemetry.notifications import Notification


def claim(engine: Engine, row: Notification, term: int) -> bool:
    """Claim a row. Return False if the row has changed, or if a holder with a higher token has
    claimed it.

    Raises:
        LeaseLost: the sender's lease was lost.
    """
    columns = NOTIFICATIONS.c
    unchanged = and_(
        columns.state == str(row.state),
        columns.failures == row.failures,
        columns.next_unix_s.is_not_distinct_from(row.next_unix_s),
        or_(columns.claimed_term.is_(None), columns.claimed_term <= term),
    )
    return _change_if(engine, row, unchanged, {"claimed_term": term}, fenced=True)


def store_result(engine: Engine, row: Notification, term: int) -> bool:
    """Store the result of an attempt to send, if the row is still claimed with this token. The
    result is stored even if the lease was lost after sending. Return whether the result was
    stored."""
    claimed = NOTIFICATIONS.c.claimed_term == term
    return _change_if(
        engine, row, claimed, plain_values(replace(row, claimed_term=term)), fenced=False
    )


def update_message(engine: Engine, row: Notification, message: str, next_unix_s: int) -> bool:
    """Replace the message of a row, and schedule the row. Return False if the row was claimed or
    sent meanwhile.

    Raises:
        LeaseLost: the caller's lease was lost.
    """
    columns = NOTIFICATIONS.c
    unchanged = and_(
        columns.state == str(row.state),
        columns.failures == row.failures,
        columns.next_unix_s.is_not_distinct_from(row.next_unix_s),
        columns.claimed_term.is_not_distinct_from(row.claimed_term),
    )
    values = {"message": message, "next_unix_s": next_unix_s}
    return _change_if(engine, row, unchanged, values, fenced=True)


def _change_if(
    engine: Engine,
    row: Notification,
    condition: ColumnElement[bool],
    values: Mapping[str, Any],
    *,
    fenced: bool,
) -> bool:
    state = state_of(engine)
    dialect = dialects.of(state)
    if dialect.ADDITIVE:  # ClickHouse has no conditional updates
        with writing(state) as connection:
            dialect.upsert(connection, NOTIFICATIONS, [{**plain_values(row), **values}])
        return True
    key = and_(*(column == getattr(row, column.name) for column in NOTIFICATIONS.primary_key))
    with writing(state, fenced=fenced) as connection:
        changed = connection.execute(update(NOTIFICATIONS).where(key, condition).values(**values))
        return bool(changed.rowcount)
