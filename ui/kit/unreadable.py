"""Errors of the store become `Unreadable`."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from telemetry.store_errors import DatabaseMissing, NotAllowed, StoreError


class Unreadable(Exception):  # noqa: N818 -- it names the state of the store
    """The store cannot be read. The message is for the reader."""


@contextmanager
def store_errors() -> Iterator[None]:
    """Convert the store's errors to `Unreadable`, except for DatabaseMissing and NotAllowed."""
    try:
        yield
    except (DatabaseMissing, NotAllowed):
        raise
    except StoreError as error:
        raise Unreadable(str(error)) from error
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or type(error).__name__
        raise Unreadable(f"The database does not respond: {reason}.") from error
