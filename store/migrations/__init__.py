"""Create and upgrade the schema of a database.

In a new database, the whole schema is created and the newest revision is recorded. In an older
database, Alembic runs the missing revisions (`versions/`) in one transaction, so a failed upgrade
does not change the database. Only a writer upgrades a database; a reader raises an error instead.
Revisions are numbered, so they can be compared without Alembic.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import SQLAlchemyError

from store import dialects
from store.errors import DatabaseMissing, StoreError
from store.migrations.all_tables import METADATA

FOLDER: Final = Path(__file__).parent
REVISION: Final = Table(
    "tailspan_revision", MetaData(), Column("version_num", String(32), primary_key=True)
)
"""Alembic's version table. Its name identifies a database of Tailspan."""

FIRST: Final = "0016"
"""The oldest revision that can be upgraded: the revision of the first release."""


def head() -> str:
    """Return the newest revision."""
    return max(path.name[:4] for path in FOLDER.glob("versions/[0-9]*.py"))


def check(engine: Engine, name: str) -> None:
    """Check that a database has the newest revision. Never write.

    Args:
        engine: the database.
        name: the name of the database in messages.

    Raises:
        StoreError: the database has another revision, or was not created by Tailspan.
        DatabaseMissing: the database is empty.
    """
    with engine.connect() as connection:
        found = _revision(connection, name)
    if found is None:
        raise DatabaseMissing(f"{name} is empty")
    if found != head():
        raise StoreError(
            f"{name} has schema {found} of an older Tailspan; this version needs {head()}."
            " `tailspan up` upgrades the database and keeps all data"
        )


def bring_up_to_date(engine: Engine, name: str, report: Callable[[str], None]) -> None:
    """Create the schema, or run the missing revisions.

    Args:
        engine: the database.
        name: the name of the database in messages.
        report: called with a message at the start and at the end of an upgrade.

    Raises:
        StoreError: the database cannot be upgraded, or was not created by Tailspan.
    """
    with engine.connect() as connection:
        if _revision(connection, name) == head():
            return
    dialect, begun_s = dialects.of(engine), None
    with dialect.exclusively(engine) as connection:
        found = _revision(connection, name)  # another process may have upgraded the database
        if found == head():
            return
        if found is None or dialect.ADDITIVE:
            # Create the revision table first. Even without transactions, other processes then
            # recognise the database as Tailspan's.
            dialect.grow(connection, REVISION.metadata)
            dialect.grow(connection, METADATA)
            connection.execute(insert(REVISION).values(version_num=head()))
        else:
            begun_s = time.monotonic()
            report(
                f"Upgrading {name} from schema {found} to {head()}. The data is kept. A million"
                " requests may take ten seconds. If the upgrade is stopped, the database does not"
                " change."
            )
            _upgrade(connection, name, found)
    if begun_s is not None:
        report(f"Upgraded in {time.monotonic() - begun_s:.0f} s.")


def _revision(connection: Connection, name: str) -> str | None:
    """Return the database's revision, or None if the database is empty or has no revision yet."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if REVISION.name in tables:
        # Without transactions, the revision table can exist without its row.
        found: str | None = connection.scalar(select(func.max(REVISION.c.version_num)))
    elif "tailspan_schema" in tables:
        found = ""  # the database is older than revisions
    else:
        raise StoreError(f"{name} is not a Tailspan database; set another database with --database")
    if found is not None and found < FIRST:
        raise StoreError(
            f"{name} has schema {found or 'version 2'}, from before the first release; this"
            f" version can upgrade {FIRST} or newer. Set a new database (--database,"
            " TAILSPAN_DATABASE_URL), or move this file away. To read the old data, use the"
            " version of Tailspan that wrote it"
        )
    if found is not None and found > head():
        raise StoreError(
            f"{name} was written by a newer Tailspan (schema {found}; this version has {head()});"
            " use that version, or set another database with --database"
        )
    return found


def _upgrade(connection: Connection, name: str, found: str) -> None:
    from alembic import command  # imported here because the import takes time
    from alembic.util import CommandError

    from store.migrations.alembic_config import config

    try:
        command.upgrade(config(connection), "head")
    except (SQLAlchemyError, CommandError) as error:
        why = dialects.of(connection.engine).reason(error)
        raise StoreError(
            f"{name} could not be upgraded from schema {found} to {head()}; it is unchanged: {why}"
        ) from error
