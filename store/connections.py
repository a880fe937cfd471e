"""Open connections for reading and writing. They raise the store's own errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from store import dialects
from store.errors import StoreUnavailable


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a connection for reading.

    Raises: StoreUnavailable: the database cannot be read.
    """
    with _store_errors(engine, "read"), engine.connect() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a transaction, which is committed at the end and rolled back on an exception.

    Raises: StoreUnavailable: the database cannot be written.
    """
    with _store_errors(engine, "written"), engine.begin() as connection:
        yield connection


@contextmanager
def _store_errors(engine: Engine, what: str) -> Iterator[None]:
    # Some rows are fetched without SQLAlchemy, so catch the driver's own errors too.
    try:
        yield
    except (DBAPIError, PoolTimeout, engine.dialect.loaded_dbapi.Error) as error:
        why = dialects.of(engine).reason(error)
        raise StoreUnavailable(f"the database cannot be {what}: {why}") from error
