"""Find the older versions of Tailspan that can use a database, and the older versions in use now.

A database stores the oldest revision whose code can still use it. Versions with this or a newer
revision continue to work, so collectors can be upgraded one after another, and an upgrade can be
undone. If older versions cannot use the new schema, the upgrade also raises the stored revision.
Such an upgrade must not run while one of these older versions writes to the database.

Each collector announces its own revision on each of its connections (`Dialect.announce`). In
PostgreSQL, the announcement is a lock. A paused collector keeps the lock, and a dead collector
loses it.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, Text, func, select

from store import dialects

OLDEST: Final = Table(
    "tailspan_oldest_version",
    MetaData(),
    Column("revisions", Text, primary_key=True),
    Column("oldest", String(32), nullable=False),
)
"""One row per schema: the name of its revision table, and the oldest revision whose code can use
it."""


def read_oldest(connection: Connection, tables: Sequence[str], revisions: str) -> str | None:
    """Return the oldest revision whose code can use the database, or None if it is not stored."""
    if OLDEST.name not in tables:
        return None
    which = OLDEST.c.revisions == revisions
    # In ClickHouse, the table may still contain replaced rows, so read the highest revision, which
    # is the newest.
    found: str | None = connection.scalar(select(func.max(OLDEST.c.oldest)).where(which))
    return found


def store_oldest(connection: Connection, revisions: str, oldest: str) -> None:
    """Store the oldest revision whose code can use the database."""
    dialect = dialects.of(connection.engine)
    dialect.create_missing(connection, OLDEST.metadata)
    dialect.upsert(connection, OLDEST, [{"revisions": revisions, "oldest": oldest}])


def announce(engine: Engine, revisions: str, head: str) -> None:
    """Announce the revision `head` on each new connection. The connection fails if `head` is too
    old."""
    dialects.of(engine).announce(engine, OLDEST, revisions, head)


def exclude(connection: Connection, revisions: str, first: str, oldest: str) -> list[str]:
    """Prevent code of older revisions from connecting until the commit.

    Older revisions have numbers of at least `first` and less than `oldest`.

    Returns: the older revisions whose code is connected now.
    """
    older = [f"{number:04}" for number in range(int(first), int(oldest))]
    return dialects.of(connection.engine).exclude(connection, revisions, older)
