"""Find the older versions of Tailspan that can use a database, and the older versions in use now.

A database stores the oldest revision whose code can still use it. An upgrade may raise this
revision and so exclude older code. Such an upgrade must not run while the older code writes.
Therefore, each collector announces its revision on each of its connections (`Dialect.announce`). In
PostgreSQL, the announcement is a lock. A paused collector keeps its lock, and a dead collector
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
"""One row per schema. The key is the name of the schema's revision table."""


def read_oldest(connection: Connection, tables: Sequence[str], revisions: str) -> str | None:
    """The oldest revision whose code can use the database, if stored."""
    if OLDEST.name not in tables:
        return None
    which = OLDEST.c.revisions == revisions
    # in ClickHouse, the table may still contain replaced rows
    found: str | None = connection.scalar(select(func.max(OLDEST.c.oldest)).where(which))
    return found


def store_oldest(connection: Connection, revisions: str, oldest: str) -> None:
    """Store the oldest revision whose code can use the database."""
    dialect = dialects.of(connection.engine)
    dialect.create_missing(connection, OLDEST.metadata)
    dialect.upsert(connection, OLDEST, [{"revisions": revisions, "oldest": oldest}])


def announce(engine: Engine, revisions: str, head: str) -> None:
    """Announce `head` on each new connection. The connection fails if `head` is too old."""
    dialects.of(engine).announce(engine, OLDEST, revisions, head)


def exclude(connection: Connection, revisions: str, first: str, oldest: str) -> list[str]:
    """Prevent connections of code with a revision from `first` to before `oldest`, until the
    commit. Return the revisions that are connected now."""
    older = [f"{number:04}" for number in range(int(first), int(oldest))]
    return dialects.of(connection.engine).exclude(connection, revisions, older)
