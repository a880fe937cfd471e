"""The store's errors."""
# ruff: noqa: N818 -- names such as StoreBusy state the condition; only the base class ends with
# Error


class StoreError(Exception):
    """The store cannot do what the caller requested. The message states what is allowed."""


class DatabaseMissing(StoreError):
    """There is no database to read."""


class StoreBusy(StoreError):
    """The writer's queue is full. Submit the rows again later."""


class StoreUnavailable(StoreError):
    """The database cannot be used now, for example because the disk is full. Try again later."""


class LeaseLost(StoreError):
    """A different collector has taken the lease, or this process has given it up. Nothing was
    committed."""


class RowRefused(StoreError, ValueError):
    """The database cannot store a row. A retry will fail again."""


class NotQuick(StoreError):
    """Columns cannot be read through Arrow. Use the slower query."""
