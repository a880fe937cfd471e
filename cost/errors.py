"""Defines the error for an invalid price file."""


class PriceError(Exception):
    """A price file is invalid or cannot be read. The message states how to correct the file."""
