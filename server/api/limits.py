"""Limits of the API, so that its questions do not delay the receipt of telemetry."""

from dataclasses import dataclass
from typing import Final

PREFIX: Final = "/api/"


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """Limits on questions."""

    questions: int = 2
    """Maximum number of questions that are computed at the same time, each in its own process."""
    waiting: int = 6
    """Maximum number of questions that wait for a process, in addition to `questions`. `questions`
    + `waiting` is half of the connections that one address may have to this port, so that a
    connection is always free for /metrics."""
    seconds: float = 60.0
    """Maximum time for a question, including the wait for a process. An explanation by replay takes
    at most 17 s (docs/benchmarks.md#shares-by-replay). A prediction for 200,000 requests takes two
    minutes, so it needs a higher limit."""
    query_bytes: int = 4_096
    idle_s: float = 300.0
    """Seconds after which an idle process is ended to free its memory."""
