"""The store's errors. A caller handles each subclass of `StoreError` in a different way."""
# ruff: noqa: N818 -- StoreBusy names the condition; the root is already named an error


class StoreError(Exception):
    """The store cannot be used as requested; the message gives the reason and what is allowed."""


class DatabaseMissing(StoreError):
    """There is no database to read."""


class StoreBusy(StoreError):
    """The writer's queue is full: send again later."""


class StoreUnavailable(StoreError):
    """The database cannot be used at the moment (locked, full, read-only): try again later."""


class RowRefused(StoreError, ValueError):
    """A row that the database cannot store; sending it again will not help."""


class NotQuick(StoreError):
    """Columns cannot be read through Arrow; use the slower query."""
