"""A request as Tailspan knows it: what it waited for, how it ended, under which labels.

Unknown is None, never 0 or NaN. Times are seconds unless the name says otherwise.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any


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
    """Who told us: of a request, or of an engine's state."""

    INSTRUMENTATION = "instrumentation"
    SIMULATOR = "simulator"
    NATIVE = "native"
    """The spans that an engine makes by itself: vLLM's, SGLang's."""
    CLIENT = "client"
    """Who asked: an application with an instrumented OpenAI client."""
    SCRAPE = "scrape"
    """An engine's own /metrics, which tells of no single request."""


class Basis(StrEnum):
    """What was seen of a request: HTTP edge and engine, the engine alone, the edge alone, or
    only what the client saw, the network included."""

    HTTP = "http"
    ENGINE = "engine"
    EDGE = "edge"
    CLIENT = "client"


class PricedBy(StrEnum):
    """How a request's cost was found."""

    LEDGER = "ledger"
    """By its share of each of its engine's steps."""
    TOKENS = "tokens"
    """By its tokens, weighted: nobody told of its steps."""


PHASES = ("frontend_s", "queue_s", "prefill_s", "decode_s", "delivery_s")
"""The phases that partition received→delivered, in the order of a request's life."""

PARTS = ("own_s", "others_prefill_s", "others_decode_s", "preempted_s", "stall_s")
"""What prefill and decode consist of, by what the time was spent on: the request's own work,
others' prefills and decodes in the same steps, preemption (evicted, waiting, computing again),
and step time that no scheduled work explains. They lie inside those phases, not beside them."""

QUEUE_PARTS = ("queue_seats_s", "queue_kv_s", "queue_budget_s", "queue_held_s", "queue_step_s")
"""Columns of what stood in the way of a request in the queue, which sum to `queue_s`: the
batch's limit of requests, no free blocks, the step's tokens spent, the request's own standing
(its adapter, cache or grammar not there yet), and nothing but the step under way."""

PREFILL_PARTS = tuple(f"prefill_{part}" for part in PARTS)
"""Columns of the parts of prefill, which sum to it."""

DECODE_PARTS = tuple(f"decode_{part}" for part in PARTS)
"""Columns of the parts of decode, which sum to it."""

LATENCIES = ("ttft_s", "tpot_s", "itl_max_s", "e2e_s", "queue_s")
"""The latencies that percentiles are told of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimeline:
    """One request, from received to delivered.

    `trace_id` and `span_id` (hex) identify the row; the phases sum to `e2e_s`, and the parts
    of queue, prefill and decode to those, where they are known.
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
    handoff_s: float | None = None
    """The last of `frontend_s`: handed to the engine, which notes it between two steps."""
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    delivery_s: float | None = None
    queue_seats_s: float | None = None
    queue_kv_s: float | None = None
    queue_budget_s: float | None = None
    queue_held_s: float | None = None
    queue_step_s: float | None = None
    prefill_own_s: float | None = None
    prefill_others_prefill_s: float | None = None
    prefill_others_decode_s: float | None = None
    prefill_preempted_s: float | None = None
    prefill_stall_s: float | None = None
    decode_own_s: float | None = None
    decode_others_prefill_s: float | None = None
    decode_others_decode_s: float | None = None
    decode_preempted_s: float | None = None
    decode_stall_s: float | None = None
    ttft_s: float | None = None
    itl_max_s: float | None = None
    others_prefill_tokens_max: int | None = None
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
    external_cached_tokens: int | None = None
    output_tokens: int | None = None
    billed_s: float | None = None
    """Its share of its engine's steps, by the work it had in each: what it costs."""
    wasted_s: float | None = None
    """Likewise, for what was computed again because it had been evicted."""
    preemptions: int | None = None
    waiting_at_arrival: int | None = None
    running_at_arrival: int | None = None
    kv_usage_at_arrival: float | None = None
    clock_ahead_s: float | None = None
    """By how much its instants were set back, because they were ahead of their arrival: the
    sender's clock is fast. None where it showed no such thing."""
    reported_in_flight_s: float | None = None
    """How long it had run when it was last reported in flight; None if it never was."""
    cost_usd: float | None = None
    priced_by: PricedBy | None = None

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; undefined for one token or none."""
        return tpot_s(self.decode_s, self.output_tokens)


def tpot_s(decode_s: float | None, output_tokens: int | None) -> float | None:
    """Mean seconds per output token after the first; None where that is undefined."""
    if decode_s is None or output_tokens is None or output_tokens < 2:
        return None
    return decode_s / (output_tokens - 1)


def part_s(
    in_prefill_s: float | None, in_decode_s: float | None, decode_s: float | None
) -> float | None:
    """A part over both phases; a request that never decoded has prefill's alone."""
    if decode_s is None:
        return in_prefill_s
    if in_prefill_s is None or in_decode_s is None:
        return None
    return in_prefill_s + in_decode_s


FIELDS = tuple(field.name for field in fields(RequestTimeline))

_FILLS = tuple(getattr(RequestTimeline, field).__set__ for field in FIELDS)


def request_of_values(values: Iterable[Any]) -> RequestTimeline:
    """A request from the values of all its fields, in their order.

    Past the constructor, which takes twice as long.
    """
    request = object.__new__(RequestTimeline)
    for fill, value in zip(_FILLS, values, strict=True):
        fill(request, value)
    return request
