"""A connection to read or write with, whose failures are the store's own errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from store import dialects
from store.errors import StoreUnavailable


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection to ask by.

    Raises: StoreUnavailable where the database does not answer, or not so.
    """
    with _told(engine, "read"), engine.connect() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction: committed at the end, undone where that is not reached.

    Raises: StoreUnavailable where the database cannot be written.
    """
    with _told(engine, "written"), engine.begin() as connection:
        yield connection


@contextmanager
def _told(engine: Engine, what: str) -> Iterator[None]:
    # The driver's own errors come too: rows are fetched past SQLAlchemy.
    try:
        yield
    except (DBAPIError, PoolTimeout, engine.dialect.loaded_dbapi.Error) as error:
        why = dialects.of(engine).reason(error)
        raise StoreUnavailable(f"the database cannot be {what}: {why}") from error
