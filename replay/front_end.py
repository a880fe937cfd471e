"""Model the API server's process, which handles requests one after another. Pure."""

from bisect import bisect_right
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndModel:
    """The durations of the front end's work for a request. The simulator uses the default
    values."""

    read_s: float = 0.0003
    """Seconds to read and parse the HTTP request. Other requests do not wait for this work."""
    template_s: float = 0.0008
    """Seconds to apply the chat template and pass the request to the engine."""
    prompt_token_s: float = 0.6e-6
    """Seconds to tokenise one prompt token."""
    running_s: float = 0.0
    """Additional seconds to receive a request, for each running request. The process also writes
    the running requests' tokens."""
    first_byte_s: float = 0.0004
    """Seconds to detokenise and write the first event."""
    first_byte_sequence_s: float = 0.0
    """Additional seconds to write the first event, for each sequence in the step that produced the
    first token."""
    flush_s: float = 0.0012
    """Seconds to detokenise and write the last event, and to close the stream."""
    flush_sequence_s: float = 0.0
    """Additional seconds to write the last event, for each sequence in the step that produced the
    last token."""
    pace: float = 1.0
    """Factor for all durations except `read_s`. It exceeds 1 if the process shares its CPU core."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not 0 <= value < float("inf"):
                raise ValueError(f"{each.name}: {value}; allowed: 0 or more, finite")

    def request_s(self, prompt_tokens: float, running: int = 0) -> float:
        """Return the seconds to apply the chat template and tokenise the prompt."""
        return self.template_s + self.prompt_token_s * prompt_tokens + self.running_s * running

    def first_s(self, sequences: int = 0) -> float:
        """Return the seconds to write the first token, after a step with this many sequences."""
        return self.first_byte_s + self.first_byte_sequence_s * sequences

    def last_s(self, sequences: int = 0) -> float:
        """Return the seconds to write the last token, after a step with this many sequences."""
        return self.flush_s + self.flush_sequence_s * sequences


TOKEN_S = 20e-6
"""Seconds to write a token that is neither first nor last. Other requests do not wait for this
work, but it counts as busy time."""

_KEPT = 4096


class ReplayFrontEnd:
    """The API server's process, which does its work in order of arrival."""

    def __init__(self, pace: float = 1.0) -> None:
        self.pace = pace
        """Factor for the durations of all work."""
        self.busy_s = 0.0
        self._comings: list[float] = []
        self._ends: list[float] = []

    def take(self, at: float, work_s: float) -> float:
        """Add work that arrives at the time `at`. The work is done after all earlier work. Return
        the time of its end."""
        start = max(at, self._ends[-1]) if self._ends else at
        end = start + work_s * self.pace
        self.busy_s += end - start
        self._comings.append(at)
        self._ends.append(end)
        if len(self._ends) > 2 * _KEPT:
            del self._comings[:_KEPT], self._ends[:_KEPT]
        return end

    def write(self, at: float, work_s: float) -> float:
        """Return the time at which a token has been written, after all earlier work. The token was
        produced at the time `at`."""
        place = bisect_right(self._comings, at) - 1
        free = max(at, self._ends[place]) if place >= 0 else at
        return free + work_s * self.pace
