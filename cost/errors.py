"""The error for an unusable price file."""


class PriceError(Exception):
    """A price file cannot be used. The message gives file, key, value and the allowed values."""
