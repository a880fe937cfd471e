"""The prober's errors. Their messages contain no API key."""


class PlanError(Exception):
    """The file of probes cannot be used."""


class ProbeFailure(Exception):  # noqa: N818 -- the result of a probe, not a defect of the prober
    """A probe failed. `error_type` is one word, such as `dns` or `truncated`."""

    def __init__(self, error_type: str, sentence: str) -> None:
        super().__init__(sentence)
        self.error_type = error_type
