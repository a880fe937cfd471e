"""The store's errors for its callers in Tailspan. Users see those of `telemetry.store_errors`."""
# ruff: noqa: N818 -- names such as StoreBusy state the condition

from telemetry.store_errors import StoreError


class StoreBusy(StoreError):
    """The writer's queue is full. Submit the rows again later."""


class LeaseLost(StoreError):
    """A different collector has taken the lease, or this process has given it up. Nothing was
    committed."""


class RowRefused(StoreError, ValueError):
    """The database cannot store a row. A retry will fail again."""


class NotQuick(StoreError):
    """Columns cannot be read through Arrow. Use the slower query."""
