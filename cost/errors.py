"""Defines the error for an invalid price file."""


class PriceError(Exception):
    """A price file cannot be used. The message contains the file, the key, the value and the
    allowed values."""
