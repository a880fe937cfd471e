"""What each name of `names.py` means: its unit, and where its value comes from.

Data, complete by test; `vocabulary_page.py` makes docs/attributes.md of it. Nothing that runs
inside vLLM imports it.
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
        "The name under which the model is served; absent where another one was asked for, of"
        " which there is none (status 404): what a client makes up is no label.",
        "vLLM's config",
    ),
    Term(names.RESPONSE_ID, "text", "The id in the answer.", _STATE),
    Term(
        names.FINISH_REASONS,
        "texts",
        "`stop` or `length`; absent where the answer was not finished.",
        _STATE,
    ),
    Term(names.INPUT_TOKENS, "{token}", "Tokens of the prompt.", _STATE),
    Term(names.OUTPUT_TOKENS, "{token}", "Tokens made, also for an answer cut short.", _STATS),
    Term(
        names.CACHE_READ_INPUT_TOKENS,
        "{token}",
        "Tokens of the prompt that a prefix cache spared.",
        _STATE,
    ),
    Term(
        names.EXTERNAL_CACHED_TOKENS,
        "{token}",
        "Of those, the ones that a KV connector brought from outside the engine; the others were"
        " in the engine's own cache.",
        "step ledger",
    ),
    Term(names.HTTP_ROUTE, "text", "The route's template.", _HTTP),
    Term(names.HTTP_STATUS_CODE, "integer", "Status of the answer; absent if none began.", _HTTP),
    Term(
        names.ERROR_TYPE,
        "text",
        "Of a request refused before the engine its status, or the limit that was reached, as"
        " in `max_num_queued_reqs`; `engine_silent` where the engine never said how it ended.",
        _HTTP,
    ),
    Term(
        names.OUTCOME,
        "text",
        "`stop`, `length`, `abort` (the client left), `error`, or `rejected` (refused"
        " before the engine); `stop` for any whole answer where `tailspan.basis` is `edge`."
        " A span that has it is a request.",
        _STATE,
    ),
    Term(
        names.BASIS,
        "text",
        "`http`: received and delivered were seen at the HTTP edge. `engine`: they are the"
        " front end's first and last sight of the request. `edge`: the HTTP edge alone was"
        " seen, for the instrumentation doesn't fit this vLLM's inside.",
        _OURSELVES,
    ),
    Term(names.STREAMED, "boolean", "Whether the answer was an event stream.", _HTTP),
    Term(
        names.TENANT,
        "text",
        "Who asks, as the header named by `TAILSPAN_TENANT_HEADER` says.",
        _HEADER,
    ),
    Term(names.LORA, "text", "The adapter asked for.", _STATE),
    Term(
        names.CONFIG,
        "text",
        "Fingerprint of the engine arguments that matter to latency.",
        "vLLM's config",
    ),
    Term(
        names.ENGINE,
        "integer",
        "Index of the engine; absent where the front end serves several and the ledger did not"
        " tell.",
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
        "Of the front end: handed to the engine → noted by it, which it does between two steps;"
        " a long step or a pause of the engine holds a request up here.",
        _STATS,
    ),
    *(
        Term(name, "s", f"Of the queue: {meaning}", _LEDGER)
        for name, meaning in zip(
            names.QUEUE_PARTS,
            (
                "the batch was at `max_num_seqs`.",
                "there were no free KV-cache blocks for it.",
                "the step's tokens were spent on others.",
                "it was not eligible itself: its adapter, its cache or its grammar was not"
                " there yet, or the engine was paused.",
                "nothing; it waited for the step under way to end.",
            ),
            strict=True,
        )
    ),
    *(
        Term(f"tailspan.{phase}.{part}", "s", f"Of {phase}: {meaning}", _LEDGER)
        for phase in ("prefill", "decode")
        for part, meaning in (
            ("own", "what its steps would have taken for this request alone."),
            ("others_prefill", "what prefills of other requests added to its steps."),
            ("others_decode", "what decodes of other requests added to its steps."),
            ("preempted", "evicted, waiting to come back, computing again what was lost."),
            ("stall", "step time that no scheduled work explains."),
        )
    ),
    Term(
        names.TTFT,
        "s",
        "received → first byte of the answer, or first token where the HTTP layer is unseen."
        " An answer that is not streamed has its first byte at its end; one without a token"
        " has no TTFT.",
        _INSTANTS,
    ),
    Term(
        names.ITL_MAX,
        "s",
        "The longest wait for a next token; absent for one token or none.",
        _LEDGER,
    ),
    Term(
        names.REPORTED_IN_FLIGHT,
        "s",
        "How long the request had run when it was last reported in flight; absent if it never was.",
        _HTTP,
    ),
    Term(
        names.OTHERS_PREFILL_TOKENS_MAX,
        "{token}",
        "The most prompt tokens of other requests that were computed in one of its steps.",
        _LEDGER,
    ),
    Term(
        names.BILLED,
        "s",
        "Of its engine's steps, the share that was its work: those of all requests in a step sum"
        " to the step. What all GPUs of the engine cost for so long is what the request cost.",
        _LEDGER,
    ),
    Term(
        names.WASTED,
        "s",
        "Likewise, what was computed again because an eviction had thrown it away.",
        _LEDGER,
    ),
    Term(names.PREEMPTIONS, "{preemption}", "Times it was evicted.", "vLLM's engine events"),
    Term(
        names.WAITING_AT_ARRIVAL,
        "{request}",
        "Requests waiting when it came, as of the last step told; absent, like the next two,"
        " where the front end serves several engines.",
        _SCHEDULER,
    ),
    Term(names.RUNNING_AT_ARRIVAL, "{request}", "Requests in the batch then.", _SCHEDULER),
    Term(names.KV_USAGE_AT_ARRIVAL, "1", "Share of KV-cache blocks in use then.", _SCHEDULER),
)

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


class MetricTerm(NamedTuple):
    """One metric; its unit is in `names.UNITS`."""

    name: str
    shape: str
    meaning: str
    source: str


_OF_THE_MODEL = (
    "seconds of any step",
    *(
        "seconds for each " + unit
        for unit in (
            "prompt token computed",
            "unit of prefill attention, Σ p·(start + p/2) over the chunks",
            "token of context that decodes read",
            "sequence that decodes",
        )
    ),
)

METRICS: Final = (
    MetricTerm(names.WAITING, "gauge", "Requests waiting, for whatever reason.", _SCHEDULER),
    MetricTerm(
        names.DEFERRED,
        "gauge",
        "Of those waiting, the ones that a passing constraint holds back.",
        _SCHEDULER,
    ),
    MetricTerm(names.RUNNING, "gauge", "Requests in the batch.", _SCHEDULER),
    MetricTerm(
        names.WAITING_LORAS,
        "gauge",
        "Requests waiting that ask for an adapter; absent where none is served.",
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
    MetricTerm(names.LONGEST_STEP, "gauge", "Longest step since the sample before.", _LEDGER),
    *(
        MetricTerm(name, "gauge", f"Step model, {letter}: {meaning}.", _LEDGER)
        for name, letter, meaning in zip(names.STEP_MODEL, "γακβδ", _OF_THE_MODEL, strict=True)
    ),
    MetricTerm(
        names.STEP_MODEL_ERROR,
        "gauge",
        "Typical error on steps not yet learnt from, relative to the prediction.",
        _LEDGER,
    ),
    MetricTerm(
        names.STEP_MODEL_R_SQUARED,
        "gauge",
        "Share of the variance of such steps that was predicted; below zero for a poor fit.",
        _LEDGER,
    ),
    MetricTerm(
        names.HOST_CPUS,
        "gauge",
        "Processors of the machine. Told, like the four sums of processor time below, where the"
        " operating system says so: on Linux.",
        _SYSTEM,
    ),
    MetricTerm(names.STEPS, "sum", "Steps taken.", _LEDGER),
    MetricTerm(names.BUSY_TIME, "sum", "Time in steps.", _LEDGER),
    MetricTerm(names.STALL_TIME, "sum", "Step time that no scheduled work explains.", _LEDGER),
    MetricTerm(
        names.SCHEDULED_PREFILL_TOKENS,
        "sum",
        "Prompt tokens computed, counted step by step, partial chunks included.",
        _LEDGER,
    ),
    MetricTerm(
        names.PREFILL_ATTENTION,
        "sum",
        "Attention of the prompt tokens computed: Σ p·(start + p/2) over the chunks, token by"
        " token of context.",
        _LEDGER,
    ),
    MetricTerm(names.CONTEXT_TOKENS, "sum", "Tokens of context that decodes have read.", _LEDGER),
    MetricTerm(
        names.SCHEDULED_DECODES,
        "sum",
        "Sequences that decoded, counted step by step; with speculative decoding each makes"
        " several tokens.",
        _LEDGER,
    ),
    MetricTerm(
        names.PREFILL_TOKENS,
        "sum",
        "Prompt tokens computed, counted when a prefill is complete; before vLLM 0.16"
        " cached ones are among them.",
        _ITERATION,
    ),
    MetricTerm(names.DECODE_TOKENS, "sum", "Output tokens made.", _ITERATION),
    MetricTerm(
        names.PREFIX_CACHE_QUERIES,
        "sum",
        "Prompt tokens looked up in the engine's own prefix cache.",
        _SCHEDULER,
    ),
    MetricTerm(names.PREFIX_CACHE_HITS, "sum", "Those found there.", _SCHEDULER),
    MetricTerm(
        names.EXTERNAL_CACHE_QUERIES,
        "sum",
        "Prompt tokens looked up in a cache outside the engine; absent without one.",
        _SCHEDULER,
    ),
    MetricTerm(names.EXTERNAL_CACHE_HITS, "sum", "Those found there.", _SCHEDULER),
    MetricTerm(
        names.LOCAL_CACHED_PROMPT_TOKENS,
        "sum",
        "Prompt tokens spared by the engine's own cache, counted when a prefill is complete;"
        " absent before vLLM 0.16, like the next.",
        _ITERATION,
    ),
    MetricTerm(
        names.EXTERNAL_CACHED_PROMPT_TOKENS,
        "sum",
        "Prompt tokens that came from outside the engine, counted likewise.",
        _ITERATION,
    ),
    MetricTerm(
        names.KV_TRANSFER_BYTES,
        "sum",
        "Bytes of KV cache that a connector moved, to and fro; told of NIXL and offloading"
        " connectors, like the next two.",
        _SCHEDULER,
    ),
    MetricTerm(
        names.KV_TRANSFER_TIME,
        "sum",
        "Time of those transfers, overlapping ones added.",
        _SCHEDULER,
    ),
    MetricTerm(names.KV_TRANSFER_FAILURES, "sum", "Transfers that failed.", _SCHEDULER),
    MetricTerm(names.ENGINE_PREEMPTIONS, "sum", "Evictions from the batch.", _ITERATION),
    MetricTerm(names.DRAFTS, "sum", "Speculative drafts made.", _SCHEDULER),
    MetricTerm(names.DRAFT_TOKENS, "sum", "Tokens drafted.", _SCHEDULER),
    MetricTerm(names.ACCEPTED_TOKENS, "sum", "Drafted tokens accepted.", _SCHEDULER),
    MetricTerm(
        names.MODELLED_FLOPS,
        "sum",
        "FLOPs of each GPU by vLLM's own model; with `--enable-mfu-metrics`.",
        _SCHEDULER,
    ),
    MetricTerm(names.MODELLED_READ_BYTES, "sum", "Bytes read from memory, likewise.", _SCHEDULER),
    MetricTerm(names.MODELLED_WRITE_BYTES, "sum", "Bytes written to memory, likewise.", _SCHEDULER),
    MetricTerm(
        names.PROCESS_CPU_TIME,
        "sum",
        "Processor time of the process that reports, such as the API server; with each of its"
        " engines.",
        _SYSTEM,
    ),
    MetricTerm(
        names.CORE_CPU_TIME,
        "sum",
        "Processor time of the engine core's process; where that is the process that reports,"
        " the same.",
        _SYSTEM,
    ),
    MetricTerm(
        names.HOST_BUSY_TIME,
        "sum",
        "Processor time spent on anything by the machine's processors together, but for what"
        " was stolen.",
        _SYSTEM,
    ),
    MetricTerm(
        names.HOST_STEAL_TIME,
        "sum",
        "Processor time that a hypervisor gave to other machines while this one wanted it.",
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
        "Exceptions of the instrumentation, none of which reached vLLM, and what it refused or"
        f" dropped on its link to the engine core; by `{names.HOOK}`.",
        _OURSELVES,
    ),
    MetricTerm(
        names.ACCOUNTS_DROPPED,
        "sum",
        "Accounts that a front end did not get, summed over the front ends: it read too slowly,"
        " or the engine core could not follow the request.",
        _OURSELVES,
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

GPU_METRICS: Final = (
    MetricTerm(
        names.GPU_DRAM_UTILIZATION,
        "gauge",
        "Memory bandwidth in use, as a share of the peak; never the share of time in which"
        " memory was touched.",
        _GPU,
    ),
    MetricTerm(names.GPU_DRAM_BANDWIDTH, "gauge", "Memory bandwidth in use.", _GPU),
    MetricTerm(
        names.GPU_SM_ACTIVITY, "gauge", "Share of time that multiprocessors were at work.", _GPU
    ),
    MetricTerm(
        names.GPU_TENSOR_ACTIVITY, "gauge", "Share of time that tensor cores were at work.", _GPU
    ),
    MetricTerm(names.GPU_MEMORY_USED, "gauge", "Memory in use, whosever it is.", _GPU),
    MetricTerm(names.GPU_MEMORY_TOTAL, "gauge", "Memory there is.", _GPU),
    MetricTerm(names.GPU_POWER, "gauge", "Power drawn.", _GPU),
    MetricTerm(names.GPU_ENERGY, "sum", "Energy used since the driver was loaded.", _GPU),
    MetricTerm(names.GPU_SM_CLOCK, "gauge", "Clock of the multiprocessors.", _GPU),
    MetricTerm(names.GPU_SM_CLOCK_MAX, "gauge", "The highest that clock may be.", _GPU),
    MetricTerm(names.GPU_MEMORY_CLOCK, "gauge", "Clock of the memory.", _GPU),
    MetricTerm(
        names.GPU_THROTTLED,
        "gauge",
        f"How many reasons hold the clock back; which, says `{names.GPU_THROTTLE_REASONS}`.",
        _GPU,
    ),
    MetricTerm(
        names.GPU_FOREIGN_PROCESSES,
        "gauge",
        "Processes at work on it that are not the replica's.",
        _GPU,
    ),
    *(
        MetricTerm(name, "gauge", f"{what} over {link}.", _GPU)
        for name, what, link in (
            (names.GPU_PCIE_RECEIVED, "Received", "PCIe"),
            (names.GPU_PCIE_SENT, "Sent", "PCIe"),
            (names.GPU_NVLINK_RECEIVED, "Received", "NVLink, all links together"),
            (names.GPU_NVLINK_SENT, "Sent", "NVLink, all links together"),
        )
    ),
)

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
