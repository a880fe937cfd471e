"""Defines the error for an invalid price file."""


class PriceError(Exception):
    """A price file is invalid or cannot be read. The message contains the file, the key, the value
    and the allowed values."""
