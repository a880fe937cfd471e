"""Open connections for reading and writing, and convert driver errors to the store's errors."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

import pyarrow as pa
from sqlalchemy import Connection, Engine, Select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from store import dialects
from store.access.restricted import rewritten
from store.state import is_separate_state
from telemetry.store_errors import StoreUnavailable


class Fence(Protocol):
    """Checks that the caller still holds its lease (`store.leases`). If the lease was lost, both
    methods raise LeaseLost."""

    def before(self, engine: Engine) -> None:
        """Check before the first statement of a transaction."""

    def until_commit(self, connection: Connection) -> AbstractContextManager[None]:
        """Check before the commit. The check stays valid until the end of the `with` block."""


FENCE: Final[ContextVar[Fence | None]] = ContextVar("fence", default=None)


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a connection for reading.

    Raises:
        StoreUnavailable: the database cannot be read.
    """
    with store_errors(engine, "read"), engine.connect() as connection:
        yield connection


def read_columns(engine: Engine, statements: Sequence[Select[Any]], schema: pa.Schema) -> pa.Table:
    """Read rows as Arrow, without SQLAlchemy's connections. See `Dialect.read_columns`.

    Raises:
        NotQuick: the dialect cannot read columns.
    """
    allowed = [rewritten(engine, each) for each in statements]
    return dialects.of(engine).read_columns(engine, allowed, schema)


@contextmanager
def writing(engine: Engine, *, fenced: bool = True) -> Iterator[Connection]:
    """Open a transaction, which is committed at the end and rolled back on an exception.

    Raises:
        LeaseLost: the caller acts as the holder of a lease that was lost.
        StoreUnavailable: the database cannot be written.
    """
    fence = FENCE.get() if fenced else None
    if fence is not None:
        fence.before(engine)
    with (
        ExitStack() as until_commit,
        store_errors(engine, "written"),
        engine.begin() as connection,
    ):
        yield connection
        if fence is not None:
            until_commit.enter_context(fence.until_commit(connection))


@contextmanager
def store_errors(engine: Engine, what: str) -> Iterator[None]:
    """Raise StoreUnavailable instead of the driver's errors."""
    # Catch the driver's own errors too, because some rows are fetched without SQLAlchemy.
    try:
        yield
    except (DBAPIError, PoolTimeout, engine.dialect.loaded_dbapi.Error) as error:
        why = dialects.of(engine).reason(error)
        which = "state database" if is_separate_state(engine) else "database"
        raise StoreUnavailable(f"the {which} cannot be {what}: {why}") from error
