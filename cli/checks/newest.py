"""A question about what came last, for who looks whether all is well."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Engine

_Found = TypeVar("_Found")


def of_the_newest(url: str | None, ask: Callable[[Engine, int], _Found]) -> _Found | None:
    """Return the database's answer to a question about its newest instant, in unix ns.

    Args:
        url: a SQLAlchemy URL; None for the default.
        ask: the question.

    Returns: None if it is empty or does not answer, which another check reports.
    """
    from store.database import open_database
    from store.errors import StoreError
    from store.queries import newest_unix_ns

    engine = None
    try:
        engine = open_database(url, create=False)
        newest = newest_unix_ns(engine)
        return None if newest is None else ask(engine, newest)
    except StoreError:
        return None
    finally:
        if engine is not None:
            engine.dispose()
