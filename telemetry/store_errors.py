"""The errors of the store that users see."""
# ruff: noqa: N818 -- names such as DatabaseMissing state the condition; only the base class ends
# with Error


class StoreError(Exception):
    """The store cannot do what the caller requested. The message states what is allowed."""


class DatabaseMissing(StoreError):
    """There is no database to read."""


class StoreUnavailable(StoreError):
    """The database cannot be used now, for example because the disk is full. Try again later."""


class NotAllowed(StoreError):
    """The reader's role hides the requested data."""
