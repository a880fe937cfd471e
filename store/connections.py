"""Open connections for reading and writing. They raise the store's own errors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from store import dialects
from store.errors import StoreUnavailable

FENCE: Final[ContextVar[Callable[[Connection], None] | None]] = ContextVar("fence", default=None)
"""Called at the end of each transaction of `writing`, before the commit. It raises an exception if
the transaction must not be committed (`store.leases`)."""


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a connection for reading.

    Raises: StoreUnavailable: the database cannot be read.
    """
    with store_errors(engine, "read"), engine.connect() as connection:
        yield connection


@contextmanager
def writing(engine: Engine, *, fenced: bool = True) -> Iterator[Connection]:
    """Open a transaction, which is committed at the end and rolled back on an exception.

    Args:
        engine: from `open_database`.
        fenced: whether to call `FENCE`. False for a write that has its own check.

    Raises:
        LeaseLost: the caller acts as the holder of a lease, and the lease was lost.
        StoreUnavailable: the database cannot be written.
    """
    with store_errors(engine, "written"), engine.begin() as connection:
        yield connection
        check = FENCE.get()
        if fenced and check is not None:
            check(connection)


@contextmanager
def store_errors(engine: Engine, what: str) -> Iterator[None]:
    """Raise StoreUnavailable instead of the driver's errors."""
    # Some rows are fetched without SQLAlchemy, so catch the driver's own errors too.
    try:
        yield
    except (DBAPIError, PoolTimeout, engine.dialect.loaded_dbapi.Error) as error:
        why = dialects.of(engine).reason(error)
        raise StoreUnavailable(f"the database cannot be {what}: {why}") from error
