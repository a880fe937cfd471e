"""What is known of one request when it has ended: the wire's own noun.

`RequestRecord` is filled by the hooks of a real server and by the simulator alike, and
`spans.py` turns it into an OpenTelemetry span, so the two cannot drift apart.

One clock per interval: every instant is a reading of one monotonic clock, in seconds.
`wall_offset_ns` (wall clock minus that monotonic clock, taken once per request) places
them on the calendar; no duration is ever taken across the two.
"""

from dataclasses import dataclass, field
from typing import Literal

from tailspan_vllm.request.parts import Parts, QueueParts

Outcome = Literal["stop", "length", "abort", "error", "rejected"]
Basis = Literal["http", "engine", "edge"]
"""`http`: received and delivered were seen at the HTTP edge. `engine`: the HTTP layer was
unseen, so received = arrived and delivered = the front end's last look at the request. `edge`:
only the HTTP edge was seen, this vLLM's inside being unknown to us; how an answer that was
given in full ended is then not known either, and told as `stop`."""


@dataclass(slots=True)
class RequestRecord:
    """One request, finished or refused. Instants in monotonic seconds; None = not reached."""

    received: float
    delivered: float
    wall_offset_ns: int
    outcome: Outcome
    basis: Basis
    operation: str = "chat"
    arrived: float | None = None
    handed: float | None = None
    """When the front end handed it to the engine, which notes it (`queued`) between two steps."""
    queued: float | None = None
    scheduled: float | None = None
    first_token: float | None = None
    first_byte: float | None = None
    last_token: float | None = None
    preempted_at: list[float] = field(default_factory=list)
    resumed_at: list[float] = field(default_factory=list)
    request_id: str | None = None
    engine_request_id: str | None = None
    """The engine's own id, by which its account is joined; it does not leave the process."""
    awaits_account: bool = False
    """Whether the engine may have something to tell of it; likewise."""
    left_unseen: bool = False
    """Its client left before the front end saw anything of it in the engine: how far it had come
    by then is in its account."""
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
    external_cached_tokens: int | None = None
    output_tokens: int | None = None
    preemptions: int | None = None
    itl_max_s: float | None = None
    others_prefill_tokens_max: int | None = None
    billed_s: float | None = None
    wasted_s: float | None = None
    queue_parts: QueueParts | None = None
    prefill_parts: Parts | None = None
    decode_parts: Parts | None = None
    waiting_at_arrival: int | None = None
    running_at_arrival: int | None = None
    kv_usage_at_arrival: float | None = None
    reported_in_flight_s: float | None = None
    span_id: int | None = None
    trace_id: int | None = None
    parent_span_id: int | None = None
    trace_flags: int = 1
