"""A request as Tailspan stores it: what it waited for, how it ended, under which labels.

Unknown is None, never 0 or NaN. Times are seconds unless the name has another unit.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, Any

from tailspan_vllm import names

from telemetry.fields import (
    CONFIG,
    HEADER,
    HTTP,
    INSTANTS,
    INSTRUMENTATION,
    LEDGER,
    SCHEDULER,
    STATE,
    STATS,
    attribute,
    column,
)


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
    """Who reported a request, or an engine's state."""

    INSTRUMENTATION = "instrumentation"
    SIMULATOR = "simulator"
    NATIVE = "native"
    """The native spans of an engine: vLLM's, SGLang's."""
    CLIENT = "client"
    """The client: an application with an instrumented OpenAI client."""
    SCRAPE = "scrape"
    """An engine's own /metrics, which reports no single request."""


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
    """By its tokens, weighted, because its steps are unknown."""


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
"""The latencies with percentiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimeline:
    """One request, from received to delivered.

    `trace_id` and `span_id` (hex) identify the row; the phases sum to `e2e_s`, and the parts
    of queue, prefill and decode to those, where they are known.
    """

    trace_id: Annotated[str, column("text", "The span's trace, in hex.", "the span")]
    span_id: Annotated[str, column("text", "The span itself, in hex.", "the span")]
    request_id: Annotated[
        str | None, attribute(names.RESPONSE_ID, "text", "The id in the answer.", STATE)
    ]
    received_unix_ns: Annotated[
        int, column("ns", "When the request was received.", "the span's start")
    ]
    e2e_s: Annotated[
        float, column("s", "received → delivered.", "the span's start and end", rolled_up=True)
    ]
    outcome: Annotated[
        Outcome,
        attribute(
            names.OUTCOME,
            "text",
            "`stop`, `length`, `abort` (the client left), `error`, or `rejected` (refused before"
            " the engine); `stop` for any complete answer if `tailspan.basis` is `edge`. A span"
            " with this attribute is a request.",
            STATE,
        ),
    ]
    source: Annotated[
        Source,
        column(
            "text",
            "Who reported it: `instrumentation`, `simulator`, `native`, `client` or `scrape`.",
            "the way it came",
        ),
    ]
    basis: Annotated[
        Basis,
        attribute(
            names.BASIS,
            "text",
            "`http`: received and delivered were measured at the HTTP edge. `engine`: they are"
            " the first and last times at which the front end processed the request. `edge`: only"
            " the HTTP edge was measured, because the hooks do not fit this vLLM.",
            INSTRUMENTATION,
        ),
    ]
    frontend_s: Annotated[
        float | None,
        attribute(
            names.FRONTEND,
            "s",
            "received → queued: parsing, chat template, tokenisation.",
            INSTANTS,
            rolled_up=True,
        ),
    ] = None
    handoff_s: Annotated[
        float | None,
        attribute(
            names.HANDOFF,
            "s",
            "Part of the front end: handed to the engine → recorded by it, which happens between"
            " two steps; a long step or a pause of the engine delays a request here.",
            STATS,
        ),
    ] = None
    queue_s: Annotated[
        float | None,
        attribute(names.QUEUE, "s", "queued → first scheduled.", INSTANTS, rolled_up=True),
    ] = None
    prefill_s: Annotated[
        float | None,
        attribute(names.PREFILL, "s", "first scheduled → first token.", INSTANTS, rolled_up=True),
    ] = None
    decode_s: Annotated[
        float | None,
        attribute(names.DECODE, "s", "first token → last token.", INSTANTS, rolled_up=True),
    ] = None
    delivery_s: Annotated[
        float | None,
        attribute(
            names.DELIVERY,
            "s",
            "last token → delivered: detokenisation, writing to the client.",
            INSTANTS,
            rolled_up=True,
        ),
    ] = None
    queue_seats_s: Annotated[
        float | None,
        attribute(
            names.QUEUE_PARTS[0],
            "s",
            "Part of queue: the batch had `max_num_seqs` requests.",
            LEDGER,
        ),
    ] = None
    queue_kv_s: Annotated[
        float | None,
        attribute(
            names.QUEUE_PARTS[1],
            "s",
            "Part of queue: there were not enough free KV-cache blocks.",
            LEDGER,
        ),
    ] = None
    queue_budget_s: Annotated[
        float | None,
        attribute(
            names.QUEUE_PARTS[2],
            "s",
            "Part of queue: other requests used up the step's token budget.",
            LEDGER,
        ),
    ] = None
    queue_held_s: Annotated[
        float | None,
        attribute(
            names.QUEUE_PARTS[3],
            "s",
            "Part of queue: the request was not eligible: its adapter, its cache or its grammar"
            " was not ready, or the engine was paused.",
            LEDGER,
        ),
    ] = None
    queue_step_s: Annotated[
        float | None,
        attribute(
            names.QUEUE_PARTS[4],
            "s",
            "Part of queue: none of these; it waited for the current step to end.",
            LEDGER,
        ),
    ] = None
    prefill_own_s: Annotated[
        float | None,
        attribute(
            names.PREFILL_PARTS[0],
            "s",
            "Part of prefill: what its steps would have taken for this request alone.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    prefill_others_prefill_s: Annotated[
        float | None,
        attribute(
            names.PREFILL_PARTS[1],
            "s",
            "Part of prefill: what prefills of other requests added to its steps.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    prefill_others_decode_s: Annotated[
        float | None,
        attribute(
            names.PREFILL_PARTS[2],
            "s",
            "Part of prefill: what decodes of other requests added to its steps.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    prefill_preempted_s: Annotated[
        float | None,
        attribute(
            names.PREFILL_PARTS[3],
            "s",
            "Part of prefill: evicted, waiting to resume, and recomputing what was lost.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    prefill_stall_s: Annotated[
        float | None,
        attribute(
            names.PREFILL_PARTS[4],
            "s",
            "Part of prefill: step time that no scheduled work explains.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    decode_own_s: Annotated[
        float | None,
        attribute(
            names.DECODE_PARTS[0],
            "s",
            "Part of decode: what its steps would have taken for this request alone.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    decode_others_prefill_s: Annotated[
        float | None,
        attribute(
            names.DECODE_PARTS[1],
            "s",
            "Part of decode: what prefills of other requests added to its steps.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    decode_others_decode_s: Annotated[
        float | None,
        attribute(
            names.DECODE_PARTS[2],
            "s",
            "Part of decode: what decodes of other requests added to its steps.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    decode_preempted_s: Annotated[
        float | None,
        attribute(
            names.DECODE_PARTS[3],
            "s",
            "Part of decode: evicted, waiting to resume, and recomputing what was lost.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    decode_stall_s: Annotated[
        float | None,
        attribute(
            names.DECODE_PARTS[4],
            "s",
            "Part of decode: step time that no scheduled work explains.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    ttft_s: Annotated[
        float | None,
        attribute(
            names.TTFT,
            "s",
            "received → first byte of the answer, or first token without an HTTP edge. An answer"
            " that is not streamed has its first byte at its end; one without a token has no"
            " TTFT.",
            INSTANTS,
            rolled_up=True,
        ),
    ] = None
    itl_max_s: Annotated[
        float | None,
        attribute(
            names.ITL_MAX,
            "s",
            "The longest time between two tokens; absent for fewer than two tokens.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    others_prefill_tokens_max: Annotated[
        int | None,
        attribute(
            names.OTHERS_PREFILL_TOKENS_MAX,
            "{token}",
            "The maximum of other requests' prompt tokens computed in one of its steps.",
            LEDGER,
        ),
    ] = None
    operation: Annotated[
        str | None,
        attribute(
            names.OPERATION_NAME,
            "text",
            "`chat`, `text_completion`, `embeddings` or `generate_content`.",
            "request path",
        ),
    ] = None
    model: Annotated[
        str | None,
        attribute(
            names.REQUEST_MODEL,
            "text",
            "The name under which the model is served. Absent if the client asked for a model"
            " that is not served (status 404), because a client's text must not become a label.",
            CONFIG,
        ),
    ] = None
    lora: Annotated[str | None, attribute(names.LORA, "text", "The requested adapter.", STATE)] = (
        None
    )
    route: Annotated[
        str | None, attribute(names.HTTP_ROUTE, "text", "The route's template.", HTTP)
    ] = None
    tenant: Annotated[
        str | None,
        attribute(
            names.TENANT,
            "text",
            "The tenant, from the request header that `TAILSPAN_TENANT_HEADER` names.",
            HEADER,
        ),
    ] = None
    region: Annotated[str | None, column("text", "The region.", "resource `cloud.region`")] = None
    replica: Annotated[
        str | None, column("text", "The replica.", "resource `service.instance.id`")
    ] = None
    engine: Annotated[
        int | None,
        attribute(
            names.ENGINE,
            "integer",
            "Index of the engine; absent if the front end serves several and the ledger did not"
            " report the request.",
            "step ledger, stat logger",
        ),
    ] = None
    config: Annotated[
        str | None,
        attribute(
            names.CONFIG,
            "text",
            "Fingerprint of the engine arguments that matter to latency.",
            CONFIG,
        ),
    ] = None
    streamed: Annotated[
        bool | None,
        attribute(names.STREAMED, "boolean", "Whether the answer was an event stream.", HTTP),
    ] = None
    http_status: Annotated[
        int | None,
        attribute(
            names.HTTP_STATUS_CODE, "integer", "Status of the answer; absent if none began.", HTTP
        ),
    ] = None
    error_type: Annotated[
        str | None,
        attribute(
            names.ERROR_TYPE,
            "text",
            "The status or the limit, such as `max_num_queued_reqs`, for which the request was"
            " refused before the engine; `engine_silent` if the engine did not report the"
            " request's end.",
            HTTP,
        ),
    ] = None
    prompt_tokens: Annotated[
        int | None,
        attribute(names.INPUT_TOKENS, "{token}", "Tokens of the prompt.", STATE, rolled_up=True),
    ] = None
    cached_tokens: Annotated[
        int | None,
        attribute(
            names.CACHE_READ_INPUT_TOKENS,
            "{token}",
            "Prompt tokens found in a prefix cache.",
            STATE,
            rolled_up=True,
        ),
    ] = None
    external_cached_tokens: Annotated[
        int | None,
        attribute(
            names.EXTERNAL_CACHED_TOKENS,
            "{token}",
            "Prompt tokens that a KV connector loaded from outside the engine. The other cached"
            " tokens were in the engine's own cache.",
            LEDGER,
        ),
    ] = None
    output_tokens: Annotated[
        int | None,
        attribute(
            names.OUTPUT_TOKENS,
            "{token}",
            "Tokens generated, also for a partial answer.",
            STATS,
            rolled_up=True,
        ),
    ] = None
    billed_s: Annotated[
        float | None,
        attribute(
            names.BILLED,
            "s",
            "Engine time for its work. The shares of all requests in a step sum to the step. The"
            " request's cost is what all GPUs of the engine cost for this time.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    wasted_s: Annotated[
        float | None,
        attribute(
            names.WASTED,
            "s",
            "Engine time for work that a preemption had discarded and that was computed again.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    preemptions: Annotated[
        int | None,
        attribute(
            names.PREEMPTIONS,
            "{preemption}",
            "Times it was evicted.",
            "vLLM's engine events",
            rolled_up=True,
        ),
    ] = None
    waiting_at_arrival: Annotated[
        int | None,
        attribute(
            names.WAITING_AT_ARRIVAL,
            "{request}",
            "Requests waiting when it arrived, as of the last step. This and the next two are"
            " absent if the front end serves several engines.",
            SCHEDULER,
        ),
    ] = None
    running_at_arrival: Annotated[
        int | None,
        attribute(names.RUNNING_AT_ARRIVAL, "{request}", "Requests in the batch then.", SCHEDULER),
    ] = None
    kv_usage_at_arrival: Annotated[
        float | None,
        attribute(
            names.KV_USAGE_AT_ARRIVAL, "1", "Share of KV-cache blocks in use then.", SCHEDULER
        ),
    ] = None
    clock_ahead_s: Annotated[
        float | None,
        column(
            "s",
            "By how much its instants were set back, because they were ahead of their arrival:"
            " the sender's clock is fast. Absent if it is not.",
            "collector",
        ),
    ] = None
    reported_in_flight_s: Annotated[
        float | None,
        attribute(
            names.REPORTED_IN_FLIGHT,
            "s",
            "Age of the request when it was last reported in flight; absent if it never was.",
            HTTP,
        ),
    ] = None
    cost_usd: Annotated[
        float | None,
        column(
            "USD",
            "What the request cost: its engine's price for the time that it is billed.",
            "price list",
            rolled_up=True,
        ),
    ] = None
    priced_by: Annotated[
        PricedBy | None,
        column(
            "text",
            "How its cost was found: `ledger`, by its share of each step, or `tokens`, by its"
            " tokens, weighted, where no step is reported.",
            "collector",
        ),
    ] = None

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
