"""Divide tables of telemetry in PostgreSQL into one partition per day.

Dropping a partition takes milliseconds. Deleting a day's rows takes minutes, and leaves dead rows
for vacuum. The table `requests` has the partition `requests_earlier`. Each later day has a
partition such as `requests_20261124`. The writer adds the partition with the day's first row.
"""

import logging
import re
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any, Final, NamedTuple, cast

import psycopg
from sqlalchemy import Connection, Engine, Table

from store.connections import reading, writing
from telemetry.store_errors import StoreUnavailable

DAY_NS: Final = 86_400 * 10**9
EARLIER_DAYS: Final = 30
"""In a new database, rows older than this number of days share one partition."""
_LOCK_MS: Final = 2_000
"""Maximum wait for a table's lock."""
_LOCK: Final = 0x64617973
"""Number of the advisory lock for new days: "days" in ASCII."""
_END: Final = 2**63
"""End of the last partition. Timestamps have 64 bits."""
_UNTIL: Final = re.compile(r"TO \((?:'(-?\d+)'|MAXVALUE)\)")

_log = logging.getLogger(__name__)


class Partition(NamedTuple):
    """A partition with the end of its time range."""

    name: str
    until_unix_ns: int
    rows: int
    """Estimated number of rows."""


def earlier(table: Table) -> str:
    """The partition for rows before the first day with its own partition."""
    return f"{table.name}_earlier"


def partitions(cursor: Any, table: Table) -> dict[str, Partition] | None:
    """The partitions of a table by name, or None if it is not divided."""
    cursor.execute(
        "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid), c.reltuples"
        " FROM pg_class p LEFT JOIN pg_inherits i ON i.inhparent = p.oid"
        " LEFT JOIN pg_class c ON c.oid = i.inhrelid"
        f" WHERE p.oid = to_regclass('{table.name}') AND p.relkind = 'p'"
    )
    rows = cursor.fetchall()
    if not rows:
        return None
    found = [
        Partition(name, int(end[1] or _END), max(0, int(number)))
        for name, bound, number in rows
        if name is not None and (end := _UNTIL.search(bound))
    ]
    return {each.name: each for each in found}


def add_earlier(connection: Connection, table: Table) -> None:
    """Add the partition for old rows to a new table."""
    with _cursor(connection) as cursor:
        if partitions(cursor, table) == {}:
            _attach_partition(
                cursor, table, earlier(table), "MINVALUE", _today(cursor) - EARLIER_DAYS
            )


def add_days(cursor: Any, table: Table, days: Iterable[int]) -> None:
    """If a table is divided, add the missing partitions of these days. Day 0 is 1970-01-01.

    Other connections continue to read and write the table.
    """
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    known = partitions(cursor, table)
    if known is None:
        return
    for day in sorted(days):
        name = f"{table.name}_{date(1970, 1, 1) + timedelta(day):%Y%m%d}"
        if name in known or (day + 1) * DAY_NS <= known[earlier(table)].until_unix_ns:
            continue
        _attach_partition(cursor, table, name, str(day * DAY_NS), day + 1)


def _attach_partition(
    cursor: Any, table: Table, name: str, from_unix_ns: str, until_day: int
) -> None:
    until = until_day * DAY_NS
    cursor.execute(f"CREATE TABLE {name} (LIKE {table.name} INCLUDING ALL)")
    cursor.execute(
        f"ALTER TABLE {table.name} ATTACH PARTITION {name} FOR VALUES"
        f" FROM ({from_unix_ns}) TO ({until if until < _END else 'MAXVALUE'})"
    )


def drop_days(engine: Engine, table: Table, before_unix_ns: int) -> tuple[int, int] | None:
    """Delete the partitions whose rows are all older than a time. See `Dialect.drop_days`.

    Dropping waits for the statements that use the table, and later statements wait for the drop.
    After `_LOCK_MS`, PostgreSQL cancels the drop. The next deletion tries again.
    """
    with reading(engine) as connection, _cursor(connection) as cursor:
        known = partitions(cursor, table)
    if known is None:
        return None
    deleted = 0
    for each in known.values():
        if each.until_unix_ns <= before_unix_ns:
            try:
                with writing(engine) as connection, _cursor(connection) as cursor:
                    deleted += _delete(cursor, table, each)
            except StoreUnavailable as error:
                _log_if_in_use(error, each.name)
    return deleted, known[earlier(table)].until_unix_ns


def _delete(cursor: Any, table: Table, partition: Partition) -> int:
    cursor.execute(f"SET LOCAL lock_timeout = {_LOCK_MS}")
    if partition.name != earlier(table):
        cursor.execute(f"DROP TABLE IF EXISTS {partition.name}")
        return max(1, partition.rows)
    cursor.execute(f"SELECT EXISTS (SELECT FROM {partition.name})")
    if not cursor.fetchone()[0]:
        return 0
    cursor.execute(f"TRUNCATE {partition.name}")
    return max(1, partition.rows)


def _today(cursor: Any) -> int:
    cursor.execute("SELECT floor(extract(epoch FROM now()) / 86400)::bigint")
    return int(cursor.fetchone()[0])


def _cursor(connection: Connection) -> "psycopg.Cursor[Any]":
    driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
    return driver.cursor()


def _log_if_in_use(error: StoreUnavailable, name: str) -> None:
    if not isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
        raise error
    _log.info("%s is in use; the next deletion tries again", name)
