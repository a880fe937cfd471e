"""What the names of `names.py` mean that are no fields of Tailspan's own dataclasses.

Data, complete by test. Fields are described where they are declared (`telemetry/fields.py`);
`telemetry/attributes_page.py` makes docs/attributes.md of both. Nothing that runs inside vLLM
imports this module.
"""

from typing import Final, NamedTuple

from tailspan_vllm import names


class Term(NamedTuple):
    """One name. `unit` is UCUM's, or the kind of value where there is nothing to measure."""

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
    Term(
        names.SERVICE_NAME,
        "text",
        "The service; `vllm` unless the environment names another.",
        "`OTEL_SERVICE_NAME`",
    ),
    Term(
        names.SERVICE_INSTANCE_ID,
        "text",
        "The replica; `host:port` of the server, or `host:pid` where there is no port,"
        " unless the environment names another.",
        "`OTEL_RESOURCE_ATTRIBUTES`",
    ),
    Term(
        names.CLOUD_REGION,
        "text",
        "The region; absent unless the environment names one.",
        "`OTEL_RESOURCE_ATTRIBUTES`",
    ),
    Term(names.PROCESS_PID, "integer", "The process that reports.", _SYSTEM),
    Term(
        names.SIMULATED,
        "boolean",
        "True where no real server stands behind the numbers.",
        "simulator",
    ),
)

SPAN_ATTRIBUTES: Final = (
    Term(names.PROVIDER_NAME, "text", f"Always `{names.PROVIDER_VLLM}`.", _OURSELVES),
    Term(
        names.FINISH_REASONS,
        "texts",
        "`stop` or `length`; absent where the answer was not finished.",
        _STATE,
    ),
)
"""Attributes that Tailspan does not store."""

SPAN_EVENTS: Final = (
    Term(names.ARRIVED, "instant", "It reached the engine's front end.", _STATS),
    Term(names.QUEUED, "instant", "It entered the engine's queue.", _STATS),
    Term(names.SCHEDULED, "instant", "It was scheduled for the first time.", _STATS),
    Term(names.FIRST_TOKEN, "instant", "Its first token was made.", _STATS),
    Term(names.FIRST_BYTE, "instant", "The first byte of the answer's body was written.", _HTTP),
    Term(names.LAST_TOKEN, "instant", "Its last token was made.", _STATS),
    Term(names.PREEMPTION, "instant", "It was evicted; once for each.", "vLLM's engine events"),
    Term(
        names.RESUMPTION,
        "instant",
        "It was scheduled again; once for each.",
        "vLLM's engine events",
    ),
)


EVENTS: Final = (
    Term(
        names.ENGINE_STARTED,
        "event",
        "An engine runs with these arguments from the event's time on. Told until it has"
        " arrived, and again after an outage, the same to the nanosecond.",
        "vLLM's config",
    ),
    Term(
        names.REQUEST_IN_FLIGHT,
        "event",
        "A request has not ended at the event's time. The record has the trace id and span id of"
        " the span that follows. Sent every 10 s for the 1,000 oldest requests that have run for"
        " 5 s or longer. It has the span's attributes for operation, model, adapter, route, tenant,"
        " configuration, prompt tokens and streaming; TTFT once the first byte was sent; and the"
        f" ages `{names.IN_FLIGHT_AGE}` and `{names.REPORTED_IN_FLIGHT}`.",
        _FRONT_END,
    ),
)

EVENT_ATTRIBUTES: Final = (
    Term(
        names.EVENT_NAME,
        "text",
        "The event's name, where OpenTelemetry's protocol is older than its own field for it.",
        _OURSELVES,
    ),
    Term(
        names.IN_FLIGHT_AGE,
        "s",
        "Of a request in flight: the time since it was received.",
        _HTTP,
    ),
    Term(names.ENGINE, "integer", "Index of the engine.", "stat logger, engine core"),
    Term(names.PROVIDER_NAME, "text", f"Always `{names.PROVIDER_VLLM}`.", _OURSELVES),
    Term(names.REQUEST_MODEL, "text", "The name under which the model is served.", "vLLM's config"),
    Term(names.ENGINE_VERSION, "text", "vLLM's version.", "`vllm.__version__`"),
    Term(
        names.CONFIG,
        "text",
        "Fingerprint of the arguments below, as spans and metrics bear it.",
        "vLLM's config",
    ),
    Term(names.DEVICE, "text", "What it runs on, as in `NVIDIA H100 80GB HBM3`.", _PLATFORM),
    Term(
        names.GPUS,
        "integer",
        "How many GPUs one engine runs on: tensor-parallel by pipeline-parallel size; absent on a"
        " CPU.",
        "vLLM's config",
    ),
    Term(
        names.LOADING,
        "s",
        "From the start of the process until the engine was ready; absent where only the"
        " configuration changed, and where the system does not tell.",
        "/proc/self/stat",
    ),
    Term(
        names.SHAPE,
        "number, boolean or text",
        "Prefix of what the model is built of, from which bytes and FLOPs are modelled.",
        "the model's config",
    ),
    Term(
        names.ARGUMENT,
        "number, boolean or text",
        "Prefix of each argument that matters to latency, with its value in force; one that"
        " is unset, or that this vLLM lacks, is absent. A text that may tell on its owner, such"
        " as a path, is told as a digest.",
        "vLLM's config",
    ),
)


METRIC_ATTRIBUTES: Final = (
    Term(names.ENGINE, "integer", "Index of the engine.", "stat logger"),
    Term(names.REQUEST_MODEL, "text", "The name under which it is served.", "vLLM's config"),
    Term(names.CONFIG, "text", "As on spans.", "vLLM's config"),
    Term(names.HOOK, "text", "Of hook failures: which hook.", _OURSELVES),
    Term(
        names.DROP_REASON,
        "text",
        "Of dropped spans: `queue_full` (the collector is away or too slow), `refused` (the"
        " collector refuses this span), `denied` (it refuses this sender), `rejected` (it accepted"
        " the message without it), `unauthenticated` (the server answered 401 or 403, more than"
        " once a second), `too_large`, `failed` (the instrumentation failed).",
        _OURSELVES,
    ),
)

_GPU = "GPU sampler"


GPU_ATTRIBUTES: Final = (
    Term(names.GPU, "text", "Its UUID, or its index where it has none.", _GPU),
    Term(names.GPU_MODEL, "text", "What it is, as in `NVIDIA H100 80GB HBM3`.", _GPU),
    Term(names.GPU_SOURCE, "text", "Who measured: `nvml`, `dcgm`, `amd_smi`.", _GPU),
    Term(
        names.GPU_THROTTLE_REASONS,
        "text",
        f"Of `{names.GPU_THROTTLED}`: the reasons, sorted, joined by commas; empty for none.",
        _GPU,
    ),
)
