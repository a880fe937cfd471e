"""Limits of the API, which protect the receipt of telemetry."""

from dataclasses import dataclass
from typing import Final

PREFIX: Final = "/api/"


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """Limits on questions."""

    questions: int = 2
    """Questions computed at the same time, each in its own process."""
    waiting: int = 6
    """Questions that wait for a process. `questions` + `waiting` is half of the connections of one
    address, so a connection stays free for /metrics."""
    seconds: float = 60.0
    """Time limit of a question in seconds, with the wait. An explanation by replay takes up to 17 s
    (docs/benchmarks.md#shares-by-replay), a prediction for 200,000 requests two minutes."""
    query_bytes: int = 4_096
    idle_s: float = 300.0
    """Seconds until an idle process is ended."""
