"""A stored request: its phases, outcome, labels, tokens and cost.

An unknown value is None, never 0 or NaN.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, Any

from tailspan_vllm import names

from telemetry.fields import (
    CLOCK_AHEAD,
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
    """The result of a request."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    REJECTED = "rejected"

    @property
    def answered(self) -> bool:
        """Whether the client received a complete answer."""
        return self in (Outcome.STOP, Outcome.LENGTH)


class Source(StrEnum):
    """The source of a request or a sample."""

    INSTRUMENTATION = "instrumentation"
    SIMULATOR = "simulator"
    NATIVE = "native"
    """The native spans of vLLM or SGLang."""
    CLIENT = "client"
    """An application with an instrumented OpenAI client."""
    SCRAPE = "scrape"
    """An engine's `/metrics`, which do not report single requests."""


class Basis(StrEnum):
    """The place where a request was measured: the HTTP edge, the engine, both, or the client. Only
    a client's measurement includes the network."""

    HTTP = "http"
    ENGINE = "engine"
    EDGE = "edge"
    CLIENT = "client"


class PricedBy(StrEnum):
    """The method by which the cost of a request was computed."""

    LEDGER = "ledger"
    """The cost was computed from the request's share of each engine step."""
    TOKENS = "tokens"
    """The cost was computed from weighted tokens, because the engine steps are unknown."""


PHASES = ("frontend_s", "queue_s", "prefill_s", "decode_s", "delivery_s")
"""The consecutive phases in order, from received to delivered."""

PARTS = ("own_s", "others_prefill_s", "others_decode_s", "preempted_s", "stall_s")
"""The parts of prefill and of decode:
- the request's own work
- prefills of other requests
- decodes of other requests
- preemption, until the discarded work is computed again
- step time that no scheduled work explains"""

QUEUE_PARTS = ("queue_seats_s", "queue_kv_s", "queue_budget_s", "queue_held_s", "queue_step_s")
"""The parts of `queue_s`. In each part, the request waits for one of these:
- a slot in the batch
- KV-cache blocks
- token budget
- the request's own adapter, cache or grammar
- the end of the current step"""

HELD_PARTS = ("kv_load_s", "grammar_s", "adapter_wait_s")
"""The parts of `queue_held_s` with a known reason: the KV cache or the grammar is not ready, or the
adapter has no slot. The time in which the engine is paused belongs to `queue_held_s` but to none of
its parts."""

PREFILL_PARTS = tuple(f"prefill_{part}" for part in PARTS)

DECODE_PARTS = tuple(f"decode_{part}" for part in PARTS)

LATENCIES = ("ttft_s", "tpot_s", "itl_max_s", "e2e_s", "queue_s")
"""The latencies whose percentiles can be computed from rollups."""

STORED_LATENCIES = (*LATENCIES, "first_content_s")
"""The latencies whose percentiles can be computed from stored requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimeline:
    """One request, from received to delivered, identified by `trace_id` and `span_id`.

    The phases sum to `e2e_s`. The parts of queue, prefill or decode, if known, sum to the phase.
    """

    trace_id: Annotated[str, column("text", "The span's trace id, in hex.", "the span")]
    span_id: Annotated[str, column("text", "The span's id, in hex.", "the span")]
    request_id: Annotated[
        str | None, attribute(names.RESPONSE_ID, "text", "The request id in the response.", STATE)
    ]
    received_unix_ns: Annotated[int, column("ns", "Time of receipt.", "the span's start")]
    e2e_s: Annotated[
        float, column("s", "received → delivered.", "the span's start and end", rolled_up=True)
    ]
    outcome: Annotated[
        Outcome,
        attribute(
            names.OUTCOME,
            "text",
            "`stop`, `length`, `abort` (the client disconnected), `error`, or `rejected` (refused"
            " before the engine). With `tailspan.basis` = `edge`, each complete answer has `stop`."
            " A span with this attribute is a request.",
            STATE,
        ),
    ]
    source: Annotated[
        Source,
        column(
            "text",
            "Source of the report: `instrumentation`, `simulator`, `native` or `client`.",
            "collector",
        ),
    ]
    basis: Annotated[
        Basis,
        attribute(
            names.BASIS,
            "text",
            "What was measured. `http`: the HTTP layer and the engine. `engine`: only the engine;"
            ' "received" and "delivered" are the times at which the front end first and last'
            " processed the request."
            " `edge`: only the HTTP layer, because the hooks do not fit this vLLM.",
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
            "Part of frontend: sent to the engine → recorded by the engine, which happens between"
            " two steps.",
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
            "Part of queue: the batch was full (`max_num_seqs`).",
            LEDGER,
        ),
    ] = None
    queue_kv_s: Annotated[
        float | None,
        attribute(
            names.QUEUE_PARTS[1],
            "s",
            "Part of queue: too few free KV-cache blocks.",
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
            "Part of queue: the request's adapter, cache or grammar was not ready, or the engine"
            " was paused.",
            LEDGER,
        ),
    ] = None
    kv_load_s: Annotated[
        float | None,
        attribute(
            names.HELD_PARTS[0],
            "s",
            "Part of queue_held: the request's KV cache was being loaded from outside the engine."
            " 0 if the connector loads within steps. The parts of queue_held are absent before vLLM"
            " 0.18.",
            LEDGER,
        ),
    ] = None
    grammar_s: Annotated[
        float | None,
        attribute(
            names.HELD_PARTS[1],
            "s",
            "Part of queue_held: the request's grammar for structured output was being compiled.",
            LEDGER,
        ),
    ] = None
    adapter_wait_s: Annotated[
        float | None,
        attribute(
            names.HELD_PARTS[2],
            "s",
            "Part of queue_held: other adapters used all slots of the batch (`max_loras`).",
            LEDGER,
        ),
    ] = None
    queue_step_s: Annotated[
        float | None,
        attribute(
            names.QUEUE_PARTS[4],
            "s",
            "Part of queue: waiting only for the end of the current step.",
            LEDGER,
        ),
    ] = None
    prefill_own_s: Annotated[
        float | None,
        attribute(
            names.PREFILL_PARTS[0],
            "s",
            "Part of prefill: step time that the request needs without other requests.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    prefill_others_prefill_s: Annotated[
        float | None,
        attribute(
            names.PREFILL_PARTS[1],
            "s",
            "Part of prefill: step time added by the prefills of other requests.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    prefill_others_decode_s: Annotated[
        float | None,
        attribute(
            names.PREFILL_PARTS[2],
            "s",
            "Part of prefill: step time added by the decodes of other requests.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    prefill_preempted_s: Annotated[
        float | None,
        attribute(
            names.PREFILL_PARTS[3],
            "s",
            "Part of prefill: from a preemption until the discarded work was computed again.",
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
    encoder_s: Annotated[
        float | None,
        attribute(
            names.ENCODER,
            "s",
            "Part of prefill_own: the encoder of images or audio. Estimated as the step's duration"
            " beyond the step model's prediction, divided by encoded tokens. 0 if all inputs were"
            " cached. Absent without an encoder.",
            LEDGER,
        ),
    ] = None
    decode_own_s: Annotated[
        float | None,
        attribute(
            names.DECODE_PARTS[0],
            "s",
            "Part of decode: step time that the request needs without other requests.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    decode_others_prefill_s: Annotated[
        float | None,
        attribute(
            names.DECODE_PARTS[1],
            "s",
            "Part of decode: step time added by the prefills of other requests.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    decode_others_decode_s: Annotated[
        float | None,
        attribute(
            names.DECODE_PARTS[2],
            "s",
            "Part of decode: step time added by the decodes of other requests.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    decode_preempted_s: Annotated[
        float | None,
        attribute(
            names.DECODE_PARTS[3],
            "s",
            "Part of decode: from a preemption until the discarded work was computed again.",
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
            "received → first byte of the answer, or without an HTTP layer → first token. Without"
            " streaming, the first byte is at the end. Absent for an answer without tokens.",
            INSTANTS,
            rolled_up=True,
        ),
    ] = None
    first_content_s: Annotated[
        float | None,
        attribute(
            names.TTFC,
            "s",
            "received → first content of the response: neither reasoning nor a tool call. Without"
            " streaming, the end. Absent without content.",
            HTTP,
        ),
    ] = None
    itl_max_s: Annotated[
        float | None,
        attribute(
            names.ITL_MAX,
            "s",
            "The longest time between two tokens. Absent for fewer than two, and if the engine ran"
            " a longer step before it read an abort.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    others_prefill_tokens_max: Annotated[
        int | None,
        attribute(
            names.OTHERS_PREFILL_TOKENS_MAX,
            "{token}",
            "Largest number of other requests' prompt tokens in one step of this request. Absent if"
            " `itl_max_s` is absent because of an abort.",
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
            "The name under which the model is served. Absent if the requested model is not served:"
            " text from a client must not become a label.",
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
            "Index of the engine. Absent if the front end has several engines and the ledger did"
            " not report the request.",
            "step ledger, stat logger",
        ),
    ] = None
    config: Annotated[
        str | None,
        attribute(
            names.CONFIG,
            "text",
            "Fingerprint of the engine arguments that affect latency.",
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
            names.HTTP_STATUS_CODE,
            "integer",
            "HTTP status. Absent if no response was sent.",
            HTTP,
        ),
    ] = None
    error_type: Annotated[
        str | None,
        attribute(
            names.ERROR_TYPE,
            "text",
            "Why the request was refused before the engine: the HTTP status, or a limit such as"
            " `max_num_queued_reqs`. `engine_silent` if the engine did not report the end.",
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
            "Prompt tokens found in a prefix cache or loaded by a KV connector. On a decode server,"
            " this is the decode server's own number, even if `usage` of the response contains the"
            " prefill server's number.",
            STATE,
            rolled_up=True,
        ),
    ] = None
    cache_write_tokens: Annotated[
        int | None,
        attribute(
            names.CACHE_WRITE_INPUT_TOKENS,
            "{token}",
            "Prompt tokens computed and written to the engine's prefix cache, in full blocks."
            " Absent before vLLM 0.26, and if no token was generated.",
            STATE,
        ),
    ] = None
    external_cached_tokens: Annotated[
        int | None,
        attribute(
            names.EXTERNAL_CACHED_TOKENS,
            "{token}",
            "Prompt tokens that a KV connector loaded from outside the engine.",
            LEDGER,
        ),
    ] = None
    kv_loaded_bytes: Annotated[
        int | None,
        attribute(
            names.EXTERNAL_CACHED_BYTES,
            "By",
            "Size of the KV cache that a KV connector loaded: tokens times bytes per token, on all"
            " tensor-parallel ranks. Absent with pipeline or context parallelism, and for models"
            " with several kinds of layers.",
            LEDGER,
        ),
    ] = None
    kv_loaded_tier: Annotated[
        str | None,
        attribute(
            names.EXTERNAL_CACHE_TIER,
            "text",
            "The tier that the KV cache was loaded from: `host` (host memory), `p2p` (another"
            " engine), `disk`, or `other`. If it came from several tiers, the value is the tier"
            " that is last in this order. Absent before vLLM 0.32.",
            LEDGER,
        ),
    ] = None
    prefix_ladder: Annotated[
        str | None,
        attribute(
            names.PREFIX_LADDER,
            "text",
            "Keyed digests of a few prefixes of the prompt and the answer. If two requests have the"
            " same digest at a position, their tokens are the same up to this position. Absent"
            " without prefix caching, for less than a block of tokens, and with"
            " `TAILSPAN_PREFIX_KEY=none`.",
            LEDGER,
        ),
    ] = None
    output_tokens: Annotated[
        int | None,
        attribute(
            names.OUTPUT_TOKENS,
            "{token}",
            "Tokens generated, including those of a partial answer.",
            STATS,
            rolled_up=True,
        ),
    ] = None
    reasoning_tokens: Annotated[
        int | None,
        attribute(
            names.REASONING_OUTPUT_TOKENS,
            "{token}",
            "Output tokens that are reasoning. In a stream: until the last chunk of reasoning."
            " Otherwise: vLLM's own count in `usage`.",
            HTTP,
        ),
    ] = None
    tool_call_tokens: Annotated[
        int | None,
        attribute(
            names.TOOL_CALL_TOKENS,
            "{token}",
            "Output tokens of tool calls, including tokens that are not in the response, such as a"
            " tag.",
            HTTP,
        ),
    ] = None
    content_tokens: Annotated[
        int | None,
        attribute(
            names.CONTENT_TOKENS,
            "{token}",
            "Output tokens of content. Reasoning, tool calls and content sum to the output tokens.",
            HTTP,
        ),
    ] = None
    billed_s: Annotated[
        float | None,
        attribute(
            names.BILLED,
            "s",
            "The request's share of its engine steps. The shares sum to each step's duration. The"
            " cost is this time multiplied by the engine's price.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    wasted_s: Annotated[
        float | None,
        attribute(
            names.WASTED,
            "s",
            "Engine time for repeating work that a preemption or a failed KV load discarded.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    preemptions: Annotated[
        int | None,
        attribute(
            names.PREEMPTIONS,
            "{preemption}",
            "Number of times the request was preempted.",
            "vLLM's engine events",
            rolled_up=True,
        ),
    ] = None
    waiting_at_arrival: Annotated[
        int | None,
        attribute(
            names.WAITING_AT_ARRIVAL,
            "{request}",
            "Waiting requests after the last step before arrival; with several API servers, up to"
            " 2 s earlier.",
            SCHEDULER,
        ),
    ] = None
    running_at_arrival: Annotated[
        int | None,
        attribute(
            names.RUNNING_AT_ARRIVAL,
            "{request}",
            "Requests in the batch after the last step before arrival; with several API servers, up"
            " to 2 s earlier.",
            SCHEDULER,
        ),
    ] = None
    kv_usage_at_arrival: Annotated[
        float | None,
        attribute(
            names.KV_USAGE_AT_ARRIVAL,
            "1",
            "Share of KV-cache blocks in use after the last step before arrival; with several API"
            " servers, up to 2 s earlier.",
            SCHEDULER,
        ),
    ] = None
    clock_ahead_s: Annotated[float | None, CLOCK_AHEAD] = None
    reported_in_flight_s: Annotated[
        float | None,
        attribute(
            names.REPORTED_IN_FLIGHT,
            "s",
            "Age of the request in its last report in flight. Absent if it was never reported.",
            HTTP,
        ),
    ] = None
    cost_usd: Annotated[
        float | None,
        column(
            "USD",
            "Cost of the request: the engine's price for the billed time.",
            "price list",
            rolled_up=True,
        ),
    ] = None
    priced_by: Annotated[
        PricedBy | None,
        column(
            "text",
            "How the cost was computed: `ledger` (from the share of each engine step), or `tokens`"
            " (from weighted tokens, because no steps are reported).",
            "collector",
        ),
    ] = None

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds per output token after the first. None if there are fewer than two output
        tokens."""
        return tpot_s(self.decode_s, self.output_tokens)


def tpot_s(decode_s: float | None, output_tokens: int | None) -> float | None:
    """Mean seconds per output token after the first. None if there are fewer than two tokens, or if
    a value is unknown."""
    if decode_s is None or output_tokens is None or output_tokens < 2:
        return None
    return decode_s / (output_tokens - 1)


def part_s(
    in_prefill_s: float | None, in_decode_s: float | None, decode_s: float | None
) -> float | None:
    """The seconds of a part, such as preemption, summed over prefill and decode.

    The sum is None if the value of one of the two phases is unknown. For a request without decode,
    it is the value of prefill.
    """
    if decode_s is None:
        return in_prefill_s
    if in_prefill_s is None or in_decode_s is None:
        return None
    return in_prefill_s + in_decode_s


FIELDS = tuple(field.name for field in fields(RequestTimeline))

_FILLS = tuple(getattr(RequestTimeline, field).__set__ for field in FIELDS)


def request_of_values(values: Iterable[Any]) -> RequestTimeline:
    """Create a request from the values of all fields, in order. It takes half as long as the
    constructor."""
    request = object.__new__(RequestTimeline)
    for fill, value in zip(_FILLS, values, strict=True):
        fill(request, value)
    return request
