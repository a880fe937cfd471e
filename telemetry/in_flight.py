"""A server's newest report of a request that has not ended.

A latency only grows while a request runs. So if a request in flight misses a latency objective, it
also misses the objective when it ends.
"""

from dataclasses import dataclass
from typing import Final

from telemetry.requests import Source

REPORTED_FROM_S: Final = 5.0
"""Minimum age of a reported request, in seconds. It equals the interval at which servers export
rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightRequest:
    """A report of one request in flight at `seen_unix_ns`. The ended request has the same
    `trace_id`, `span_id` and `received_unix_ns`."""

    span_id: str
    trace_id: str
    received_unix_ns: int
    seen_unix_ns: int
    source: Source
    ttft_s: float | None = None
    """The time to the first byte, or None if no byte was sent yet."""
    reported_in_flight_s: float | None = None
    """The age of the request in the previous report, or None in the first report."""
    operation: str | None = None
    model: str | None = None
    lora: str | None = None
    route: str | None = None
    tenant: str | None = None
    region: str | None = None
    replica: str | None = None
    config: str | None = None
    streamed: bool | None = None
    prompt_tokens: int | None = None
    clock_ahead_s: float | None = None
    engine: int | None = None
    """The engine that the front end chose, or None if it is not reported."""

    @property
    def age_s(self) -> float:
        """The age of the request at `seen_unix_ns`."""
        return (self.seen_unix_ns - self.received_unix_ns) / 1e9


SELECTED_BY: Final = (
    *("operation", "model", "lora", "route", "tenant", "region", "replica", "config"),
    *("streamed", "source", "prompt_tokens"),
)
"""Labels that are equal in a report and in the row of the ended request. `engine` is not included,
because some front ends determine it only at the end."""
