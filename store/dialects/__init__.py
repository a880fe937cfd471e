"""What differs from one database to the next, a module for each, all of one shape.

The rest of the store asks the module of its engine and never for a dialect's name.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from sqlalchemy import URL, ColumnElement, Connection, Engine, MetaData, Select, Table

from store.dialects.bulk import Insert
from store.errors import StoreError
from telemetry.installing import MissingExtra, require
from telemetry.tasks import Task


class Dialect(Protocol):
    """A module of this package."""

    DRIVERS: tuple[str, ...]
    """The schemes of its URLs."""
    ADDITIVE: bool
    """Its schema grows by what is missing, rather than through the revisions' steps."""
    ONE_WRITER: bool
    """Its rows are all written by one process."""
    READERS: int
    """How many parts of a window it is worth to read side by side."""

    def refusal(self, url: URL) -> str | None:
        """Return the error in a URL of this driver; None if it is valid."""

    def name(self, url: URL) -> str:
        """What messages call the database; never with its password."""

    def folder(self, url: URL) -> Path:
        """Where files beside the database belong."""

    def file(self, url: URL) -> Path | None:
        """The file that the database is; None where a server keeps it."""

    def connect(self, url: URL, *, create: bool, timeout_s: float) -> Engine:
        """Return an engine; `create` allows it to make missing files and folders.

        Raises: StoreError or DatabaseMissing if that is known before connecting.
        """

    def exclusively(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A transaction that no other one can change the schema beside. All of it or nothing."""

    def settle(self, engine: Engine, timeout_s: float) -> None:
        """Once the schema is there: the state in which it is written and read together."""

    def grow(self, connection: Connection, metadata: MetaData) -> None:
        """Make the tables that are missing, and their columns where it is `ADDITIVE`."""

    def inserting(self, engine: Engine, table: Table) -> Insert:
        """How rows are added to a table."""

    def read_columns(
        self, engine: Engine, questions: Sequence[Select[Any]], schema: pa.Schema
    ) -> pa.Table:
        """The answers, one after another, past Python's objects; texts may be dictionaries.

        Raises: NotQuick where the way is not there, or did not work.
        """

    def tasks(self, engine: Engine) -> Sequence[Task]:
        """The processes beside this one that read for it."""

    def put(self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows, in place of those with the same key."""

    def remove(self, connection: Connection, table: Table, which: ColumnElement[bool]) -> int:
        """Delete rows; how many there were."""

    def forgets(self, connection: Connection, table: Table, instant: str, keep_ns: int) -> bool:
        """Have the database itself drop rows by their age; False where it cannot."""

    def reason(self, error: BaseException) -> str:
        """The driver's own word for what went wrong: no statement, no value of a row."""


FORMS = (
    "sqlite:///PATH",
    "postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE",
    "clickhousedb://USER:PASSWORD@HOST:PORT/DATABASE",
)
"""What URLs look like."""


def named(backend: str) -> Dialect | None:
    """The dialect by SQLAlchemy's name for the kind of database; None where it is not served.

    Imported only when asked for: each brings a driver, and a command waits for its imports.

    Raises:
        StoreError: its driver is not installed.
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
    """The dialect of an engine that `open_database` made."""
    found = named(engine.dialect.name)
    if found is None:
        raise ValueError(f"{engine.dialect.name} is not served")
    return found
