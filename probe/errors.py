"""The prober's errors."""

from typing import Final

MAX_ERROR_CHARS: Final = 240
"""Maximum length of a failure that is printed or sent."""


class PlanError(Exception):
    """The file of probes cannot be used. The message contains no API key."""


class ProbeFailure(Exception):  # noqa: N818 -- the result of a probe, not a defect of the prober
    """A probe failed. `error_type` is one word, such as `dns` or `truncated`.

    The sentence may contain a text of any length from the server, with an API key. `Prober` removes
    the key and shortens the sentence.
    """

    def __init__(self, error_type: str, sentence: str) -> None:
        super().__init__(sentence)
        self.error_type = error_type
