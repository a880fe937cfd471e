"""Opening a database: which URLs are served, and the state a database is put in.

SQLite, in write-ahead mode: several processes read while one writes. `synchronous=FULL`,
because a client that was told "committed" will not send again: with NORMAL a power cut
may take the last commits back. The writer commits in groups, so that one flush to disk
serves all who wait.
"""

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from sqlite3 import Connection as SQLiteConnection

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, DatabaseError

from store.errors import DatabaseMissing, StoreError
from store.schema import METADATA, SCHEMA_VERSION, VERSION

ENVIRONMENT_KEY = "TAILSPAN_DATABASE_URL"
DEFAULT_URL = "sqlite:///var/tailspan.db"
"""Relative to the working directory."""

BUSY_TIMEOUT_S = 5.0
"""How long a connection waits for another process's write before it gives up."""


def default_url(environ: Mapping[str, str] = os.environ) -> str:
    """`TAILSPAN_DATABASE_URL`, or the embedded database of this working directory."""
    return environ.get(ENVIRONMENT_KEY) or DEFAULT_URL


def open_database(
    url: str | None = None, *, create: bool = True, busy_timeout_s: float = BUSY_TIMEOUT_S
) -> Engine:
    """Open a database, with its schema made if it is new.

    Args:
        url: a SQLAlchemy URL; None for `default_url()`.
        create: make what is missing (the folder, the file, the schema); without it nothing
            is written, and what is missing is an error.
        busy_timeout_s: how long to wait for another's lock.

    Raises:
        DatabaseMissing: nothing to read, and `create` is false.
        StoreError: an unsupported URL, a file that is no database of Tailspan's, or a
            database of a newer Tailspan.
    """
    parsed = _parse(url if url is not None else default_url())
    path = Path(parsed.database or "")
    if create:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make the folder of the database {path}: {error}") from error
    elif not path.is_file():
        raise DatabaseMissing(
            f"there is no database at {path}; `tailspan up` makes one,"
            f" or name another with --database or {ENVIRONMENT_KEY}"
        )
    engine = create_engine(parsed, connect_args={"timeout": busy_timeout_s})

    @event.listens_for(engine, "connect")
    def _configure(connection: SQLiteConnection, _record: object) -> None:
        connection.execute("PRAGMA synchronous=FULL")

    try:
        _check_schema(engine, path, create)
        if create:
            _use_write_ahead_log(engine, busy_timeout_s)
    except DatabaseError as error:
        engine.dispose()
        raise StoreError(f"cannot open the database {path}: {error.orig}") from error
    except StoreError:
        engine.dispose()
        raise
    return engine


def _parse(url: str) -> URL:
    allowed = f"allowed: sqlite:///PATH, for instance {DEFAULT_URL}"
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        # It may hold a password all the same: what stands before an @ is not repeated.
        shown = re.sub(r"//.*@", "//***@", url, flags=re.DOTALL)
        raise StoreError(f"{shown!r} is no database URL; {allowed}") from error
    shown = parsed.render_as_string(hide_password=True)
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise StoreError(f"{shown!r}: {parsed.drivername} is not supported; {allowed}")
    if parsed.host or parsed.query:
        raise StoreError(f"{shown!r}: a host or options are not supported; {allowed}")
    path = parsed.database
    if not path or path == ":memory:" or path.startswith("file:") or "\0" in path:
        # A database in memory is one connection's own: the writer's rows would never be read.
        raise StoreError(f"{shown!r}: the database must be a file; {allowed}")
    return parsed


def _use_write_ahead_log(engine: Engine, timeout_s: float) -> None:
    """Switch the file to write-ahead mode, which it keeps.

    SQLite does not wait for a lock when the mode changes, so two processes that open a
    new database together have to take turns here.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with engine.connect() as connection:
                if connection.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
                    connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            return
        except DatabaseError as error:
            if "locked" not in str(error.orig) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _check_schema(engine: Engine, path: Path, create: bool) -> None:
    with engine.connect() as connection:
        if create and SCHEMA_VERSION.name not in _tables(connection):
            # Takes the write lock at once: of two that open it together, one makes the schema.
            connection.rollback()
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            if not _tables(connection):
                METADATA.create_all(connection)
                connection.execute(insert(SCHEMA_VERSION).values(version=VERSION))
            connection.commit()
        if SCHEMA_VERSION.name not in _tables(connection):
            raise StoreError(f"{path} is not a Tailspan database: name another file")
        found = connection.scalar(select(SCHEMA_VERSION.c.version))
    if found != VERSION:
        age = "a newer" if found is not None and found > VERSION else "an older"
        raise StoreError(
            f"{path} was written by {age} Tailspan (schema {found}, this one knows"
            f" {VERSION}): use that version, or name another database"
        )


def _tables(connection: Connection) -> list[str]:
    return inspect(connection).get_table_names()
