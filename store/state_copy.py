"""Copy the state from the database of the telemetry to a separate database, once.

The copy is one transaction. The original tables are kept, but not read again.
"""

from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, Engine, Table, inspect, select

from store import dialects
from store.alerting.notifications import NOTIFICATIONS
from store.connections import reading, store_errors
from store.leases import LEASES, now_unix_ms
from store.schema import STATE_METADATA
from store.state_link import (
    IDENTITY,
    check_linked,
    identity,
    new_link,
    read_link,
    store_identity,
    store_link,
)
from telemetry.store_errors import StoreError

_AT_ONCE: Final = 10_000


def link_state(
    engine: Engine, state: Engine, name: str, state_name: str, report: Callable[[str], None]
) -> None:
    """Link two databases, and copy the state if this is not done yet.

    Raises:
        StoreError: a database is linked to a third database, or another collector still uses the
            state in the database of the telemetry.
    """
    with store_errors(state, "written"), dialects.of(state).exclusively(state) as connection:
        link = read_link(engine)
        found = identity(connection)
        if check_linked(link, found, name, state_name):
            return
        if found is None:
            link = new_link(state_name)
            _refuse_users(engine, name)
            # Store the link first: after an interruption, no other database can become the state
            # database.
            store_link(engine, link)
            _copy(engine, connection, name, state_name, report)
            store_identity(connection, link.state_id)
    assert link is not None  # `check_linked` refuses an id without a link
    store_link(engine, link._replace(complete=True))


def _refuse_users(engine: Engine, name: str) -> None:
    if not dialects.of(engine).LEASES or not inspect(engine).has_table(LEASES.name):
        return
    current = select(LEASES.c.holder).where(LEASES.c.expires_unix_ms > now_unix_ms())
    with reading(engine) as connection:
        holder = connection.scalar(current)
    if holder is not None:
        raise StoreError(
            f"the collector {holder} still uses the state in {name}: stop all collectors, wait"
            " 15 s, and start them with --state-url"
        )


def _copy(
    engine: Engine, to: Connection, name: str, state_name: str, report: Callable[[str], None]
) -> None:
    tables = [
        table
        for table in STATE_METADATA.sorted_tables
        if table not in (LEASES, IDENTITY) and inspect(engine).has_table(table.name)
    ]
    if not tables:
        return
    copied = 0
    report(f"Copying the state from {name} to {state_name}.")
    with reading(engine) as connection:
        for table in tables:
            copied += _copy_table(connection, to, table)
    report(f"Copied {copied:,} rows. The tables of the state in {name} are no longer used.")


def _copy_table(connection: Connection, to: Connection, table: Table) -> int:
    upsert = dialects.of(to.engine).upsert
    copied = 0
    rows = connection.execution_options(yield_per=_AT_ONCE).execute(select(table)).mappings()
    for some in rows.partitions():
        values = [dict(row) for row in some]
        if table is NOTIFICATIONS:
            # Claims are not copied: no sender runs now, and the lease tokens of the new database
            # begin at 1.
            values = [{**row, "claimed_term": None} for row in values]
        upsert(to, table, values)
        copied += len(values)
    return copied
