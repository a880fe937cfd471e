"""The schema's revisions: which one a database has, and how it gets the newest.

A new database gets the whole schema at once and is marked with the newest revision; an older
one goes through the revisions it lacks (`versions/`, run by Alembic), all in one transaction:
what fails half-way leaves the database as it was. Only who writes upgrades; a reader says
what to do. Numbers order the revisions, so neither needs Alembic to compare them.
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
"""Alembic's own table, under a name that says whose database it is."""

ADOPTED: Final = 2
"""The one version of `tailspan_schema`, which came before the revisions, that is taken over."""


def head() -> str:
    """The newest revision."""
    return max(path.name[:4] for path in FOLDER.glob("versions/[0-9]*.py"))


def check(engine: Engine, name: str) -> None:
    """See that a database has the newest revision; writes nothing.

    Args:
        engine: of the database.
        name: what to call it in messages.

    Raises:
        StoreError: it has another, or is not Tailspan's; says what to do.
        DatabaseMissing: it is empty.
    """
    with engine.connect() as connection:
        found = _revision(connection, name)
    if found is None:
        raise DatabaseMissing(f"{name} is empty")
    if found != head():
        raise StoreError(
            f"{name} has the schema of an older Tailspan ({found or 'version 2'}; this one needs"
            f" {head()}): start `tailspan up` with it, which upgrades it and keeps the data"
        )


def bring_up_to_date(engine: Engine, name: str, tell: Callable[[str], None]) -> None:
    """Make the schema, or give it the revisions it lacks, and `tell` of that. The other arguments
    and errors as above."""
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
                f"Upgrading {name} from schema {found or 'version 2'} to {head()}. It keeps the"
                " data; a million requests may take ten seconds. Stopped half-way, it is as it was."
            )
            _upgrade(connection, name, found)
    if begun_s is not None:
        tell(f"Upgraded in {time.monotonic() - begun_s:.0f} s.")


def _revision(connection: Connection, name: str) -> str | None:
    """The database's revision, "" for the version before them; None where it is empty."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if REVISION.name in tables:
        found = connection.scalar(select(func.max(REVISION.c.version_num))) or ""
        if found > head():
            raise StoreError(
                f"{name} was written by a newer Tailspan (schema {found}, this one knows"
                f" {head()}): use that version, or name another database"
            )
        return found
    if "tailspan_schema" not in tables:
        raise StoreError(f"{name} is not a Tailspan database: name another one")
    version = connection.exec_driver_sql("SELECT version FROM tailspan_schema").scalar()
    if version != ADOPTED:
        raise StoreError(
            f"{name} was written by a Tailspan under development (schema version {version};"
            f" {ADOPTED} can be upgraded): name another database"
        )
    return ""


def _upgrade(connection: Connection, name: str, found: str) -> None:
    from alembic import command  # only an upgrade waits for its import
    from alembic.util import CommandError

    from store.migrations.alembic_config import config

    try:
        command.upgrade(config(connection), "head")
    except (SQLAlchemyError, CommandError) as error:
        why = dialects.of(connection.engine).reason(error)
        raise StoreError(
            f"{name} could not be upgraded from schema {found or 'version 2'} to {head()} and is"
            f" as it was: {why}"
        ) from error
