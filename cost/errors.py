"""The error for an invalid price file."""


class PriceError(Exception):
    """The message states how to correct the price file."""
