"""The schema's revisions: which one a database has, and how it gets the newest.

A new database gets the whole schema at once and is marked with the newest revision. An older one
goes through the revisions it lacks (`versions/`, run by Alembic), all in one transaction: an
upgrade that fails leaves the database as it was. Only a writer upgrades; a reader raises an error.
The revisions' numbers order them, so neither needs Alembic to compare them.
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
"""Alembic's own table; its name identifies the database as Tailspan's."""

FIRST: Final = "0016"
"""The oldest revision that can be upgraded: that of the first release."""


def head() -> str:
    """The newest revision."""
    return max(path.name[:4] for path in FOLDER.glob("versions/[0-9]*.py"))


def check(engine: Engine, name: str) -> None:
    """See that a database has the newest revision; writes nothing.

    Args:
        engine: of the database.
        name: what to call it in messages.

    Raises:
        StoreError: it has another revision, or is not Tailspan's; the message names the fix.
        DatabaseMissing: it is empty.
    """
    with engine.connect() as connection:
        found = _revision(connection, name)
    if found is None:
        raise DatabaseMissing(f"{name} is empty")
    if found != head():
        raise StoreError(
            f"{name} has the schema of an older Tailspan ({found}; this one needs {head()}):"
            " start `tailspan up` with it, which upgrades it and keeps the data"
        )


def bring_up_to_date(engine: Engine, name: str, tell: Callable[[str], None]) -> None:
    """Make the schema, or give it the revisions it lacks, and report that to `tell`.

    The other arguments and the errors are those of `check`.
    """
    with engine.connect() as connection:
        if _revision(connection, name) == head():
            return
    dialect, begun_s = dialects.of(engine), None
    with dialect.exclusively(engine) as connection:
        found = _revision(connection, name)  # another may have done it meanwhile
        if found == head():
            return
        if found is None or dialect.ADDITIVE:
            # The mark's table first: where there are no transactions, another sees whose it is.
            dialect.grow(connection, REVISION.metadata)
            dialect.grow(connection, METADATA)
            connection.execute(insert(REVISION).values(version_num=head()))
        else:
            begun_s = time.monotonic()
            tell(
                f"Upgrading {name} from schema {found} to {head()}. It keeps the data; a million"
                " requests may take ten seconds. If it is stopped, nothing has changed."
            )
            _upgrade(connection, name, found)
    if begun_s is not None:
        tell(f"Upgraded in {time.monotonic() - begun_s:.0f} s.")


def _revision(connection: Connection, name: str) -> str | None:
    """The database's revision; None where it is empty, or has no revision yet."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if REVISION.name in tables:
        # Without transactions, the table is there before its row.
        found: str | None = connection.scalar(select(func.max(REVISION.c.version_num)))
    elif "tailspan_schema" in tables:
        found = ""  # from before the revisions
    else:
        raise StoreError(f"{name} is not a Tailspan database: name another one")
    if found is not None and found < FIRST:
        raise StoreError(
            f"{name} has schema {found or 'version 2'} of a Tailspan before the first release; this"
            f" one can upgrade {FIRST} or newer. Name a new database (--database,"
            " TAILSPAN_DATABASE_URL), or move this one away first. To read it, use the version of"
            " Tailspan that wrote it"
        )
    if found is not None and found > head():
        raise StoreError(
            f"{name} was written by a newer Tailspan (schema {found}; this one knows {head()}):"
            " use that version, or name another database"
        )
    return found


def _upgrade(connection: Connection, name: str, found: str) -> None:
    from alembic import command  # only an upgrade waits for its import
    from alembic.util import CommandError

    from store.migrations.alembic_config import config

    try:
        command.upgrade(config(connection), "head")
    except (SQLAlchemyError, CommandError) as error:
        why = dialects.of(connection.engine).reason(error)
        raise StoreError(
            f"{name} could not be upgraded from schema {found} to {head()} and is as it was: {why}"
        ) from error
