"""Describes the names in `names.py` that are not fields of Tailspan: description, unit, source.

`telemetry/attributes_page.py` generates docs/attributes.md from these names and from
`telemetry/fields.py`.
"""

from typing import Final, NamedTuple

from tailspan_vllm import names


class VocabularyTerm(NamedTuple):
    """One name. `unit` is a UCUM unit, or the type of a value that has no unit."""

    name: str
    unit: str
    meaning: str
    source: str


_HTTP = "HTTP layer"
_STATS = "vLLM's `RequestStateStats`"
_STATE = "vLLM's `RequestState`"
_FRONT_END = "the front end"
_OURSELVES = "the instrumentation"
_SYSTEM = "operating system"
_PLATFORM = "vLLM's platform"

RESOURCE: Final = (
    VocabularyTerm(
        names.SERVICE_NAME,
        "text",
        "Name of the service; `vllm` unless the environment sets another name.",
        "`OTEL_SERVICE_NAME`",
    ),
    VocabularyTerm(
        names.SERVICE_INSTANCE_ID,
        "text",
        "Name of the replica: `host:port` of the server, or `host:pid` without a port, unless the"
        " environment sets another name.",
        "`OTEL_RESOURCE_ATTRIBUTES`",
    ),
    VocabularyTerm(
        names.CLOUD_REGION,
        "text",
        "The region; absent unless the environment sets one.",
        "`OTEL_RESOURCE_ATTRIBUTES`",
    ),
    VocabularyTerm(names.PROCESS_PID, "integer", "Process id of the reporting process.", _SYSTEM),
    VocabularyTerm(
        names.SIMULATED,
        "boolean",
        "True if the data is simulated.",
        "simulator",
    ),
)

SPAN_ATTRIBUTES: Final = (
    VocabularyTerm(names.PROVIDER_NAME, "text", f"Always `{names.PROVIDER_VLLM}`.", _OURSELVES),
    VocabularyTerm(
        names.RESPONSE_MODEL, "text", f"The same as `{names.REQUEST_MODEL}`.", "vLLM's config"
    ),
    VocabularyTerm(
        names.REQUEST_STREAM,
        "boolean",
        "True if the response was an event stream. Otherwise absent, as the conventions require.",
        _HTTP,
    ),
    VocabularyTerm(
        names.TIME_TO_FIRST_CHUNK,
        "s",
        f"The same as `{names.TTFT}`. Absent if the response was not streamed.",
        _HTTP,
    ),
    VocabularyTerm(
        names.FINISH_REASONS,
        "texts",
        "`stop` or `length`; absent if the response is incomplete.",
        _STATE,
    ),
)
"""Attributes for other backends. Tailspan does not store them."""

SPAN_EVENTS: Final = (
    VocabularyTerm(names.ARRIVED, "instant", "The request reached the engine's front end.", _STATS),
    VocabularyTerm(names.QUEUED, "instant", "The request entered the engine's queue.", _STATS),
    VocabularyTerm(
        names.SCHEDULED, "instant", "The request was scheduled for the first time.", _STATS
    ),
    VocabularyTerm(names.FIRST_TOKEN, "instant", "The first token was generated.", _STATS),
    VocabularyTerm(
        names.FIRST_BYTE, "instant", "The first byte of the response body was written.", _HTTP
    ),
    VocabularyTerm(
        names.FIRST_CONTENT,
        "instant",
        "The first content was written: neither reasoning nor a tool call.",
        _HTTP,
    ),
    VocabularyTerm(names.LAST_TOKEN, "instant", "The last token was generated.", _STATS),
    VocabularyTerm(
        names.PREEMPTION,
        "instant",
        "The request was preempted. One event per preemption.",
        "vLLM's engine events",
    ),
    VocabularyTerm(
        names.RESUMPTION,
        "instant",
        "The request was scheduled again after a preemption. One event per resumption.",
        "vLLM's engine events",
    ),
)


EVENTS: Final = (
    VocabularyTerm(
        names.ENGINE_STARTED,
        "event",
        "The engine has run with these arguments since the event's timestamp. The event is sent"
        " until the collector accepts it, and is sent again unchanged after an outage.",
        "vLLM's config",
    ),
    VocabularyTerm(
        names.REQUEST_IN_FLIGHT,
        "event",
        "A request has not ended at the event's timestamp. A record is sent every 10 s for each"
        " of the 1,000 oldest requests that have run for at least 5 s. The record has the trace"
        " id and span id that the request's span will have, and the span's attributes for"
        " operation, model, adapter, route, tenant, configuration, engine, prompt tokens and"
        " streaming. It has the TTFT if the first byte was sent. It has the ages"
        f" `{names.IN_FLIGHT_AGE}` and `{names.REPORTED_IN_FLIGHT}`.",
        _FRONT_END,
    ),
)

EVENT_ATTRIBUTES: Final = (
    VocabularyTerm(
        names.EVENT_NAME,
        "text",
        "The event's name, in versions of OpenTelemetry's protocol that have no field for it.",
        _OURSELVES,
    ),
    VocabularyTerm(
        names.IN_FLIGHT_AGE,
        "s",
        "Time since a request in flight was received.",
        _HTTP,
    ),
    VocabularyTerm(names.ENGINE, "integer", "Index of the engine.", "stat logger, engine core"),
    VocabularyTerm(names.PROVIDER_NAME, "text", f"Always `{names.PROVIDER_VLLM}`.", _OURSELVES),
    VocabularyTerm(
        names.REQUEST_MODEL, "text", "The name under which the model is served.", "vLLM's config"
    ),
    VocabularyTerm(names.ENGINE_VERSION, "text", "vLLM's version.", "`vllm.__version__`"),
    VocabularyTerm(
        names.CONFIG,
        "text",
        "Fingerprint of the engine's arguments, the same as on spans and metrics.",
        "vLLM's config",
    ),
    VocabularyTerm(
        names.DEVICE, "text", "The GPU or CPU, such as `NVIDIA H100 80GB HBM3`.", _PLATFORM
    ),
    VocabularyTerm(
        names.GPUS,
        "integer",
        "Number of GPUs of one engine: tensor-parallel times pipeline-parallel times"
        " prefill-context-parallel size; absent on a CPU.",
        "vLLM's config",
    ),
    VocabularyTerm(
        names.LOADING,
        "s",
        "Time from the start of the process until the engine was ready. Absent if only the"
        " configuration changed, or if the operating system does not provide it.",
        "/proc/self/stat",
    ),
    VocabularyTerm(
        names.SHAPE,
        "number, boolean or text",
        "One attribute for each value of the model's shape: this prefix and the value's key. Bytes"
        " and FLOPs are computed from these values.",
        "the model's config",
    ),
    VocabularyTerm(
        names.ARGUMENT,
        "number, boolean or text",
        "One attribute for each argument that affects latency: this prefix and the argument's"
        " name. The value is the argument's effective value. Arguments that are unset, or that"
        " this vLLM does not have, are absent. A text that could identify the server's owner, such"
        " as a path, is reported as a digest.",
        "vLLM's config",
    ),
)


METRIC_ATTRIBUTES: Final = (
    VocabularyTerm(names.ENGINE, "integer", "Index of the engine.", "stat logger"),
    VocabularyTerm(
        names.REQUEST_MODEL, "text", "The name under which the model is served.", "vLLM's config"
    ),
    VocabularyTerm(
        names.CONFIG,
        "text",
        "Fingerprint of the engine's arguments, the same as on spans.",
        "vLLM's config",
    ),
    VocabularyTerm(names.HOOK, "text", "The hook that failed.", _OURSELVES),
    VocabularyTerm(
        names.DROP_REASON,
        "text",
        "Why spans were dropped: `queue_full` (the collector is unreachable or too slow),"
        " `refused` (the collector refused the span), `denied` (the collector refuses all messages"
        " of this sender), `rejected` (the collector accepted the message without the span),"
        " `unauthenticated` (the server answered 401 or 403 more than once a second), `too_large`,"
        " `failed` (the instrumentation failed).",
        _OURSELVES,
    ),
)

_GPU = "GPU sampler"


GPU_ATTRIBUTES: Final = (
    VocabularyTerm(names.GPU, "text", "UUID of the GPU, or its index if it has none.", _GPU),
    VocabularyTerm(
        names.GPU_MODEL, "text", "The product name, such as `NVIDIA H100 80GB HBM3`.", _GPU
    ),
    VocabularyTerm(names.GPU_SOURCE, "text", "The source: `nvml`, `dcgm`, `amd_smi`.", _GPU),
    VocabularyTerm(
        names.GPU_THROTTLE_REASONS,
        "text",
        "Why the clock is limited: the reasons, sorted and joined by commas; empty if the clock is"
        f" not limited. See `{names.GPU_THROTTLED}`.",
        _GPU,
    ),
)
