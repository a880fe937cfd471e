"""The retry rules of all OTLP senders: the plugin, the simulator, forwarding, GPU agents.

Source: OTLP specification, "Retryable response codes", "Throttling".
"""

import random
from collections.abc import Callable
from typing import Final

from tailspan_vllm.export.transport import ExportResponse

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
"""Longest pause, as in OpenTelemetry's exporters."""

JITTER: Final = 0.2
"""Random share of each pause, so that servers do not retry at the same time. OpenTelemetry's
exporters have the same limit."""

LONGEST_REQUESTED_PAUSE_S: Final = 300.0
"""Longest pause that a receiver may request. During a longer pause, the queue could overflow."""


class Backoff:
    """Computes the pauses between attempts.

    Args:
        jitter: returns a random factor around 1.
        longest_requested_s: the longest pause that the receiver may request.
    """

    def __init__(
        self,
        jitter: Callable[[], float] | None = None,
        *,
        first_s: float = FIRST_PAUSE_S,
        longest_s: float = LONGEST_PAUSE_S,
        longest_requested_s: float = LONGEST_REQUESTED_PAUSE_S,
    ) -> None:
        self._jitter = jitter or (lambda: random.uniform(1 - JITTER, 1 + JITTER))
        self._first_s = first_s
        self._longest_s = longest_s
        self._longest_requested_s = longest_requested_s
        self._pause_s = first_s
        self._not_before = 0.0

    def due(self, now: float) -> bool:
        """Return whether the pause is over."""
        return now >= self._not_before

    def wait(self, now: float, requested_s: float | None) -> float:
        """Begin a pause and return its seconds: the requested seconds, or twice the previous pause.

        A requested pause of 0 s, such as a Retry-After date in the past, is ignored.
        """
        if not requested_s:
            pause_s = self._pause_s * self._jitter()
            self._pause_s = min(2 * self._pause_s, self._longest_s)
        else:
            pause_s = min(requested_s, self._longest_requested_s)
        self._not_before = now + pause_s
        return pause_s

    def reset(self) -> None:
        """Reset the pause after a message was accepted."""
        self._pause_s, self._not_before = self._first_s, 0.0


def deliver(
    send: Callable[[], ExportResponse],
    backoff: Backoff,
    *,
    clock: Callable[[], float],
    pause: Callable[[float], object],
    last_attempt: Callable[[], bool],
) -> ExportResponse:
    """Send one message until the collector accepts or refuses it, or `last_attempt` returns
    True."""
    while (outcome := send()).retryable and not last_attempt():
        pause(backoff.wait(clock(), outcome.wait_s))
    backoff.reset()
    return outcome
