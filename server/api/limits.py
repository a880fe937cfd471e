"""Limits of the API, which ensure that telemetry is received while questions are answered."""

from dataclasses import dataclass
from typing import Final

PREFIX: Final = "/api/"


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """Limits on questions."""

    questions: int = 2
    """Maximum number of questions that are computed at the same time. Each has its own process."""
    waiting: int = 6
    """Maximum number of questions that wait for a process. `questions` + `waiting` is half of the
    connections that one address may open. So connections stay free for /metrics."""
    seconds: float = 60.0
    """Time limit of a question in seconds, including the wait for a process. An explanation by
    replay takes up to 17 s (docs/benchmarks.md#shares-by-replay). A prediction for 200,000 requests
    takes two minutes."""
    query_bytes: int = 4_096
    idle_s: float = 300.0
    """Seconds until an idle process is ended."""
