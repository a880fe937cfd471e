"""What can be wrong with prices."""


class PriceError(Exception):
    """A price file cannot be used; the message names file, key, value and what is allowed."""
