"""A probe: one request that the prober sends to an endpoint, and the times that the prober
measures.

The server also reports the request, with the tenant `PROBE_TENANT`. By default, queries exclude
this tenant.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from tailspan_vllm import names

from telemetry.fields import PROBER, attribute, column

PROBE_TENANT: Final = "tailspan-probe"
LABELS: Final = ("region", "endpoint", "model")
"""The labels by which probes are selected."""


SET_UP_PARTS: Final = ("late_s", "dns_s", "connect_s", "tls_s")
"""The parts from a probe's intended start until its connection is ready."""
WAIT_PARTS: Final = (*SET_UP_PARTS, "e2e_s")
"""The parts from a probe's intended start to its end."""


class ProbeOutcome(StrEnum):
    """The result of a probe."""

    STOP = "stop"
    LENGTH = "length"
    CACHED = "cached"
    """A cache sent the answer, so the durations are not the durations of the model."""
    REJECTED = "rejected"
    ERROR = "error"
    TIMEOUT = "timeout"
    ABORT = "abort"
    MISSED = "missed"
    OVER_BUDGET = "over_budget"

    @property
    def succeeded(self) -> bool:
        """Whether the endpoint sent a complete answer."""
        return self in (ProbeOutcome.STOP, ProbeOutcome.LENGTH, ProbeOutcome.CACHED)

    @property
    def sent(self) -> bool:
        """Whether the prober tried to reach the endpoint."""
        return self not in (ProbeOutcome.MISSED, ProbeOutcome.OVER_BUDGET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One probe. The time to connect is `dns_s` + `connect_s` + `tls_s`.

    `written_s`, `e2e_s` and the times to the first byte, event or token begin when the connection
    is ready.
    """

    trace_id: Annotated[str, column("text", "The span's trace id, in hex.", "the span")]
    span_id: Annotated[str, column("text", "The span's id, in hex.", "the span")]
    at_unix_ns: Annotated[int, column("ns", "Scheduled start of the probe.", "the span's start")]
    endpoint: Annotated[
        str,
        attribute(names.PROBE_ENDPOINT, "text", "Name of the endpoint in the probe file.", PROBER),
    ]
    kind: Annotated[
        str, attribute(names.PROBE_KIND, "text", "The protocol, such as `openai-chat`.", PROBER)
    ]
    outcome: Annotated[
        ProbeOutcome,
        attribute(
            names.PROBE_OUTCOME,
            "text",
            "`stop`, `length`, `cached` (a complete answer from a cache before the model),"
            " `rejected` (an HTTP error status), `error`, `timeout` (no complete answer before the"
            " next probe was due), `abort` (the prober was stopped), `missed` (the prober was too"
            " late), or `over_budget` (it would exceed the budget of the day).",
            PROBER,
        ),
    ]
    region: Annotated[
        str | None, column("text", "The region of the prober.", "resource `cloud.region`")
    ] = None
    model: Annotated[
        str | None,
        attribute(names.REQUEST_MODEL, "text", "Name of the model in the probe file.", PROBER),
    ] = None
    request_id: Annotated[
        str | None,
        attribute(
            names.RESPONSE_ID,
            "text",
            "The id in the response, or else the `X-Request-Id` that the prober sent.",
            PROBER,
        ),
    ] = None
    error_type: Annotated[
        str | None,
        attribute(
            names.ERROR_TYPE,
            "text",
            "Why the probe failed: the HTTP status, or `dns`, `connect`, `tls`, `disconnected`,"
            " `truncated`, `stream_error`, `stream`, `http`, `max_tokens`, `key`, `request`,"
            " `timeout` or `prober` (a defect of the prober).",
            PROBER,
        ),
    ] = None
    error: Annotated[
        str | None,
        attribute(names.PROBE_ERROR, "text", "Description of the failure.", PROBER),
    ] = None
    http_status: Annotated[
        int | None,
        attribute(names.HTTP_STATUS_CODE, "integer", "HTTP status of the response.", PROBER),
    ] = None
    twin: Annotated[
        bool | None,
        attribute(
            names.PROBE_TWIN,
            "boolean",
            "Whether the prompt equals the previous prompt, so that a cache may contain it.",
            PROBER,
        ),
    ] = None
    cache: Annotated[
        str | None,
        attribute(
            names.PROBE_CACHE,
            "text",
            "The product whose response header reports a cache lookup, such as `portkey`.",
            PROBER,
        ),
    ] = None
    cache_result: Annotated[
        str | None,
        attribute(
            names.PROBE_CACHE_RESULT,
            "text",
            "The result of this lookup: `hit`, `miss`, `bypass` or `unknown`.",
            PROBER,
        ),
    ] = None
    late_s: Annotated[
        float | None,
        attribute(names.PROBE_LATE, "s", "Intended start → actual start.", PROBER),
    ] = None
    dns_s: Annotated[
        float | None,
        attribute(names.PROBE_DNS, "s", "Name lookup. Absent for a numeric address.", PROBER),
    ] = None
    connect_s: Annotated[
        float | None, attribute(names.PROBE_CONNECT, "s", "TCP connection.", PROBER)
    ] = None
    tls_s: Annotated[
        float | None,
        attribute(names.PROBE_TLS, "s", "TLS handshake. Absent without TLS.", PROBER),
    ] = None
    written_s: Annotated[
        float | None,
        attribute(
            names.PROBE_WRITTEN, "s", "Connection ready → request given to the kernel.", PROBER
        ),
    ] = None
    first_byte_s: Annotated[
        float | None,
        attribute(
            names.PROBE_FIRST_BYTE, "s", "Connection ready → first byte of the response.", PROBER
        ),
    ] = None
    first_event_s: Annotated[
        float | None,
        attribute(
            names.PROBE_FIRST_EVENT, "s", "Connection ready → first event of the stream.", PROBER
        ),
    ] = None
    first_reasoning_s: Annotated[
        float | None,
        attribute(
            names.PROBE_FIRST_REASONING, "s", "Connection ready → first reasoning token.", PROBER
        ),
    ] = None
    first_content_s: Annotated[
        float | None,
        attribute(
            names.PROBE_FIRST_CONTENT, "s", "Connection ready → first content token.", PROBER
        ),
    ] = None
    itl_max_s: Annotated[
        float | None,
        attribute(
            names.PROBE_ITL_MAX,
            "s",
            "Longest gap between two streamed events with tokens. Absent for fewer than two.",
            PROBER,
        ),
    ] = None
    e2e_s: Annotated[
        float | None,
        attribute(
            names.PROBE_E2E, "s", "Connection ready → end of the answer, or failure.", PROBER
        ),
    ] = None
    server_queue_s: Annotated[
        float | None,
        attribute(
            names.PROBE_SERVER_QUEUE,
            "s",
            "Time in the queue, from the server's response.",
            PROBER,
        ),
    ] = None
    server_prefill_s: Annotated[
        float | None,
        attribute(
            names.PROBE_SERVER_PREFILL,
            "s",
            "Scheduled → first token, from the server's response.",
            PROBER,
        ),
    ] = None
    server_decode_s: Annotated[
        float | None,
        attribute(
            names.PROBE_SERVER_DECODE,
            "s",
            "First token → last token, from the server's response.",
            PROBER,
        ),
    ] = None
    chunks: Annotated[
        int | None,
        attribute(
            names.PROBE_CHUNKS,
            "{event}",
            "Events with tokens, each with one or more tokens.",
            PROBER,
        ),
    ] = None
    prompt_tokens: Annotated[
        int | None,
        attribute(names.INPUT_TOKENS, "{token}", "Tokens of the prompt, from `usage`.", PROBER),
    ] = None
    cached_tokens: Annotated[
        int | None,
        attribute(
            names.CACHE_READ_INPUT_TOKENS,
            "{token}",
            "Prompt tokens found in a cache, from `usage`.",
            PROBER,
        ),
    ] = None
    output_tokens: Annotated[
        int | None,
        attribute(names.OUTPUT_TOKENS, "{token}", "Tokens of the answer, from `usage`.", PROBER),
    ] = None
    reasoning_tokens: Annotated[
        int | None,
        attribute(
            names.REASONING_OUTPUT_TOKENS,
            "{token}",
            "Output tokens that are reasoning, from `usage`.",
            PROBER,
        ),
    ] = None
    cost_usd: Annotated[
        float | None,
        attribute(
            names.PROBE_COST,
            "USD",
            "List price of the tokens. Absent if genai-prices has none for the address and the"
            " model.",
            PROBER,
        ),
    ] = None
    certificate_ends_unix_s: Annotated[
        float | None,
        attribute(
            names.PROBE_CERTIFICATE_END,
            "s",
            "End of validity of the server's certificate, in unix seconds.",
            PROBER,
        ),
    ] = None
    clock_ahead_s: Annotated[
        float | None,
        column(
            "s",
            "Seconds subtracted from the timestamp, because the prober's clock was ahead.",
            "collector",
        ),
    ] = None
