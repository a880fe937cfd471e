"""A question about what came last, for who looks whether all is well."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Engine

_Found = TypeVar("_Found")


def of_the_newest(url: str | None, ask: Callable[[Engine, int], _Found]) -> _Found | None:
    """The answer of the database, asked with the newest instant that it knows, in unix ns.

    Args:
        url: a SQLAlchemy URL; None for the default.
        ask: the question.

    Returns: None where it knows of nothing, or cannot be asked: another check says so.
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
