"""A request that has not ended, as its server last reported it.

A report holds only what is certain while the request runs: who asks for what, how long it has
run, and whether its first byte was sent. The latencies of its final row can only be longer, so a
latency objective that is missed now stays missed.
"""

from dataclasses import dataclass
from typing import Final

from telemetry.requests import Source

REPORTED_FROM_S: Final = 5.0
"""Younger requests are not reported. It is the interval at which ended requests are exported: a
shorter request would be seen no earlier by a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightRequest:
    """One request in flight at `seen_unix_ns`. Unknown is None.

    `trace_id`, `span_id` and `received_unix_ns` are those of the row that follows when it ends.
    """

    span_id: str
    trace_id: str
    received_unix_ns: int
    seen_unix_ns: int
    source: Source
    ttft_s: float | None = None
    """None: no byte of the answer was sent yet."""
    reported_in_flight_s: float | None = None
    """How long it had run at the report before this one; None for the first report."""
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
    """As of a request: by how much its instants were set back."""

    @property
    def age_s(self) -> float:
        """How long it had run when it was seen."""
        return (self.seen_unix_ns - self.received_unix_ns) / 1e9


SELECTED_BY: Final = (
    *("operation", "model", "lora", "route", "tenant", "region", "replica", "config"),
    *("streamed", "source", "prompt_tokens"),
)
"""The fields that have the same value in a report and in the final row. Not `engine`: with several
engines the front end learns at the end which one it was."""
