"""Create and upgrade the schema of a database.

A new database gets the whole schema. In an older database, Alembic runs the missing revisions
(`versions/`) in one transaction. Only a writer upgrades. A reader raises an error.

Telemetry and state (`store.state`) are separate schemas with separate revisions. An older version
can use a database to which newer versions have only added tables and columns
(docs/decisions/099-collectors-are-upgraded-one-after-another.md).
"""

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

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
from store.migrations.all_tables import METADATA, STATE_METADATA
from store.migrations.older_versions import announce, exclude, read_oldest, store_oldest
from telemetry.store_errors import DatabaseMissing, StoreError

FOLDER: Final = Path(__file__).parent


def _revision_table(name: str) -> Table:
    return Table(name, MetaData(), Column("version_num", String(32), primary_key=True))


class Schema(NamedTuple):
    """Tables that have their own revisions."""

    title: str
    """The text before "schema" in messages: "state " for the state, empty for telemetry."""
    metadata: MetaData
    folder: str
    revision: Table
    """The name of Alembic's version table. Only a database of Tailspan has this table."""
    first: str
    """The oldest revision that can be upgraded."""
    oldest: str
    """The oldest revision whose code can use a database of the newest revision. Raise it if this
    version relies on data that older versions do not write. Also raise it if a revision does more
    than add tables, indexes, nullable columns or columns with a default."""

    def head(self) -> str:
        """The newest revision."""
        return _newest(FOLDER / self.folder)


@cache
def _newest(folder: Path) -> str:
    return max(path.name[:4] for path in folder.glob("[0-9]*.py"))


TELEMETRY: Final = Schema(
    *("", METADATA, "versions", _revision_table("tailspan_revision")),
    *("0035", "0035"),
)
STATE: Final = Schema(
    *("state ", STATE_METADATA, "state_versions", _revision_table("tailspan_state_revision")),
    *("0001", "0001"),
)
REVISION: Final = TELEMETRY.revision


def head() -> str:
    """The newest revision of the telemetry's schema."""
    return TELEMETRY.head()


def refuse_telemetry(engine: Engine, name: str) -> None:
    """Raise StoreError if a separate state database contains telemetry."""
    if has(engine, TELEMETRY):
        raise StoreError(
            f"{name} contains telemetry, so it cannot be a separate state database; set an empty"
            " database with --state-url, or leave --state-url out to keep the state with the"
            " telemetry"
        )


def has(engine: Engine, schema: Schema) -> bool:
    """Whether a database has the tables of a schema."""
    with engine.connect() as connection:
        return schema.revision.name in inspect(connection).get_table_names()


def check(engine: Engine, name: str, schema: Schema = TELEMETRY) -> None:
    """Check that a database has the newest revision of this version, or a newer compatible
    revision. Never writes.

    Raises:
        StoreError: the database has a different revision, or was not created by Tailspan.
        DatabaseMissing: the database is empty.
    """
    with engine.connect() as connection:
        found = _read(connection, name, schema).revision
    if found is None:
        raise DatabaseMissing(f"{name} is empty")
    if found < schema.head():
        raise StoreError(
            f"{name} has {schema.title}schema {found} of an older Tailspan; this version needs"
            f" {schema.head()}. `tailspan up` upgrades the database and keeps all data"
        )


def check_upgradable(engine: Engine, name: str, schema: Schema) -> None:
    """Raise StoreError if this version can neither use nor upgrade the database. Never writes."""
    with engine.connect() as connection:
        _read(connection, name, schema)


def announce_to(engine: Engine, schema: Schema) -> None:
    """Announce on each new connection that this version writes the tables of a schema."""
    announce(engine, schema.revision.name, schema.head())


def upgrade_schema(
    engine: Engine, name: str, report: Callable[[str], None], schema: Schema = TELEMETRY
) -> None:
    """Create a schema, or run its missing revisions.

    Args:
        report: called at the start and end of an upgrade. Also called if a newer version upgraded
            the database.

    Raises:
        StoreError: the database cannot be upgraded, or was not created by Tailspan. Also raised if
            older versions use the database and cannot work with the new schema.
    """
    with engine.connect() as connection:
        found = _read(connection, name, schema)
    if found.serves(schema):
        if found.revision != schema.head():
            report(
                f"{name} was upgraded to {schema.title}schema {found.revision} by a newer Tailspan."
                f" This version ({schema.head()}) can use it."
            )
        return
    dialect, begun_s = dialects.of(engine), None
    with dialect.exclusively(engine) as connection:
        # another process may have upgraded the schema in the meantime
        found = _read(connection, name, schema)
        if found.serves(schema):
            return
        if found.oldest is not None and found.oldest < schema.oldest:
            _exclude_older(connection, name, schema)
        if found.revision is None or dialect.ADDITIVE:
            # Create the revision table first. Even without transactions, other processes then
            # recognise the database.
            dialect.create_missing(connection, schema.revision.metadata)
            dialect.create_missing(connection, schema.metadata)
            connection.execute(insert(schema.revision).values(version_num=schema.head()))
        elif found.revision < schema.head():
            begun_s = time.monotonic()
            report(
                f"Upgrading {name} from {schema.title}schema {found.revision} to {schema.head()}."
                " The data is kept. A million requests may take ten seconds. If the upgrade is"
                " stopped, the database does not change."
            )
            _upgrade(connection, name, found.revision, schema)
            dialect.create_missing(connection, schema.metadata)  # partitions of new tables
        store_oldest(connection, schema.revision.name, schema.oldest)
    if begun_s is not None:
        report(f"Upgraded in {time.monotonic() - begun_s:.0f} s.")


class _Found(NamedTuple):
    revision: str | None
    """The stored revision, or None if the schema does not exist yet."""
    oldest: str | None
    """The oldest compatible revision, or None if it is not stored."""

    def serves(self, schema: Schema) -> bool:
        """Whether this version can use the database as it is."""
        return (self.revision or "") >= schema.head() and (self.oldest or "") >= schema.oldest


def _exclude_older(connection: Connection, name: str, schema: Schema) -> None:
    """Keep versions that cannot use the new schema from connecting until the commit.

    Raises:
        StoreError: an excluded version uses the database.
    """
    older = exclude(connection, schema.revision.name, schema.first, schema.oldest)
    if older:
        raise StoreError(
            f"collectors of an older Tailspan ({schema.title}schema {', '.join(older)}) use {name}"
            f" and cannot work with {schema.title}schema {schema.head()}; it is unchanged. Stop"
            " all of them, and then start this version"
        )


def _read(connection: Connection, name: str, schema: Schema) -> _Found:
    """Return the recorded versions. Raise StoreError if this version can neither use nor upgrade
    the database."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return _Found(None, None)
    found: str | None
    if schema.revision.name in tables:
        # without transactions, the revision table can exist without its row
        found = connection.scalar(select(func.max(schema.revision.c.version_num)))
    elif schema is STATE and TELEMETRY.revision.name in tables:
        found = None
    elif schema is TELEMETRY and STATE.revision.name in tables:
        raise StoreError(
            f"{name} is a state database (--state-url); set the database of the telemetry with"
            " --database"
        )
    else:
        option = "--state-url" if schema is STATE else "--database"
        raise StoreError(f"{name} is not a Tailspan database; set another database with {option}")
    if found is not None and found < schema.first:
        raise StoreError(
            f"{name} has {schema.title}schema {found}, from before the first release; this version"
            f" can use {schema.first} or newer. Set a new database (--database,"
            " TAILSPAN_DATABASE_URL), or move this file away. To read the old data, use the"
            " version of Tailspan that wrote it"
        )
    oldest = read_oldest(connection, tables, schema.revision.name)
    if found is not None and found > schema.head() and (oldest or found) > schema.head():
        raise StoreError(
            f"{name} was written by a newer Tailspan ({schema.title}schema {found}; this version"
            f" has {schema.head()}, and {oldest or found} or newer can use it); use that version,"
            " or set another database with"
            f" {'--database or --state-url' if schema is STATE else '--database'}"
        )
    return _Found(found, oldest)


def _upgrade(connection: Connection, name: str, found: str, schema: Schema) -> None:
    from alembic import command  # slow, so imported only here
    from alembic.util import CommandError

    from store.migrations.alembic_config import config

    try:
        command.upgrade(config(connection, schema), "head")
    except (SQLAlchemyError, CommandError) as error:
        why = dialects.of(connection.engine).reason(error)
        raise StoreError(
            f"{name} could not be upgraded from {schema.title}schema {found} to {schema.head()}; it"
            f" is unchanged: {why}"
        ) from error
