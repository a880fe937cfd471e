"""The prober's errors. Each message is one sentence, and contains no key."""


class PlanError(Exception):
    """The file of probes cannot be used. The message names the file, the key, the value and what
    is allowed."""


class ProbeFailure(Exception):  # noqa: N818 -- the result of a probe, not a defect of the prober
    """A probe failed.

    Args:
        error_type: a short word for the kind of failure, such as `dns` or `truncated`.
        sentence: what failed.
    """

    def __init__(self, error_type: str, sentence: str) -> None:
        super().__init__(sentence)
        self.error_type = error_type
