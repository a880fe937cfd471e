"""The error for an unusable price file."""


class PriceError(Exception):
    """A price file cannot be used; the message names file, key, value and what is allowed."""
