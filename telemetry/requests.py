"""A request as Tailspan knows it: what it waited for, how it ended, under which labels.

Unknown is None, never 0 or NaN. Times are seconds unless the name says otherwise.
"""

from dataclasses import dataclass, fields
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended. Aborts and errors are outcomes, not gaps."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    REJECTED = "rejected"

    @property
    def answered(self) -> bool:
        """Whether the client got a whole answer."""
        return self in (Outcome.STOP, Outcome.LENGTH)


class Source(StrEnum):
    """Who told us of the request."""

    INSTRUMENTATION = "instrumentation"
    SIMULATOR = "simulator"


class Basis(StrEnum):
    """Where received and delivered were seen."""

    HTTP = "http"
    ENGINE = "engine"


PHASES = ("frontend_s", "queue_s", "prefill_s", "decode_s", "delivery_s")
"""The phases that partition received→delivered, in the order of a request's life."""

PARTS = ("preempted_s", "others_prefill_s", "stall_s")
"""Shares of prefill and decode; inside them, not beside them."""

LATENCIES = ("ttft_s", "tpot_s", "itl_max_s", "e2e_s", "queue_s")
"""The latencies that percentiles are told of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimeline:
    """One request, from received to delivered.

    `trace_id` and `span_id` (hex) identify the row; the phases sum to `e2e_s`.
    """

    trace_id: str
    span_id: str
    request_id: str | None
    received_unix_ns: int
    e2e_s: float
    outcome: Outcome
    source: Source
    basis: Basis
    frontend_s: float | None = None
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    delivery_s: float | None = None
    preempted_s: float | None = None
    others_prefill_s: float | None = None
    stall_s: float | None = None
    ttft_s: float | None = None
    itl_max_s: float | None = None
    operation: str | None = None
    model: str | None = None
    lora: str | None = None
    route: str | None = None
    tenant: str | None = None
    region: str | None = None
    replica: str | None = None
    engine: int | None = None
    config: str | None = None
    streamed: bool | None = None
    http_status: int | None = None
    error_type: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    preemptions: int | None = None
    waiting_at_arrival: int | None = None
    running_at_arrival: int | None = None
    kv_usage_at_arrival: float | None = None
    cost_usd: float | None = None

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; undefined for one token or none."""
        return tpot_s(self.decode_s, self.output_tokens)


def tpot_s(decode_s: float | None, output_tokens: int | None) -> float | None:
    """Mean seconds per output token after the first; None where that is undefined."""
    if decode_s is None or output_tokens is None or output_tokens < 2:
        return None
    return decode_s / (output_tokens - 1)


FIELDS = tuple(field.name for field in fields(RequestTimeline))
