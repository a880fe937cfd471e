"""The error for an invalid price file."""


class PriceError(Exception):
    """A price file is invalid. The message states how to correct it."""
