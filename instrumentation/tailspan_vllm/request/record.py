"""The record of one request that has ended, for `otlp/request_span.py`.

Timestamps are seconds of one monotonic clock. `wall_offset_ns` is the wall clock minus the
monotonic clock, read once per request.
"""

from dataclasses import dataclass, field
from typing import Literal

from tailspan_vllm.request.parts import HeldParts, KvLoad, RequestPhaseParts, RequestQueueParts

Outcome = Literal["stop", "length", "abort", "error", "rejected"]
Basis = Literal["http", "engine", "edge"]
"""The layers that measured the request (docs/glossary.md).

With `edge`, a complete response is reported as `stop`. If the basis is `engine` and `arrived` is
None, only the engine core observed the request. Then `received` equals `queued`, and `delivered` is
the time of the last token.
"""


@dataclass(slots=True)
class RequestRecord:
    """One request that has ended. A timestamp is None if its event did not occur."""

    received: float
    delivered: float
    wall_offset_ns: int
    outcome: Outcome
    basis: Basis
    operation: str = "chat"
    arrived: float | None = None
    handed: float | None = None
    """Time at which the front end sent the request to the engine."""
    queued: float | None = None
    scheduled: float | None = None
    first_token: float | None = None
    first_byte: float | None = None
    first_content: float | None = None
    last_token: float | None = None
    preempted_at: list[float] = field(default_factory=list)
    resumed_at: list[float] = field(default_factory=list)
    request_id: str | None = None
    engine_request_id: str | None = None
    """The request id in the engine core's account (the step ledger's result for the request). It is
    not exported."""
    awaits_account: bool = False
    """True if the export waits for the request's account. It is not exported."""
    left_early: bool = False
    """True if the client disconnected before the engine's first output. Then only the account has
    the engine's timestamps."""
    model: str | None = None
    lora: str | None = None
    route: str | None = None
    tenant: str | None = None
    config: str | None = None
    engine: int | None = None
    streamed: bool | None = None
    http_status: int | None = None
    error_type: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    external_cached_tokens: int | None = None
    kv_load: KvLoad | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    tool_call_tokens: int | None = None
    content_tokens: int | None = None
    prefix_ladder: str | None = None
    preemptions: int | None = None
    itl_max_s: float | None = None
    others_prefill_tokens_max: int | None = None
    billed_s: float | None = None
    wasted_s: float | None = None
    queue_parts: RequestQueueParts | None = None
    held_parts: HeldParts | None = None
    prefill_parts: RequestPhaseParts | None = None
    encoder_s: float | None = None
    decode_parts: RequestPhaseParts | None = None
    waiting_at_arrival: int | None = None
    running_at_arrival: int | None = None
    kv_usage_at_arrival: float | None = None
    reported_in_flight_s: float | None = None
    span_id: int | None = None
    trace_id: int | None = None
    parent_span_id: int | None = None
    trace_flags: int = 1
