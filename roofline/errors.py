"""The error for a model configuration that is incomplete or not supported."""


class UnknownShapeError(ValueError):
    """The model's shape is unknown.

    The configuration key `key` is missing or not supported."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
