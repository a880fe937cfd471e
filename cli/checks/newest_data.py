"""Query the newest data."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Engine

from cli.options.shared import state_url
from telemetry.store_errors import StoreError

_Found = TypeVar("_Found")


def query_newest_data(url: str | None, query: Callable[[Engine, int], _Found]) -> _Found | None:
    """Call `query` with the database and the time of its newest data (unix ns).

    Return None if the database is empty or does not respond. A different check reports such a
    database.
    """
    from analysis.database import opened_to_read
    from analysis.stored_data import stored_data

    try:
        with opened_to_read(url, state_url()) as engine:
            newest = stored_data(engine).newest_unix_ns
            return None if newest is None else query(engine, newest)
    except StoreError:
        return None
