"""The meaning, unit and source of each name in `names.py`.

Data; a test checks that it is complete. `attributes_page.py` generates docs/attributes.md from
it. No module that runs inside vLLM imports it.
"""

from typing import Final, NamedTuple

from tailspan_vllm import names


class Term(NamedTuple):
    """One name. `unit` is a UCUM unit, or the type of a value that has no unit."""

    name: str
    unit: str
    meaning: str
    source: str


_HTTP = "HTTP layer"
_HEADER = "request header"
_STATS = "vLLM's `RequestStateStats`"
_STATE = "vLLM's `RequestState`"
_FRONT_END = "the front end"
_SCHEDULER = "vLLM's `SchedulerStats`"
_ITERATION = "vLLM's `IterationStats`"
_LEDGER = "step ledger"
_OURSELVES = "the instrumentation"
_INSTANTS = "the instants"
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
        "The replica: `host:port` of the server, or `host:pid` if it has no port, unless the"
        " environment sets another name.",
        "`OTEL_RESOURCE_ATTRIBUTES`",
    ),
    Term(
        names.CLOUD_REGION,
        "text",
        "The region; absent unless the environment sets one.",
        "`OTEL_RESOURCE_ATTRIBUTES`",
    ),
    Term(names.PROCESS_PID, "integer", "The process that reports.", _SYSTEM),
    Term(
        names.SIMULATED,
        "boolean",
        "True for simulated data.",
        "simulator",
    ),
)

SPAN_ATTRIBUTES: Final = (
    Term(
        names.OPERATION_NAME,
        "text",
        "`chat`, `text_completion`, `embeddings` or `generate_content`.",
        "request path",
    ),
    Term(names.PROVIDER_NAME, "text", f"Always `{names.PROVIDER_VLLM}`.", _OURSELVES),
    Term(
        names.REQUEST_MODEL,
        "text",
        "The name under which the model is served. Absent if the client asked for a model that is"
        " not served (status 404), because a client's text must not become a label.",
        "vLLM's config",
    ),
    Term(names.RESPONSE_ID, "text", "The id in the answer.", _STATE),
    Term(
        names.FINISH_REASONS,
        "texts",
        "`stop` or `length`; absent if the answer is incomplete.",
        _STATE,
    ),
    Term(names.INPUT_TOKENS, "{token}", "Tokens of the prompt.", _STATE),
    Term(names.OUTPUT_TOKENS, "{token}", "Tokens generated, also for a partial answer.", _STATS),
    Term(
        names.CACHE_READ_INPUT_TOKENS,
        "{token}",
        "Prompt tokens found in a prefix cache.",
        _STATE,
    ),
    Term(
        names.EXTERNAL_CACHED_TOKENS,
        "{token}",
        "Prompt tokens that a KV connector loaded from outside the engine. The other cached tokens"
        " were in the engine's own cache.",
        "step ledger",
    ),
    Term(names.HTTP_ROUTE, "text", "The route's template.", _HTTP),
    Term(names.HTTP_STATUS_CODE, "integer", "Status of the answer; absent if none began.", _HTTP),
    Term(
        names.ERROR_TYPE,
        "text",
        "The status or the limit, such as `max_num_queued_reqs`, for which the request was refused"
        " before the engine; `engine_silent` if the engine did not report the request's end.",
        _HTTP,
    ),
    Term(
        names.OUTCOME,
        "text",
        "`stop`, `length`, `abort` (the client left), `error`, or `rejected` (refused"
        " before the engine); `stop` for any complete answer if `tailspan.basis` is `edge`."
        " A span with this attribute is a request.",
        _STATE,
    ),
    Term(
        names.BASIS,
        "text",
        "`http`: received and delivered were measured at the HTTP edge. `engine`: they are the"
        " first and last times at which the front end processed the request. `edge`: only the HTTP"
        " edge was measured, because the hooks do not fit this vLLM.",
        _OURSELVES,
    ),
    Term(names.STREAMED, "boolean", "Whether the answer was an event stream.", _HTTP),
    Term(
        names.TENANT,
        "text",
        "The tenant, from the request header that `TAILSPAN_TENANT_HEADER` names.",
        _HEADER,
    ),
    Term(names.LORA, "text", "The requested adapter.", _STATE),
    Term(
        names.CONFIG,
        "text",
        "Fingerprint of the engine arguments that matter to latency.",
        "vLLM's config",
    ),
    Term(
        names.ENGINE,
        "integer",
        "Index of the engine; absent if the front end serves several and the ledger did not report"
        " the request.",
        "step ledger, stat logger",
    ),
    Term(
        names.FRONTEND, "s", "received → queued: parsing, chat template, tokenisation.", _INSTANTS
    ),
    Term(names.QUEUE, "s", "queued → first scheduled.", _INSTANTS),
    Term(names.PREFILL, "s", "first scheduled → first token.", _INSTANTS),
    Term(names.DECODE, "s", "first token → last token.", _INSTANTS),
    Term(
        names.DELIVERY,
        "s",
        "last token → delivered: detokenisation, writing to the client.",
        _INSTANTS,
    ),
    Term(
        names.HANDOFF,
        "s",
        "Part of the front end: handed to the engine → recorded by it, which happens between two"
        " steps; a long step or a pause of the engine delays a request here.",
        _STATS,
    ),
    *(
        Term(name, "s", f"Part of queue: {meaning}", _LEDGER)
        for name, meaning in zip(
            names.QUEUE_PARTS,
            (
                "the batch had `max_num_seqs` requests.",
                "there were not enough free KV-cache blocks.",
                "other requests used up the step's token budget.",
                "the request was not eligible: its adapter, its cache or its grammar was not ready,"
                " or the engine was paused.",
                "none of these; it waited for the current step to end.",
            ),
            strict=True,
        )
    ),
    *(
        Term(f"tailspan.{phase}.{part}", "s", f"Part of {phase}: {meaning}", _LEDGER)
        for phase in ("prefill", "decode")
        for part, meaning in (
            ("own", "what its steps would have taken for this request alone."),
            ("others_prefill", "what prefills of other requests added to its steps."),
            ("others_decode", "what decodes of other requests added to its steps."),
            ("preempted", "evicted, waiting to resume, and recomputing what was lost."),
            ("stall", "step time that no scheduled work explains."),
        )
    ),
    Term(
        names.TTFT,
        "s",
        "received → first byte of the answer, or first token without an HTTP edge. An answer that"
        " is not streamed has its first byte at its end; one without a token has no TTFT.",
        _INSTANTS,
    ),
    Term(
        names.ITL_MAX,
        "s",
        "The longest time between two tokens; absent for fewer than two tokens.",
        _LEDGER,
    ),
    Term(
        names.REPORTED_IN_FLIGHT,
        "s",
        "Age of the request when it was last reported in flight; absent if it never was.",
        _HTTP,
    ),
    Term(
        names.OTHERS_PREFILL_TOKENS_MAX,
        "{token}",
        "The maximum of other requests' prompt tokens computed in one of its steps.",
        _LEDGER,
    ),
    Term(
        names.BILLED,
        "s",
        "Engine time for its work. The shares of all requests in a step sum to the step. The"
        " request's cost is what all GPUs of the engine cost for this time.",
        _LEDGER,
    ),
    Term(
        names.WASTED,
        "s",
        "Engine time for work that a preemption had discarded and that was computed again.",
        _LEDGER,
    ),
    Term(names.PREEMPTIONS, "{preemption}", "Times it was evicted.", "vLLM's engine events"),
    Term(
        names.WAITING_AT_ARRIVAL,
        "{request}",
        "Requests waiting when it arrived, as of the last step. This and the next two are absent if"
        " the front end serves several engines.",
        _SCHEDULER,
    ),
    Term(names.RUNNING_AT_ARRIVAL, "{request}", "Requests in the batch then.", _SCHEDULER),
    Term(names.KV_USAGE_AT_ARRIVAL, "1", "Share of KV-cache blocks in use then.", _SCHEDULER),
)

SPAN_EVENTS: Final = (
    Term(names.ARRIVED, "instant", "It reached the engine's front end.", _STATS),
    Term(names.QUEUED, "instant", "It entered the engine's queue.", _STATS),
    Term(names.SCHEDULED, "instant", "It was scheduled for the first time.", _STATS),
    Term(names.FIRST_TOKEN, "instant", "Its first token was generated.", _STATS),
    Term(names.FIRST_BYTE, "instant", "The first byte of the answer's body was written.", _HTTP),
    Term(names.LAST_TOKEN, "instant", "Its last token was generated.", _STATS),
    Term(names.PREEMPTION, "instant", "It was preempted; one event each.", "vLLM's engine events"),
    Term(
        names.RESUMPTION,
        "instant",
        "It was scheduled again; one event each.",
        "vLLM's engine events",
    ),
)


EVENTS: Final = (
    Term(
        names.ENGINE_STARTED,
        "event",
        "An engine runs with these arguments since the event's time. Sent until the collector"
        " accepts it, and again after an outage, identical to the nanosecond.",
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
        "The event's name, in versions of OpenTelemetry's protocol that have no field for it.",
        _OURSELVES,
    ),
    Term(
        names.IN_FLIGHT_AGE,
        "s",
        "Time since a request in flight was received.",
        _HTTP,
    ),
    Term(names.ENGINE, "integer", "Index of the engine.", "stat logger, engine core"),
    Term(names.PROVIDER_NAME, "text", f"Always `{names.PROVIDER_VLLM}`.", _OURSELVES),
    Term(names.REQUEST_MODEL, "text", "The name under which the model is served.", "vLLM's config"),
    Term(names.ENGINE_VERSION, "text", "vLLM's version.", "`vllm.__version__`"),
    Term(
        names.CONFIG,
        "text",
        "Fingerprint of the arguments below, as on spans and metrics.",
        "vLLM's config",
    ),
    Term(names.DEVICE, "text", "The GPU or CPU, such as `NVIDIA H100 80GB HBM3`.", _PLATFORM),
    Term(
        names.GPUS,
        "integer",
        "Number of GPUs of one engine: tensor-parallel times pipeline-parallel size; absent on a"
        " CPU.",
        "vLLM's config",
    ),
    Term(
        names.LOADING,
        "s",
        "From the start of the process until the engine was ready; absent if only the"
        " configuration changed, or if the operating system does not provide it.",
        "/proc/self/stat",
    ),
    Term(
        names.SHAPE,
        "number, boolean or text",
        "Prefix of the model's shape, from which bytes and FLOPs are computed.",
        "the model's config",
    ),
    Term(
        names.ARGUMENT,
        "number, boolean or text",
        "Prefix of each argument that matters to latency, with its value in force. Arguments that"
        " are unset, or that this vLLM lacks, are absent. A text that could identify its owner,"
        " such as a path, is a digest.",
        "vLLM's config",
    ),
)


class MetricTerm(NamedTuple):
    """One metric; its unit is in `names.UNITS`."""

    name: str
    shape: str
    meaning: str
    source: str


_OF_THE_MODEL = (
    "seconds of each step",
    *(
        "seconds per " + unit
        for unit in (
            "prompt token computed",
            "unit of prefill attention, Σ p·(start + p/2) over the chunks",
            "token of context read by decodes",
            "decoding sequence",
        )
    ),
)

METRICS: Final = (
    MetricTerm(names.WAITING, "gauge", "Requests waiting, for any reason.", _SCHEDULER),
    MetricTerm(
        names.DEFERRED,
        "gauge",
        "Waiting requests that a temporary constraint holds back.",
        _SCHEDULER,
    ),
    MetricTerm(names.RUNNING, "gauge", "Requests in the batch.", _SCHEDULER),
    MetricTerm(
        names.WAITING_LORAS,
        "gauge",
        "Waiting requests for an adapter; absent if no adapters are served.",
        "vLLM's scheduler",
    ),
    MetricTerm(
        names.RUNNING_LORAS, "gauge", "Requests in the batch that use an adapter.", _SCHEDULER
    ),
    MetricTerm(
        names.FETCHING_KV,
        "gauge",
        "Waiting requests whose KV cache is being fetched from outside the engine; absent before"
        " vLLM 0.32 and without a KV connector.",
        _SCHEDULER,
    ),
    MetricTerm(
        names.IN_FLIGHT,
        "gauge",
        "Requests that the reporting front end has given to its engines and that have not ended;"
        " a request whose client has left is not counted. The front end reports the same number for"
        " each of its engines.",
        _FRONT_END,
    ),
    MetricTerm(
        names.OLDEST_REQUEST_AGE,
        "gauge",
        "Time since the oldest request in flight was received; 0 if there is none.",
        _FRONT_END,
    ),
    MetricTerm(
        names.LAST_STEP_AGE,
        "gauge",
        "Time since the front end last received a step of any of its engines, or since it handed"
        " over its first request in flight, if that was later. Absent without requests in"
        " flight.",
        _FRONT_END,
    ),
    MetricTerm(names.KV_USAGE, "gauge", "Share of KV-cache blocks in use.", _SCHEDULER),
    MetricTerm(names.LONGEST_STEP, "gauge", "Longest step since the previous sample.", _LEDGER),
    *(
        MetricTerm(name, "gauge", f"Step model, {letter}: {meaning}.", _LEDGER)
        for name, letter, meaning in zip(names.STEP_MODEL, "γακβδ", _OF_THE_MODEL, strict=True)
    ),
    MetricTerm(
        names.STEP_MODEL_ERROR,
        "gauge",
        "Typical error on held-out steps, relative to the prediction.",
        _LEDGER,
    ),
    MetricTerm(
        names.STEP_MODEL_R_SQUARED,
        "gauge",
        "Share of the variance of held-out steps that was predicted; below zero for a poor fit.",
        _LEDGER,
    ),
    MetricTerm(
        names.HOST_CPUS,
        "gauge",
        "Processors of the machine. This and the four sums of processor time below are reported on"
        " Linux only.",
        _SYSTEM,
    ),
    MetricTerm(names.STEPS, "sum", "Steps taken.", _LEDGER),
    MetricTerm(names.BUSY_TIME, "sum", "Time in steps.", _LEDGER),
    MetricTerm(names.STALL_TIME, "sum", "Step time that no scheduled work explains.", _LEDGER),
    MetricTerm(
        names.SCHEDULED_PREFILL_TOKENS,
        "sum",
        "Prompt tokens computed, counted at each step, partial chunks included.",
        _LEDGER,
    ),
    MetricTerm(
        names.PREFILL_ATTENTION,
        "sum",
        "Attention of the computed prompt tokens: Σ p·(start + p/2) over the chunks, in pairs of"
        " a token and a token of its context.",
        _LEDGER,
    ),
    MetricTerm(names.CONTEXT_TOKENS, "sum", "Tokens of context read by decodes.", _LEDGER),
    MetricTerm(
        names.SCHEDULED_DECODES,
        "sum",
        "Decoding sequences, counted at each step; with speculative decoding each generates"
        " several tokens.",
        _LEDGER,
    ),
    MetricTerm(
        names.PREFILL_TOKENS,
        "sum",
        "Prompt tokens computed, counted when a prefill is complete; before vLLM 0.16 cached ones"
        " are included.",
        _ITERATION,
    ),
    MetricTerm(names.DECODE_TOKENS, "sum", "Output tokens generated.", _ITERATION),
    MetricTerm(
        names.PREFIX_CACHE_QUERIES,
        "sum",
        "Prompt tokens looked up in the engine's own prefix cache.",
        _SCHEDULER,
    ),
    MetricTerm(names.PREFIX_CACHE_HITS, "sum", "Prompt tokens found there.", _SCHEDULER),
    MetricTerm(
        names.EXTERNAL_CACHE_QUERIES,
        "sum",
        "Prompt tokens looked up in a cache outside the engine; absent without one.",
        _SCHEDULER,
    ),
    MetricTerm(names.EXTERNAL_CACHE_HITS, "sum", "Prompt tokens found there.", _SCHEDULER),
    MetricTerm(
        names.LOCAL_CACHED_PROMPT_TOKENS,
        "sum",
        "Prompt tokens from the engine's own cache, counted when a prefill is complete. This and"
        " the next are absent before vLLM 0.16.",
        _ITERATION,
    ),
    MetricTerm(
        names.EXTERNAL_CACHED_PROMPT_TOKENS,
        "sum",
        "Prompt tokens from a cache outside the engine, counted when a prefill is complete.",
        _ITERATION,
    ),
    MetricTerm(
        names.KV_TRANSFER_BYTES,
        "sum",
        "Bytes of KV cache that a connector transferred, in both directions. This and the next two"
        " are reported for NIXL and offloading connectors.",
        _SCHEDULER,
    ),
    MetricTerm(
        names.KV_TRANSFER_TIME,
        "sum",
        "Time of those transfers; overlapping ones are added.",
        _SCHEDULER,
    ),
    MetricTerm(names.KV_TRANSFER_FAILURES, "sum", "Transfers that failed.", _SCHEDULER),
    MetricTerm(names.ENGINE_PREEMPTIONS, "sum", "Preemptions.", _ITERATION),
    MetricTerm(names.DRAFTS, "sum", "Speculative drafts.", _SCHEDULER),
    MetricTerm(names.DRAFT_TOKENS, "sum", "Tokens drafted.", _SCHEDULER),
    MetricTerm(names.ACCEPTED_TOKENS, "sum", "Drafted tokens accepted.", _SCHEDULER),
    MetricTerm(
        names.MODELLED_FLOPS,
        "sum",
        "FLOPs of each GPU by vLLM's own model. This and the next two: `--enable-mfu-metrics`.",
        _SCHEDULER,
    ),
    MetricTerm(names.MODELLED_READ_BYTES, "sum", "Bytes read from memory, per GPU.", _SCHEDULER),
    MetricTerm(names.MODELLED_WRITE_BYTES, "sum", "Bytes written to memory, per GPU.", _SCHEDULER),
    MetricTerm(
        names.PROCESS_CPU_TIME,
        "sum",
        "Processor time of the process that reports, such as the API server. The same for each of"
        " its engines.",
        _SYSTEM,
    ),
    MetricTerm(
        names.CORE_CPU_TIME,
        "sum",
        "Processor time of the engine core's process, which may be the process that reports.",
        _SYSTEM,
    ),
    MetricTerm(
        names.HOST_BUSY_TIME,
        "sum",
        "Busy time summed over the machine's processors, without steal time.",
        _SYSTEM,
    ),
    MetricTerm(
        names.HOST_STEAL_TIME,
        "sum",
        "Time for which a hypervisor withheld processors from this machine.",
        _SYSTEM,
    ),
    MetricTerm(
        names.SPANS_DROPPED,
        "sum",
        f"Requests that are not reported, by `{names.DROP_REASON}`. One total for the"
        " process, repeated for each of its engines.",
        _OURSELVES,
    ),
    MetricTerm(
        names.HOOK_FAILURES,
        "sum",
        "Exceptions of the instrumentation, none of which reached vLLM, and refused connections and"
        f" dropped messages of its link to the engine core; by `{names.HOOK}`.",
        _OURSELVES,
    ),
    MetricTerm(
        names.ACCOUNTS_DROPPED,
        "sum",
        "Accounts that a front end did not receive, summed over the front ends: it read too slowly,"
        " or the engine core could not track the request.",
        _OURSELVES,
    ),
)

METRIC_ATTRIBUTES: Final = (
    Term(names.ENGINE, "integer", "Index of the engine.", "stat logger"),
    Term(names.REQUEST_MODEL, "text", "The name under which it is served.", "vLLM's config"),
    Term(names.CONFIG, "text", "As on spans.", "vLLM's config"),
    Term(names.HOOK, "text", "The hook that failed.", _OURSELVES),
    Term(
        names.DROP_REASON,
        "text",
        "Why spans were dropped: `queue_full` (the collector is away or too slow), `refused` (the"
        " collector refuses this span), `denied` (it refuses this sender), `rejected` (it accepted"
        " the message without it), `unauthenticated` (the server answered 401 or 403, more than"
        " once a second), `too_large`, `failed` (the instrumentation failed).",
        _OURSELVES,
    ),
)

_GPU = "GPU sampler"

GPU_METRICS: Final = (
    MetricTerm(
        names.GPU_DRAM_UTILIZATION,
        "gauge",
        "Memory bandwidth in use, as a share of the peak; not the share of time in which memory"
        " was accessed.",
        _GPU,
    ),
    MetricTerm(names.GPU_DRAM_BANDWIDTH, "gauge", "Memory bandwidth in use.", _GPU),
    MetricTerm(
        names.GPU_SM_ACTIVITY, "gauge", "Share of time that multiprocessors were active.", _GPU
    ),
    MetricTerm(
        names.GPU_TENSOR_ACTIVITY, "gauge", "Share of time that tensor cores were active.", _GPU
    ),
    MetricTerm(names.GPU_MEMORY_USED, "gauge", "Memory in use by all processes.", _GPU),
    MetricTerm(names.GPU_MEMORY_TOTAL, "gauge", "Memory installed.", _GPU),
    MetricTerm(names.GPU_POWER, "gauge", "Power draw.", _GPU),
    MetricTerm(names.GPU_ENERGY, "sum", "Energy used since the driver was loaded.", _GPU),
    MetricTerm(names.GPU_SM_CLOCK, "gauge", "Clock of the multiprocessors.", _GPU),
    MetricTerm(names.GPU_SM_CLOCK_MAX, "gauge", "Maximum clock of the multiprocessors.", _GPU),
    MetricTerm(names.GPU_MEMORY_CLOCK, "gauge", "Clock of the memory.", _GPU),
    MetricTerm(
        names.GPU_THROTTLED,
        "gauge",
        f"Number of reasons that limit the clock; `{names.GPU_THROTTLE_REASONS}` lists them.",
        _GPU,
    ),
    MetricTerm(
        names.GPU_FOREIGN_PROCESSES,
        "gauge",
        "Processes that use it and do not belong to the replica.",
        _GPU,
    ),
    *(
        MetricTerm(name, "gauge", f"Bytes {what} over {link}.", _GPU)
        for name, what, link in (
            (names.GPU_PCIE_RECEIVED, "received", "PCIe"),
            (names.GPU_PCIE_SENT, "sent", "PCIe"),
            (names.GPU_NVLINK_RECEIVED, "received", "all NVLink links"),
            (names.GPU_NVLINK_SENT, "sent", "all NVLink links"),
        )
    ),
)

GPU_ATTRIBUTES: Final = (
    Term(names.GPU, "text", "Its UUID, or its index if it has none.", _GPU),
    Term(names.GPU_MODEL, "text", "The product name, such as `NVIDIA H100 80GB HBM3`.", _GPU),
    Term(names.GPU_SOURCE, "text", "The source: `nvml`, `dcgm`, `amd_smi`.", _GPU),
    Term(
        names.GPU_THROTTLE_REASONS,
        "text",
        f"The reasons of `{names.GPU_THROTTLED}`, sorted, joined by commas; empty for none.",
        _GPU,
    ),
)
