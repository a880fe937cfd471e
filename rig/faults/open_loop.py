"""Send each request at its planned time, even if earlier requests are still unanswered.

A client that waits for each response would send fewer requests to a slow server, and the server's
queue would stay short.
"""

import http.client
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rig.load import Call, Timed, send

RETRY_S = 0.25
PATIENCE_S = 90.0
"""Seconds for which a client retries while the server is not reachable."""


@dataclass
class TrafficOutcome:
    """The results of one period of traffic."""

    answered: int = 0
    failed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, timed: Timed | None) -> None:
        """Count one result."""
        with self._lock:
            if timed is not None and timed.status == 200:
                self.answered += 1
            else:
                self.failed += 1


def send_on_time(port: int, arrivals: Sequence[tuple[float, Call]]) -> TrafficOutcome:
    """Send each call at its time (seconds from now), and wait for the last response."""
    outcome = TrafficOutcome()
    begun = time.monotonic()
    threads = []
    for at_s, call in arrivals:
        time.sleep(max(0.0, begun + at_s - time.monotonic()))
        thread = threading.Thread(target=_send, args=(port, call, outcome), daemon=True)
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    return outcome


def _send(port: int, call: Call, outcome: TrafficOutcome) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            outcome.note(send(port, call))
        except (OSError, http.client.HTTPException):
            if time.monotonic() < deadline:
                time.sleep(RETRY_S)
                continue
            outcome.note(None)
        return
