"""A configuration that does not say what has to be known, or says what is not known here."""


class UnknownShapeError(ValueError):
    """The shape of a model cannot be told; `key` is where its configuration says too little,
    or something that this part knows nothing of."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
