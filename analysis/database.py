"""Open the database to read it, and restrict it to what a reader may see."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from store.access.restricted import READER, access_of, is_masked, restricted
from store.database import open_database
from telemetry.access import Access


def open_to_read(url: str | None = None, state_url: str | None = None) -> Engine:
    """Open a database, restricted to what the current reader may see (`reading_as`).

    Args:
        url, state_url: with None, the value in the environment or the default is used.

    Raises:
        DatabaseMissing: there is no database.
        StoreError: the URL is not supported, or this version cannot read the database.
    """
    return open_database(url, state_url, create=False)


@contextmanager
def opened_to_read(url: str | None = None, state_url: str | None = None) -> Iterator[Engine]:
    """Open a database as `open_to_read` does, and close it at the end of the `with` block."""
    engine = open_to_read(url, state_url)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def reading_as(access: Access | None) -> Iterator[None]:
    """Restrict the databases that are opened in the `with` block. None allows everything."""
    token = READER.set(access)
    try:
        yield
    finally:
        READER.reset(token)


def restricted_to(engine: Engine, access: Access) -> Engine:
    """The same database with only the rows and columns that `access` allows."""
    return restricted(engine, access)


def cache_key(engine: Engine) -> str:
    """A key for caches. Engines with equal keys give equal results."""
    access = access_of(engine)
    return str(engine.url) if access is None else f"{engine.url} {access.key} {is_masked(engine)}"


def is_restricted(engine: Engine) -> bool:
    """Whether something is hidden from the engine's reader."""
    return access_of(engine) is not None


def hides_rows(engine: Engine) -> bool:
    """Whether some requests are hidden from the engine's reader."""
    access = access_of(engine)
    return access is not None and access.limits_rows
