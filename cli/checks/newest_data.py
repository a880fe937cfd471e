"""Query the newest data."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Engine

from cli.options.shared import state_url

_Found = TypeVar("_Found")


def query_newest_data(url: str | None, query: Callable[[Engine, int], _Found]) -> _Found | None:
    """Call `query` with the database and the time of its newest data (unix ns).

    Return None if the database is empty or does not respond. A different check reports such a
    database.
    """
    from store.database import open_database
    from store.queries import newest_unix_ns
    from telemetry.store_errors import StoreError

    engine = None
    try:
        engine = open_database(url, state_url(), create=False)
        newest = newest_unix_ns(engine)
        return None if newest is None else query(engine, newest)
    except StoreError:
        return None
    finally:
        if engine is not None:
            engine.dispose()
