"""The API server's process, which does one thing at a time.

Pure. Tokenising delays the requests behind it, and a token is written when the process is free.
"""

from bisect import bisect_right

READ_S = 0.0003
"""Reading and parsing the HTTP request."""
_TEMPLATE_S = 0.0008
_TOKENISE_TOKEN_S = 0.6e-6
"""A fast tokenizer processes one to two million tokens per second."""
FIRST_BYTE_S = 0.0004
"""Detokenising and writing the first event."""
FLUSH_S = 0.0012
"""Detokenising and writing the last event, and closing the stream."""
TOKEN_S = 20e-6
"""Detokenising and writing a token in between; negligible for others, but it adds up."""

_KEPT = 4096


def request_s(prompt_tokens: float) -> float:
    """Duration of templating and tokenising a prompt."""
    return _TEMPLATE_S + _TOKENISE_TOKEN_S * prompt_tokens


class FrontEnd:
    """One process that works in order of time."""

    def __init__(self) -> None:
        self.pace = 1.0
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
