"""The differences between databases. Each module supports one database, with the functions of
`Dialect`. The rest of the store never checks the name of the database."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from sqlalchemy import URL, ColumnElement, Connection, Engine, MetaData, Select, Table

from store.dialects.bulk import Insert
from telemetry.installing import MissingExtra, require
from telemetry.store_errors import StoreError
from telemetry.tasks import Task


class Dialect(Protocol):
    """The functions that a dialect's module provides."""

    DRIVERS: tuple[str, ...]
    ADDITIVE: bool
    """Whether an upgrade only adds tables and columns. If so, the database has no schema revisions
    and no transactions."""
    SINGLE_WRITER: bool
    LEASES: bool
    """Whether several processes can share the database by leases (`store.leases`)."""
    READERS: int
    """Number of parts of a window that are read in parallel."""

    def refusal(self, url: URL) -> str | None:
        """An error message for an invalid URL, or None."""

    def name(self, url: URL) -> str:
        """The database's name for messages, without a password."""

    def folder(self, url: URL) -> Path:
        """The folder for files that belong to the database."""

    def file(self, url: URL) -> Path | None:
        """The database file, or None for a database on a server."""

    def connect(self, url: URL, *, create: bool, timeout_s: float) -> Engine:
        """Return an engine. With `create`, create missing files and folders.

        Raises:
            StoreError, DatabaseMissing: an error was detected without a connection.
        """

    def exclusively(self, engine: Engine) -> AbstractContextManager[Connection]:
        """Open a transaction that prevents other processes from changing the schema."""

    def announce(self, engine: Engine, oldest: Table, revisions: str, head: str) -> None:
        """Announce the code's revision `head` on each new connection (`migrations.older_versions`).
        If the table `oldest` excludes this revision, the connection fails. `revisions` is the name
        of the schema's revision table."""

    def exclude(self, connection: Connection, revisions: str, older: Sequence[str]) -> list[str]:
        """Block new announcements of older revisions until the commit. Return the revisions that
        open connections announce."""

    def prepare(self, engine: Engine, timeout_s: float) -> None:
        """Prepare a database for concurrent reading and writing. Its schema exists already."""

    def create_missing(self, connection: Connection, metadata: MetaData) -> None:
        """Create missing tables, and missing columns if the dialect is `ADDITIVE`."""

    def inserting(self, engine: Engine, table: Table) -> Insert:
        """Return a function that adds rows to a table."""

    def read_columns(
        self, engine: Engine, questions: Sequence[Select[Any]], schema: pa.Schema
    ) -> pa.Table:
        """The concatenated rows of the queries. Text columns may be dictionary-encoded.

        Raises:
            NotQuick: bulk reading is not available, or failed.
        """

    def tasks(self, engine: Engine) -> Sequence[Task]:
        """The health of each child process that reads for this process."""

    def upsert(
        self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Add rows, or replace rows with the same key."""

    def remove(self, connection: Connection, table: Table, which: ColumnElement[bool]) -> int:
        """Delete rows. Return their number."""

    def set_row_lifetime(
        self, connection: Connection, table: Table, instant: str, keep_ns: int | None
    ) -> bool:
        """Configure the database to delete old rows itself. Return False if it cannot.

        If `keep_ns` is None, the database must not delete rows by age any more.
        """

    def drop_days(
        self, engine: Engine, table: Table, before_unix_ns: int
    ) -> tuple[int, int] | None:
        """Delete whole days of rows that are older than a time, without reading the rows.

        Returns: the estimated number of deleted rows, and the start of the first day with its own
        partition. The result is None if the table is not divided into days.
        """

    def reason(self, error: BaseException) -> str:
        """The driver's message for an error, without the statement and its values."""


FORMS = (
    "sqlite:///PATH",
    "postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE",
    "clickhousedb://USER:PASSWORD@HOST:PORT/DATABASE",
)


def named(backend: str) -> Dialect | None:
    """Return the dialect for SQLAlchemy's name of a database, or None if it is not supported.

    Raises:
        StoreError: the driver of the database is not installed.
    """
    if backend == "sqlite":
        from store.dialects import sqlite

        return sqlite
    if backend == "postgresql":
        _require("psycopg", "postgresql", "PostgreSQL")
        from store.dialects import postgresql

        return postgresql
    if backend == "clickhousedb":
        _require("clickhouse_connect", "clickhouse", "ClickHouse")
        from store.dialects import clickhouse

        return clickhouse
    return None


def _require(module: str, extra: str, what: str) -> None:
    try:
        require(module, extra, what)
    except MissingExtra as error:
        raise StoreError(str(error)) from error


def of(engine: Engine) -> Dialect:
    """The dialect of an engine from `open_database`."""
    found = named(engine.dialect.name)
    if found is None:
        raise ValueError(f"{engine.dialect.name} is not supported")
    return found
