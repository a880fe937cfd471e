"""SQLite in write-ahead mode, in which several processes can read while one process writes.

`synchronous` is FULL. With NORMAL, a power failure could undo a commit, although the senders have
received an acknowledgement and will not send the rows again.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from sqlite3 import Connection as SQLiteConnection
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    Select,
    Table,
    create_engine,
    delete,
    event,
)
from sqlalchemy.dialects.sqlite import dialect, insert
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import NullPool

from store import private_files
from store.columns.adbc_client import ColumnReader
from store.dialects.bulk import Insert
from store.sqlite_uri import in_writable_folder, read_only_uri
from telemetry.store_errors import DatabaseMissing, StoreError
from telemetry.tasks import Task

DRIVERS: tuple[str, ...] = ("sqlite", "sqlite+pysqlite")
ADDITIVE: bool = False
SINGLE_WRITER: bool = True
LEASES: bool = False
READERS: int = min(4, os.cpu_count() or 1)
"""Each reader uses one core."""

SYNCHRONOUS = "FULL"
CACHE_KIB: Final = 32 * 1024
_READER: Final = "tailspan_column_reader"
CHECKPOINT_PAGES: Final = 16_384
"""Number of pages in the write-ahead log that triggers a checkpoint. With SQLite's defaults (1,000
pages, 2 MB of cache), the same pages are written repeatedly (benchmarks/ingest.py)."""
AT_ONCE: Final = 32
"""Rows per statement. With fewer rows, writing is slower, because each statement takes Python's
global interpreter lock."""


def refusal(url: URL) -> str | None:
    """Refuse a URL with anything except a file."""
    if url.host or url.query:
        return "a host or options are not supported"
    path = url.database
    if not path or path == ":memory:" or path.startswith("file:") or "\0" in path:
        # an in-memory database exists only within one connection
        return "the database must be a file"
    return None


def name(url: URL) -> str:
    """The path of the file."""
    return str(_path(url))


def folder(url: URL) -> Path:
    """The folder of the file."""
    return _path(url).parent


def file(url: URL) -> Path:
    """The path of the file."""
    return _path(url)


def connect(url: URL, *, create: bool, timeout_s: float) -> Engine:
    """An engine. Create the folder and the file, or check that the file exists."""
    path = _path(url)
    if create:
        try:
            path.parent.mkdir(mode=private_files.FOLDER_MODE, parents=True, exist_ok=True)
        except OSError as error:
            why = private_files.obstacle(path) or error.strerror
            raise StoreError(f"cannot create the folder of the database {path}: {why}") from error
        try:
            private_files.create(path)
        except OSError as error:
            raise StoreError(f"cannot create the database {path}: {error.strerror}") from error
    elif not path.is_file():
        raise DatabaseMissing(f"there is no database at {path}")
    reader = ColumnReader(str(path.absolute()))
    options: dict[str, Any] = {"execution_options": {_READER: reader}}
    if create or in_writable_folder(path):
        # Use the most recent connection again: its cache is warm, and a write over another
        # connection would invalidate this cache.
        options |= {"connect_args": {"timeout": timeout_s}, "pool_use_lifo": True}
    else:
        # For each use, `_read_only` must check whether another process writes to the database.
        options |= {"creator": lambda: _read_only(path, timeout_s), "poolclass": NullPool}
    engine = create_engine(url, **options)
    event.listen(engine, "engine_disposed", lambda _engine: reader.close())

    @event.listens_for(engine, "connect")
    def _configure(connection: SQLiteConnection, _record: object) -> None:
        connection.execute(f"PRAGMA synchronous={SYNCHRONOUS}")
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")

    return engine


def _read_only(path: Path, timeout_s: float) -> SQLiteConnection:
    return sqlite3.connect(
        read_only_uri(path.absolute()), uri=True, timeout=timeout_s, check_same_thread=False
    )


@contextmanager
def exclusively(engine: Engine) -> Iterator[Connection]:
    """Open a transaction and take the write lock, so that only one process changes the schema.

    BEGIN is sent explicitly, because Python's driver would commit each change separately.
    """
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection
        connection.commit()


def announce(engine: Engine, oldest: Table, revisions: str, head: str) -> None:
    """Do nothing, because only one process writes (`store.writer_lock`)."""


def exclude(connection: Connection, revisions: str, older: Sequence[str]) -> list[str]:
    """Return nothing, because only one process writes."""
    return []


def prepare(engine: Engine, timeout_s: float) -> None:
    """Switch the file permanently to write-ahead mode.

    SQLite does not wait for other processes' locks during this switch, so this function retries.
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


def create_missing(connection: Connection, metadata: MetaData) -> None:
    """Create all tables."""
    metadata.create_all(connection)


def inserting(engine: Engine, table: Table) -> Insert:
    """Return a function that adds rows. It sorts rows by key, so that SQLite writes an index page
    once. Plain tuples take half the time of dictionaries."""
    one, many = _insert_statements(table)
    names = table.columns.keys()
    key = itemgetter(*(names.index(column.name) for column in table.primary_key))

    def add(connection: Connection, rows: Sequence[tuple[object, ...]]) -> None:
        ordered = sorted(rows, key=key)
        whole = len(ordered) - len(ordered) % AT_ONCE
        for start in range(0, whole, AT_ONCE):
            values = chain.from_iterable(ordered[start : start + AT_ONCE])
            connection.exec_driver_sql(many, tuple(values))
        if rest := ordered[whole:]:
            connection.exec_driver_sql(one, rest)

    return add


@lru_cache(maxsize=64)
def _insert_statements(table: Table) -> tuple[str, str]:
    """The statements are cached, because compiling takes longer than adding a row."""
    one = str(insert(table).on_conflict_do_nothing().compile(dialect=dialect()))
    places = f"({', '.join('?' * len(table.columns))})"
    return one, one.replace(places, ", ".join([places] * AT_ONCE))


def read_columns(engine: Engine, questions: Sequence[Select[Any]], schema: pa.Schema) -> pa.Table:
    """Read rows through a separate process, which uses ADBC with one connection per query."""
    reader: ColumnReader = engine.get_execution_options()[_READER]
    statements = []
    for question in questions:
        compiled: Any = question.compile(engine, compile_kwargs={"render_postcompile": True})
        values = compiled.construct_params()
        statements.append((str(compiled), [values[name] for name in compiled.positiontup]))
    return reader.read(statements, schema)


def tasks(engine: Engine) -> Sequence[Task]:
    """The health of the process that reads columns."""
    reader: ColumnReader = engine.get_execution_options()[_READER]
    return (reader.task,)


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add or replace rows."""
    statement = insert(table)
    keys = [column.name for column in table.primary_key]
    others = {each.name: each for each in statement.excluded if each.name not in keys}
    connection.execute(
        statement.on_conflict_do_update(index_elements=keys, set_=others), list(rows)
    )


def remove(connection: Connection, table: Table, which: ColumnElement[bool]) -> int:
    """Delete rows."""
    return connection.execute(delete(table).where(which)).rowcount


def set_row_lifetime(
    connection: Connection, table: Table, instant: str, keep_ns: int | None
) -> bool:
    """Return False, because SQLite does not delete old rows itself."""
    return False


def drop_days(engine: Engine, table: Table, before_unix_ns: int) -> None:
    """Return None, because SQLite has no partitions."""


def reason(error: BaseException) -> str:
    """SQLite's message."""
    return str(getattr(error, "orig", None) or error)


def _path(url: URL) -> Path:
    return Path(url.database or "")
