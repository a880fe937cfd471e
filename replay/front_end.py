"""The API server's process, which does one thing at a time.

Pure. Tokenising delays the requests behind it, and a token is written when the process is free.
"""

from bisect import bisect_right
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndModel:
    """How long the process takes for a request. The defaults are those of the simulator."""

    read_s: float = 0.0003
    """Reading and parsing the HTTP request; others do not wait for it."""
    template_s: float = 0.0008
    """Applying the chat template, and handing the request to the engine."""
    prompt_token_s: float = 0.6e-6
    """Tokenising; a fast tokenizer processes one to two million tokens per second."""
    running_s: float = 0.0
    """The same for each request that runs when this one is received: their tokens are written by
    the same process."""
    first_byte_s: float = 0.0004
    """Detokenising and writing the first event."""
    first_byte_sequence_s: float = 0.0
    """The same for each sequence in the step that made the token."""
    flush_s: float = 0.0012
    """Detokenising and writing the last event, and closing the stream."""
    flush_sequence_s: float = 0.0
    """The same for each sequence in the step that made the token."""
    pace: float = 1.0
    """How much longer everything but reading takes than on a core of its own."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not 0 <= value < float("inf"):
                raise ValueError(f"{each.name}: {value}; allowed: 0 or more, finite")

    def request_s(self, prompt_tokens: float, running: int = 0) -> float:
        """Duration of templating and tokenising a prompt."""
        return self.template_s + self.prompt_token_s * prompt_tokens + self.running_s * running

    def first_s(self, sequences: int = 0) -> float:
        """Duration of writing the first token of a step with this many sequences."""
        return self.first_byte_s + self.first_byte_sequence_s * sequences

    def last_s(self, sequences: int = 0) -> float:
        """Duration of writing the last token of a step with this many sequences."""
        return self.flush_s + self.flush_sequence_s * sequences


TOKEN_S = 20e-6
"""Detokenising and writing a token in between; negligible for others, but it adds up."""

_KEPT = 4096


class FrontEnd:
    """One process that works in order of time."""

    def __init__(self, pace: float = 1.0) -> None:
        self.pace = pace
        """How much longer everything takes than on a core of its own."""
        self.busy_s = 0.0
        self._comings: list[float] = []
        self._ends: list[float] = []

    def take(self, at: float, work_s: float) -> float:
        """Process work that arrives at `at`, after earlier work; return when it is done."""
        start = max(at, self._ends[-1]) if self._ends else at
        end = start + work_s * self.pace
        self.busy_s += end - start
        self._comings.append(at)
        self._ends.append(end)
        if len(self._ends) > 2 * _KEPT:
            del self._comings[:_KEPT], self._ends[:_KEPT]
        return end

    def write(self, at: float, work_s: float) -> float:
        """Return when a token produced at `at` is written: after earlier work."""
        place = bisect_right(self._comings, at) - 1
        free = max(at, self._ends[place]) if place >= 0 else at
        return free + work_s * self.pace
