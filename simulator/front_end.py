"""The API server's process: what it does is done one after the other.

Pure. Tokenising delays those behind it, and a token that comes meanwhile is written when
the process has time for it.
"""

from bisect import bisect_right

READ_S = 0.0003
"""Reading and parsing the HTTP request."""
_TEMPLATE_S = 0.0008
_TOKENISE_TOKEN_S = 0.6e-6
"""A fast tokenizer makes between one and two million tokens a second."""
FIRST_BYTE_S = 0.0004
"""Detokenising and writing the first event."""
FLUSH_S = 0.0012
"""The same for the last, and closing the stream."""
TOKEN_S = 20e-6
"""Detokenising and writing a token in between: it delays nobody to speak of, and adds up."""

_KEPT = 4096


def request_s(prompt_tokens: float) -> float:
    """Template and tokenisation of a prompt."""
    return _TEMPLATE_S + _TOKENISE_TOKEN_S * prompt_tokens


class FrontEnd:
    """One process that takes work in the order of time."""

    def __init__(self) -> None:
        self.pace = 1.0
        """How much longer everything takes than on a core of its own."""
        self.busy_s = 0.0
        self._comings: list[float] = []
        self._ends: list[float] = []

    def take(self, at: float, work_s: float) -> float:
        """Work that comes at `at`, not before what came earlier; when it is done."""
        start = max(at, self._ends[-1]) if self._ends else at
        end = start + work_s * self.pace
        self.busy_s += end - start
        self._comings.append(at)
        self._ends.append(end)
        if len(self._ends) > 2 * _KEPT:
            del self._comings[:_KEPT], self._ends[:_KEPT]
        return end

    def write(self, at: float, work_s: float) -> float:
        """When a token that was made at `at` is written: after what had come by then."""
        place = bisect_right(self._comings, at) - 1
        free = max(at, self._ends[place]) if place >= 0 else at
        return free + work_s * self.pace
