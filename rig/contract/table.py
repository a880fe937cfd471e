"""The contract: one row for every name inside vLLM that `tailspan-vllm` uses.

Sources: the file in instrumentation/tailspan_vllm that `read_by` names, and vLLM 0.12 to 0.33.
"""

from dataclasses import dataclass

from rig.contract.requirements import (
    Attribute,
    Attributes,
    Contains,
    Named,
    ProcessName,
    RequiredConstant,
    RequiredMethod,
    Requirement,
)

FIRST, LAST = (0, 12), (0, 33)
"""The oldest and the newest supported minor version."""

ENGINE = ("vllm/v1/engine/__init__.py",)
REQUEST = ("vllm/v1/request.py",)
CLIENT = ("vllm/v1/engine/core_client.py",)
OUTPUTS = ("vllm/v1/engine/output_processor.py",)
STATS = ("vllm/v1/metrics/stats.py",)
LOGGERS = ("vllm/v1/metrics/loggers.py",)
SCHEDULER = ("vllm/v1/core/sched/scheduler.py",)
PLAN = ("vllm/v1/core/sched/output.py",)
PARALLEL = ("vllm/config/parallel.py",)
BLOCK_HASHING = ("vllm/v1/core/kv_cache_utils.py",)
PLUGINS = ("vllm/plugins/__init__.py",)
APP_STATE = (
    "vllm/entrypoints/launchers/api_server/app_state.py",
    "vllm/entrypoints/openai/api_server.py",
)


@dataclass(frozen=True, slots=True)
class Hook:
    """One name inside vLLM that the plugin uses.

    Attributes:
        where: the modules that contain the name in a supported version.
        read_by: the file of `tailspan_vllm` that uses the name.
        otherwise: the effect on Tailspan if the name is missing or different. None means that the
            name is required: the plugin uses it without a check. The text "the same effect as for
            OTHER" means that the plugin uses the name only if OTHER exists.
    """

    what: str
    requirement: Requirement
    where: tuple[str, ...]
    read_by: str
    otherwise: str | None = None


_FRONT_END = (
    Hook(
        "OutputProcessor.add_request",
        RequiredMethod(
            "OutputProcessor",
            "add_request",
            takes=("request",),
            called_on=("output_processor",),
            called_in=("vllm/v1/engine",),
        ),
        OUTPUTS,
        "front_end/request_hooks.py",
    ),
    Hook(
        "OutputProcessor._finish_request",
        RequiredMethod(
            "OutputProcessor",
            "_finish_request",
            takes=("req_state",),
            called_on=("self",),
            called_in=OUTPUTS,
        ),
        OUTPUTS,
        "front_end/request_hooks.py",
        otherwise=(
            "no effect: a vLLM without this method reports the end of each request, with the reason"
        ),
    ),
    Hook(
        "OutputProcessor._update_stats_from_finished",
        RequiredMethod(
            "OutputProcessor",
            "_update_stats_from_finished",
            takes=("req_state", "finish_reason"),
            called_on=("self",),
            called_in=OUTPUTS,
        ),
        OUTPUTS,
        "front_end/request_hooks.py",
    ),
    Hook(
        "OutputProcessor.abort_requests",
        RequiredMethod("OutputProcessor", "abort_requests", returns="list[str]"),
        OUTPUTS,
        "front_end/request_hooks.py",
    ),
    Hook(
        "OutputProcessor.request_states",
        Attributes("OutputProcessor", ("request_states",)),
        OUTPUTS,
        "front_end/request_hooks.py",
    ),
    Hook(
        "EngineCoreRequest: id, trace headers",
        Attributes("EngineCoreRequest", ("request_id", "trace_headers")),
        ENGINE,
        "front_end/request_hooks.py",
    ),
    Hook(
        "RequestState: id, prompt, LoRA, stats",
        Attributes(
            "RequestState",
            ("request_id", "lora_name", "prompt_len", "num_cached_tokens", "stats"),
            settable=True,
        ),
        OUTPUTS,
        "front_end/capture.py",
    ),
    Hook(
        "RequestState.num_cache_creation_tokens",
        Attributes("RequestState", ("num_cache_creation_tokens",)),
        OUTPUTS,
        "front_end/capture.py",
        otherwise=(
            "the number of tokens written to the prefix cache (`cache_write_tokens`) is unknown"
        ),
    ),
    Hook(
        "RequestState.remote_prefill_cached_tokens",
        Attributes("RequestState", ("remote_prefill_cached_tokens",)),
        OUTPUTS,
        "front_end/capture.py",
        otherwise=(
            "no effect: a vLLM without this attribute never reports a prefill server's cached"
            " tokens in place of its own"
        ),
    ),
    Hook(
        "RequestState.external_req_id",
        Attributes("RequestState", ("external_req_id",)),
        OUTPUTS,
        "front_end/capture.py",
        otherwise=(
            "the engine's request id is reported; up to 0.13, it equals the client's request id"
        ),
    ),
    Hook(
        "RequestStateStats: instants, tokens",
        Attributes(
            "RequestStateStats",
            (
                "arrival_time",
                "queued_ts",
                "scheduled_ts",
                "first_token_ts",
                "last_token_ts",
                "num_generation_tokens",
            ),
            settable=True,
        ),
        STATS,
        "front_end/capture.py",
    ),
    Hook(
        "IterationStats.update_from_events",
        RequiredMethod(
            "IterationStats",
            "update_from_events",
            takes=("req_id", "events", "is_prefilling", "req_stats"),
            called_on=("self",),
            called_in=STATS,
        ),
        STATS,
        "front_end/request_hooks.py",
        otherwise="a request's span has no preemptions",
    ),
    Hook(
        "StatLoggerManager.record_admission_rejection",
        RequiredMethod(
            "StatLoggerManager",
            "record_admission_rejection",
            takes=("reason",),
            called_on=("logger_manager",),
            called_in=("vllm/v1/engine",),
        ),
        LOGGERS,
        "front_end/request_hooks.py",
        otherwise=(
            "no effect: a vLLM without this method never refuses a request because its queue is"
            " full"
        ),
    ),
    Hook(
        "DPLBAsyncMPClient.get_core_engine_for_request",
        RequiredMethod(
            "DPLBAsyncMPClient",
            "get_core_engine_for_request",
            takes=("request",),
            called_on=("self",),
            called_in=CLIENT,
            returns="EngineIdentity",
        ),
        CLIENT,
        "front_end/request_hooks.py",
        otherwise=(
            "with several engines: only the engine core reports a request's engine, the load on"
            " arrival is unknown, and a hang is found only if no engine takes a step"
        ),
    ),
    Hook(
        "EngineCoreEvent: type, timestamp",
        Attributes("EngineCoreEvent", ("type", "timestamp")),
        ENGINE,
        "front_end/request_hooks.py",
    ),
    Hook(
        "EngineCoreEventType: SCHEDULED, PREEMPTED",
        Attributes("EngineCoreEventType", ("SCHEDULED", "PREEMPTED")),
        ENGINE,
        "front_end/request_hooks.py",
    ),
    Hook(
        "FinishReason: known reasons",
        RequiredConstant(
            "FINISH_REASON_STRINGS", ("stop", "length", "abort", "error", "repetition")
        ),
        ENGINE,
        "front_end/request_hooks.py",
        otherwise="an unknown finish reason is reported as an error",
    ),
    Hook(
        "A request ends in _update_stats_from_finished",
        Contains("OutputProcessor.process_outputs", ("error.to_exception()",), never=True),
        OUTPUTS,
        "front_end/request_hooks.py",
        otherwise=(
            "a request that the engine core refuses ends without this call, and is reported as an"
            " error"
        ),
    ),
    Hook(
        "EngineCoreRequest.resumable",
        Attributes("EngineCoreRequest", ("resumable",)),
        ENGINE,
        "front_end/request_hooks.py",
        otherwise="no effect: a vLLM without this attribute has no sessions with streaming input",
    ),
)

_PLUGIN = (
    Hook(
        "Group vllm.general_plugins",
        RequiredConstant("DEFAULT_PLUGINS_GROUP", ("vllm.general_plugins",)),
        PLUGINS,
        "plugin.py",
    ),
    Hook(
        "Plugin loaded where arguments are read",
        Contains("EngineArgs.__post_init__", ("load_general_plugins()",)),
        ("vllm/engine/arg_utils.py",),
        "plugin.py",
    ),
    Hook(
        "Plugin loaded in the engine core",
        Contains("EngineCore.__init__", ("load_general_plugins()",)),
        ("vllm/v1/engine/core.py",),
        "plugin.py",
    ),
    Hook(
        "Group vllm.stat_logger_plugins",
        RequiredConstant("STAT_LOGGER_PLUGINS_GROUP", ("vllm.stat_logger_plugins",)),
        PLUGINS,
        "statlogger.py",
    ),
    Hook(
        "Stat logger loaded by AsyncLLM",
        Contains("AsyncLLM.__init__", ("load_stat_logger_plugin_factories()",)),
        ("vllm/v1/engine/async_llm.py",),
        "statlogger.py",
    ),
    Hook(
        "Process name EngineCore…",
        ProcessName("EngineCore"),
        ("vllm/v1/engine/utils.py",),
        "plugin.py",
    ),
    Hook(
        "Process name EngineCore_DP…",
        ProcessName("EngineCore_DP{}"),
        ("vllm/v1/engine/utils.py",),
        "plugin.py",
    ),
    Hook(
        "Process name APIServer_DPRank_…",
        ProcessName("APIServer_DPRank_{}"),
        (
            "vllm/entrypoints/launchers/dp_supervisor.py",
            "vllm/entrypoints/openai/dp_supervisor.py",
        ),
        "plugin.py",
        otherwise=(
            "no effect: a vLLM without this process has no `--data-parallel-multi-port-external-lb`"
        ),
    ),
    Hook(
        "Process name VllmWorker…",
        ProcessName("VllmWorker"),
        ("vllm/v1/executor/multiproc_executor.py",),
        "plugin.py",
        otherwise="workers have the front end's hooks, but never call them",
    ),
    Hook(
        "VLLM_ENABLE_V1_MULTIPROCESSING",
        Contains("LLMEngine.from_engine_args", ("envs.VLLM_ENABLE_V1_MULTIPROCESSING",)),
        ("vllm/v1/engine/llm_engine.py",),
        "plugin.py",
        otherwise="an engine inside the caller's own process has no step ledger",
    ),
    Hook(
        "app.state.args",
        Contains("init_app_state", ("state.args = args",)),
        APP_STATE,
        "plugin.py",
        otherwise="a replica's default name lacks the port",
    ),
)

_STAT_LOGGER = (
    Hook(
        "StatLoggerBase.__init__",
        RequiredMethod("StatLoggerBase", "__init__", takes=("vllm_config", "engine_index")),
        LOGGERS,
        "statlogger.py",
    ),
    Hook(
        "StatLoggerBase.record",
        RequiredMethod(
            "StatLoggerBase",
            "record",
            takes=("scheduler_stats", "iteration_stats"),
            called_on=("logger", "stat_logger", "per_engine_stat_loggers[engine_idx]"),
            called_in=LOGGERS,
        ),
        LOGGERS,
        "statlogger.py",
    ),
    Hook(
        "ParallelConfig._api_process_count",
        Attributes("ParallelConfig", ("_api_process_count",)),
        PARALLEL,
        "statlogger.py",
        otherwise=(
            "with several API servers: the numbers of running and waiting requests come from the"
            " statistics that one of these servers received last"
        ),
    ),
    Hook(
        "StatLoggerBase: log, log_engine_initialized",
        Attributes("StatLoggerBase", ("log", "log_engine_initialized")),
        LOGGERS,
        "statlogger.py",
    ),
    Hook(
        "SchedulerStats: running, waiting, KV usage, prefix cache",
        Attributes(
            "SchedulerStats",
            ("num_running_reqs", "num_waiting_reqs", "kv_cache_usage", "prefix_cache_stats"),
        ),
        STATS,
        "engine_state/step_statistics.py",
    ),
    Hook(
        "SchedulerStats.num_skipped_waiting_reqs",
        Attributes("SchedulerStats", ("num_skipped_waiting_reqs",)),
        STATS,
        "engine_state/step_statistics.py",
        otherwise=(
            "no effect: vLLM itself counts deferred requests, which it cannot schedule yet, as"
            " waiting"
        ),
    ),
    Hook(
        "SchedulerStats.connector_prefix_cache_stats",
        Attributes("SchedulerStats", ("connector_prefix_cache_stats",)),
        STATS,
        "engine_state/step_statistics.py",
        otherwise="hits in an external cache are not reported",
    ),
    Hook(
        "PrefixCacheStats.hits_by_source",
        Attributes("PrefixCacheStats", ("hits_by_source",)),
        STATS,
        "engine_state/step_statistics.py",
        otherwise="hits in an external cache are not divided by storage tier",
    ),
    Hook(
        "MultiModalCacheStats: queries, hits",
        Attributes("MultiModalCacheStats", ("queries", "hits")),
        STATS,
        "engine_state/step_statistics.py",
    ),
    Hook(
        "PrefixCacheStats: queries, hits",
        Attributes("PrefixCacheStats", ("queries", "hits")),
        STATS,
        "engine_state/step_statistics.py",
    ),
    Hook(
        "IterationStats: tokens, preemptions",
        Attributes(
            "IterationStats", ("num_generation_tokens", "num_prompt_tokens", "num_preempted_reqs")
        ),
        STATS,
        "engine_state/step_statistics.py",
    ),
    Hook(
        "IterationStats.prompt_token_stats",
        Attributes("IterationStats", ("prompt_token_stats",)),
        STATS,
        "engine_state/step_statistics.py",
        otherwise="prefill tokens include tokens found in the prefix cache",
    ),
    Hook(
        "SchedulerStats.kv_connector_stats",
        Attributes("SchedulerStats", ("kv_connector_stats",)),
        STATS,
        "engine_state/step_statistics.py",
        otherwise="transfers of a KV connector are not reported",
    ),
    Hook(
        "SchedulerStats.num_kv_fetch_reqs_by_stage",
        Attributes("SchedulerStats", ("num_kv_fetch_reqs_by_stage",)),
        STATS,
        "engine_state/step_statistics.py",
        otherwise="requests that fetch their KV cache count as waiting requests",
    ),
    Hook(
        "SchedulerStats: speculation, adapters",
        Attributes("SchedulerStats", ("spec_decoding_stats", "running_lora_adapters")),
        STATS,
        "engine_state/step_statistics.py",
        otherwise="the engine's samples lack drafted tokens, accepted tokens and adapters",
    ),
    Hook(
        "SchedulerStats.perf_stats",
        Attributes("SchedulerStats", ("perf_stats",)),
        STATS,
        "engine_state/step_statistics.py",
        otherwise="the FLOPs and bytes that vLLM estimates are not reported",
    ),
    Hook(
        "PromptTokenStats: computed, local, external",
        Attributes("PromptTokenStats", ("computed", "local_cache_hit", "external_kv_transfer")),
        STATS,
        "engine_state/step_statistics.py",
        otherwise="the same effect as for `IterationStats.prompt_token_stats`",
    ),
)

_ENGINE_CORE = (
    Hook(
        "Scheduler.schedule",
        RequiredMethod(
            "Scheduler",
            "schedule",
            returns="SchedulerOutput",
            overridden_in="vllm/v1/core/sched",
        ),
        SCHEDULER,
        "engine_core/scheduler_hooks.py",
    ),
    Hook(
        "Scheduler.add_request",
        RequiredMethod(
            "Scheduler",
            "add_request",
            takes=("request",),
            called_on=("scheduler",),
            called_in=("vllm/v1/engine",),
        ),
        SCHEDULER,
        "engine_core/scheduler_hooks.py",
    ),
    Hook(
        "Scheduler.update_from_output",
        RequiredMethod(
            "Scheduler",
            "update_from_output",
            takes=("scheduler_output",),
            called_on=("scheduler",),
            called_in=("vllm/v1/engine",),
            returns="EngineCoreOutputs]",
            overridden_in="vllm/v1/core/sched",
        ),
        SCHEDULER,
        "engine_core/scheduler_hooks.py",
    ),
    Hook(
        "Scheduler._free_request",
        RequiredMethod(
            "Scheduler",
            "_free_request",
            takes=("request",),
            called_on=("self",),
            called_in=("vllm/v1/core/sched",),
            overridden_in="vllm/v1/core/sched",
        ),
        SCHEDULER,
        "engine_core/scheduler_hooks.py",
    ),
    Hook(
        "Scheduler._preempt_request",
        RequiredMethod(
            "Scheduler",
            "_preempt_request",
            takes=("request",),
            called_on=("self",),
            called_in=("vllm/v1/core/sched",),
            overridden_in="vllm/v1/core/sched",
        ),
        SCHEDULER,
        "engine_core/scheduler_hooks.py",
        otherwise="the step ledger counts the time after an eviction as decoding",
    ),
    Hook(
        "Scheduler: requests, has_unfinished_requests",
        Attributes("Scheduler", ("requests", "has_unfinished_requests")),
        SCHEDULER,
        "engine_core/observer.py",
    ),
    Hook(
        "schedule() calls _update_after_schedule()",
        Contains("Scheduler.schedule", ("self._update_after_schedule(",)),
        SCHEDULER,
        "engine_core/observer.py",
    ),
    Hook(
        "_update_after_schedule() adds the step's tokens to num_computed_tokens",
        Contains(
            "Scheduler._update_after_schedule",
            ("request.num_computed_tokens += num_scheduled_token",),
        ),
        SCHEDULER,
        "engine_core/observer.py",
    ),
    Hook(
        "SchedulerOutput: tokens, new and cached requests",
        Attributes(
            "SchedulerOutput",
            ("num_scheduled_tokens", "scheduled_new_reqs", "scheduled_cached_reqs"),
        ),
        PLAN,
        "engine_core/observer.py",
    ),
    Hook(
        "NewRequestData.req_id",
        Attributes("NewRequestData", ("req_id",)),
        PLAN,
        "engine_core/observer.py",
    ),
    Hook(
        "CachedRequestData.num_computed_tokens",
        Attributes("CachedRequestData", ("num_computed_tokens",)),
        PLAN,
        "engine_core/observer.py",
    ),
    Hook(
        "CachedRequestData.resumed_req_ids",
        Attributes("CachedRequestData", ("resumed_req_ids",)),
        PLAN,
        "engine_core/observer.py",
    ),
    Hook(
        "Resumed requests are never listed as new ones",
        Contains(
            "Scheduler.schedule",
            (
                "scheduled_new_reqs.extend(scheduled_resumed_reqs)",
                "scheduled_new_reqs + scheduled_resumed_reqs",
            ),
            never=True,
        ),
        SCHEDULER,
        "engine_core/observer.py",
        otherwise="no effect: the ledger recognises resumed requests among the new ones",
    ),
    Hook(
        "Model runner V2 is disabled by default",
        Contains(
            "VllmConfig.use_v2_model_runner",
            ("self._is_default_v2_model_runner_model()", "return True"),
            never=True,
        ),
        ("vllm/config/vllm.py",),
        "engine_core/observer.py",
        otherwise="no effect: resumed requests are listed as new ones by default, and the ledger"
        " recognises them",
    ),
    Hook(
        "Request: id, tokens",
        Attributes("Request", ("request_id", "num_computed_tokens", "num_tokens")),
        ("vllm/v1/request.py",),
        "engine_core/observer.py",
    ),
    Hook(
        "Request.status",
        Attributes("Request", ("status",)),
        ("vllm/v1/request.py",),
        "engine_core/queue_obstacles.py",
    ),
    Hook(
        "Scheduler: waiting, running",
        Attributes("Scheduler", ("waiting", "running")),
        SCHEDULER,
        "engine_core/engine_reports.py",
    ),
    Hook(
        "Scheduler.vllm_config",
        Attributes("Scheduler", ("vllm_config",)),
        SCHEDULER,
        "engine_core/observer.py",
    ),
    Hook(
        "Scheduler.skipped_waiting",
        Attributes("Scheduler", ("skipped_waiting",)),
        SCHEDULER,
        "engine_core/queue_obstacles.py",
        otherwise=(
            "deferred requests are in the queue of waiting requests; from 0.31 on, "
            "`Scheduler.deferred_waiting` distinguishes them"
        ),
    ),
    Hook(
        "Scheduler.deferred_waiting",
        Attributes("Scheduler", ("deferred_waiting",)),
        SCHEDULER,
        "engine_core/queue_obstacles.py",
        otherwise=(
            "up to 0.17, deferred requests are reported with the reason of the first request in"
            " the queue; from 0.18 to 0.30, `Scheduler.skipped_waiting` contains the deferred"
            " requests"
        ),
    ),
    Hook(
        "RequestStatus: a KV cache is loaded",
        Attributes("RequestStatus", ("WAITING_FOR_REMOTE_KVS",)),
        ("vllm/v1/request.py",),
        "engine_core/queue_obstacles.py",
    ),
    Hook(
        "Scheduler.finished_recving_kv_req_ids",
        Attributes("Scheduler", ("finished_recving_kv_req_ids",)),
        SCHEDULER,
        "engine_core/queue_obstacles.py",
    ),
    Hook(
        "RequestStatus.WAITING_FOR_FSM",
        Attributes("RequestStatus", ("WAITING_FOR_FSM",)),
        ("vllm/v1/request.py",),
        "engine_core/queue_obstacles.py",
        otherwise=(
            "the same effect as for `RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR`: none,"
            " because each version has one of these two names"
        ),
    ),
    Hook(
        "RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
        Attributes("RequestStatus", ("WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",)),
        ("vllm/v1/request.py",),
        "engine_core/queue_obstacles.py",
        otherwise=(
            "the same effect as for `RequestStatus.WAITING_FOR_FSM`: none, because each version has"
            " one of these two names"
        ),
    ),
    Hook(
        "StructuredOutputRequest._grammar",
        Attributes("StructuredOutputRequest", ("_grammar",)),
        ("vllm/v1/structured_output/request.py",),
        "engine_core/queue_obstacles.py",
        otherwise="the reported wait for a grammar ends only when the batch has room",
    ),
    Hook(
        "Scheduler.lora_config",
        Attributes("Scheduler", ("lora_config",)),
        SCHEDULER,
        "engine_core/queue_obstacles.py",
        otherwise="the time for which a request waits for a slot of its adapter is not reported",
    ),
    Hook(
        "Scheduler: connectors",
        Attributes("Scheduler", ("connector", "ec_connector")),
        SCHEDULER,
        "engine_core/queue_obstacles.py",
        otherwise="the wait for a lookup in an external cache does not count as held time",
    ),
    Hook(
        "Scheduler.max_num_encoder_input_tokens",
        Attributes("Scheduler", ("max_num_encoder_input_tokens",)),
        SCHEDULER,
        "engine_core/observer.py",
        otherwise="the time of the encoder is not reported",
    ),
    Hook(
        "SchedulerOutput.scheduled_encoder_inputs",
        Attributes("SchedulerOutput", ("scheduled_encoder_inputs",)),
        PLAN,
        "engine_core/encoder_inputs.py",
        otherwise="the time of the encoder counts as a stall",
    ),
    Hook(
        "Request.mm_features",
        Attributes("Request", ("mm_features",)),
        ("vllm/v1/request.py",),
        "engine_core/encoder_inputs.py",
    ),
    Hook(
        "KVCacheGroupSpec: layers, specification",
        Attributes("KVCacheGroupSpec", ("layer_names", "kv_cache_spec")),
        ("vllm/v1/kv_cache_interface.py",),
        "engine_core/kv_loads.py",
    ),
    Hook(
        "KVCacheSpec: block size, bytes",
        Attributes("KVCacheSpec", ("block_size", "page_size_bytes")),
        ("vllm/v1/kv_cache_interface.py",),
        "engine_core/kv_loads.py",
    ),
    Hook(
        "schedule() asks the connector for the tiers of a hit",
        Contains("Scheduler.schedule", ("self.connector.get_external_cache_hit_sources(",)),
        SCHEDULER,
        "engine_core/kv_loads.py",
        otherwise="the storage tier of a loaded KV cache is not reported",
    ),
    Hook(
        "Scheduler: limits, memory",
        Attributes(
            "Scheduler",
            (
                "max_num_running_reqs",
                "max_num_scheduled_tokens",
                "scheduler_config",
                "kv_cache_manager",
            ),
        ),
        SCHEDULER,
        "engine_core/queue_obstacles.py",
    ),
    Hook(
        "Scheduler.max_num_active_reqs",
        Attributes("Scheduler", ("max_num_active_reqs",)),
        SCHEDULER,
        "engine_core/queue_obstacles.py",
        otherwise="no effect: the limit is read from the row `Scheduler: limits, memory`",
    ),
    Hook(
        "Request.resumable",
        Attributes("Request", ("resumable",)),
        REQUEST,
        "engine_core/observer.py",
        otherwise="no effect: a vLLM without this attribute has no sessions with streaming input",
    ),
    Hook(
        "Scheduler.num_waiting_for_streaming_input",
        Attributes("Scheduler", ("num_waiting_for_streaming_input",)),
        SCHEDULER,
        "engine_core/queue_obstacles.py",
        otherwise=(
            "no effect: in a vLLM without this attribute, a request that waits for streaming input"
            " occupies no slot in the batch"
        ),
    ),
    Hook(
        "Scheduler._pause_state",
        Attributes("Scheduler", ("_pause_state",)),
        SCHEDULER,
        "engine_core/queue_obstacles.py",
        otherwise="no effect: in a vLLM without this attribute, the scheduler cannot be paused",
    ),
    Hook(
        "schedule() stops at the limit of requests",
        Contains(
            "Scheduler.schedule",
            (
                "len(self.running) == self.max_num_running_reqs",
                "num_running >= self.max_num_running_reqs",
                "num_running >= self.max_num_active_reqs",
            ),
        ),
        SCHEDULER,
        "engine_core/queue_obstacles.py",
    ),
    Hook(
        "KVCacheManager: its blocks",
        Attributes("KVCacheManager", ("block_pool", "kv_cache_config")),
        ("vllm/v1/core/kv_cache_manager.py",),
        "engine_core/queue_obstacles.py",
    ),
    Hook(
        "BlockPool.get_num_free_blocks",
        Attributes("BlockPool", ("get_num_free_blocks",)),
        ("vllm/v1/core/block_pool.py",),
        "engine_core/queue_obstacles.py",
    ),
    Hook(
        "RequestQueue.peek_request",
        Attributes("RequestQueue", ("peek_request",)),
        ("vllm/v1/core/sched/request_queue.py",),
        "engine_core/queue_obstacles.py",
    ),
    Hook(
        "Request.lora_request",
        Attributes("Request", ("lora_request",)),
        ("vllm/v1/request.py",),
        "engine_core/engine_reports.py",
    ),
    Hook(
        "Request.num_external_computed_tokens",
        Attributes("Request", ("num_external_computed_tokens",)),
        ("vllm/v1/request.py",),
        "engine_core/waiting_requests.py",
        otherwise="no effect: `Request.prefill_stats` reports the number",
    ),
    Hook(
        "Request.prefill_stats",
        Attributes("Request", ("prefill_stats",)),
        ("vllm/v1/request.py",),
        "engine_core/waiting_requests.py",
        otherwise="no effect: `Request.num_external_computed_tokens` reports the number",
    ),
    Hook(
        "PrefillStats.num_external_cached_tokens",
        Attributes("PrefillStats", ("num_external_cached_tokens",)),
        STATS,
        "engine_core/observer.py",
        otherwise="the same effect as for `Request.prefill_stats`",
    ),
    Hook(
        "Request.block_hashes",
        Attributes("Request", ("block_hashes",)),
        ("vllm/v1/request.py",),
        "engine_core/observer.py",
        otherwise="no prefix ladders",
    ),
    Hook(
        "Scheduler.hash_block_size",
        Attributes("Scheduler", ("hash_block_size",)),
        SCHEDULER,
        "engine_core/block_hashes.py",
        otherwise=(
            "`Scheduler.block_size` is used instead; requests with blocks of several sizes have no "
            "prefix ladder"
        ),
    ),
    Hook(
        "Scheduler.block_size",
        Attributes("Scheduler", ("block_size",)),
        SCHEDULER,
        "engine_core/block_hashes.py",
        otherwise="no prefix ladders",
    ),
    Hook(
        "kv_cache_utils.NONE_HASH",
        Contains("init_none_hash", ("NONE_HASH = BlockHash(",)),
        BLOCK_HASHING,
        "engine_core/block_hashes.py",
        otherwise="no prefix ladders",
    ),
    Hook(
        "The hash of the empty prompt is the same on all servers",
        Contains("init_none_hash", ("os.urandom",), never=True),
        BLOCK_HASHING,
        "engine_core/block_hashes.py",
        otherwise=(
            "ladders of two servers are comparable only with the same PYTHONHASHSEED; tailspan"
            " what-if reports ladders that are not comparable"
        ),
    ),
    Hook(
        "EngineCoreOutputs.timestamp",
        Attributes("EngineCoreOutputs", ("timestamp",)),
        ENGINE,
        "engine_core/observer.py",
    ),
)

_ENGINE_ONLY = (
    Hook(
        "VLLM_USE_RUST_FRONTEND",
        Named("VLLM_USE_RUST_FRONTEND"),
        ("vllm/envs.py",),
        "engine_only/detection.py",
        otherwise="no effect: this vLLM has no Rust front end",
    ),
    Hook(
        "Request: finish reason, tokens",
        Attributes("Request", ("get_finished_reason", "num_prompt_tokens", "num_output_tokens")),
        REQUEST,
        "engine_only/capture.py",
    ),
    Hook(
        "Request: trace headers, adapter, prefill statistics",
        Attributes("Request", ("trace_headers", "lora_request", "prefill_stats")),
        REQUEST,
        "engine_only/capture.py",
        otherwise="the rows of the Rust front end (since 0.22) lack these values",
    ),
    Hook(
        "PrefillStats.num_cached_tokens",
        Attributes("PrefillStats", ("num_cached_tokens",)),
        STATS,
        "engine_only/capture.py",
        otherwise="the same effect as for `Request: trace headers, adapter, prefill statistics`",
    ),
    Hook(
        "PrefillStats.num_cache_creation_tokens",
        Attributes("PrefillStats", ("num_cache_creation_tokens",)),
        STATS,
        "engine_only/capture.py",
        otherwise="no `cache_write_tokens` in the rows of the Rust front end",
    ),
    Hook(
        "Scheduler._kv_fetch_counts",
        Attributes("Scheduler", ("_kv_fetch_counts",)),
        SCHEDULER,
        "engine_core/engine_reports.py",
        otherwise="the same effect as for `SchedulerStats.num_kv_fetch_reqs_by_stage`",
    ),
    Hook(
        "KVCacheManager.usage",
        Attributes("KVCacheManager", ("usage",)),
        ("vllm/v1/core/kv_cache_manager.py",),
        "engine_core/engine_reports.py",
        otherwise="the KV cache usage at the arrival of a request is unknown",
    ),
    Hook(
        "EngineCoreOutputs.scheduler_stats",
        Attributes("EngineCoreOutputs", ("scheduler_stats",)),
        ENGINE,
        "engine_only/capture.py",
    ),
)

ARGUMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "model": ("ModelConfig", ("model", "dtype", "quantization", "max_model_len", "enforce_eager")),
    "cache": (
        "CacheConfig",
        (
            "block_size",
            "cache_dtype",
            "enable_prefix_caching",
            "gpu_memory_utilization",
            "num_gpu_blocks_override",
            "kv_cache_memory_bytes",
            "kv_offloading_size",
        ),
    ),
    "scheduler": (
        "SchedulerConfig",
        (
            "max_num_seqs",
            "max_num_batched_tokens",
            "enable_chunked_prefill",
            "long_prefill_token_threshold",
            "max_num_partial_prefills",
            "max_num_queued_reqs",
            "max_num_queued_tokens",
            "policy",
            "async_scheduling",
            "stream_interval",
        ),
    ),
    "parallel": (
        "ParallelConfig",
        (
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "data_parallel_size",
            "decode_context_parallel_size",
            "enable_expert_parallel",
            "enable_eplb",
            "enable_dbo",
            "all2all_backend",
        ),
    ),
    "lora": ("LoRAConfig", ("max_loras", "max_cpu_loras", "max_lora_rank")),
    "speculative": (
        "SpeculativeConfig",
        (
            "method",
            "model",
            "num_speculative_tokens",
            "prompt_lookup_max",
            "prompt_lookup_min",
            "draft_tensor_parallel_size",
        ),
    ),
    "kv_transfer": ("KVTransferConfig", ("kv_connector", "kv_role")),
    "attention": ("AttentionConfig", ("backend",)),
    "compilation": ("CompilationConfig", ("mode", "cudagraph_mode")),
    "device": ("DeviceConfig", ("device_type",)),
}
"""For each part of `VllmConfig`, such as `cache_config`, its class and the attributes in the
fingerprint."""

_FINGERPRINT = (
    Hook(
        "ModelConfig.served_model_name",
        Attributes("ModelConfig", ("served_model_name",)),
        ("vllm/config/model.py",),
        "statlogger.py",
    ),
    Hook(
        "CacheConfig.num_gpu_blocks",
        Attributes("CacheConfig", ("num_gpu_blocks",)),
        ("vllm/config/cache.py",),
        "engine_state/config_fingerprint.py",
        otherwise="the start event does not contain the number of blocks",
    ),
    Hook(
        "ModelConfig: the model's own configuration",
        Attributes("ModelConfig", ("hf_config", "hf_text_config")),
        ("vllm/config/model.py",),
        "engine_state/model_shape.py",
        otherwise="the model's shape is not reported, and bytes and FLOPs are not modelled",
    ),
    Hook(
        "Platform.get_device_name",
        Attributes("Platform", ("get_device_name",)),
        ("vllm/platforms/interface.py",),
        "engine_state/hardware.py",
        otherwise="the device is not reported",
    ),
    Hook(
        "VllmConfig: parts of the configuration",
        Attributes("VllmConfig", tuple(f"{part}_config" for part in ARGUMENTS)),
        ("vllm/config/vllm.py",),
        "engine_state/config_fingerprint.py",
        otherwise="the configuration fingerprint contains only the parts that exist",
    ),
    *(
        Hook(
            f"{owner}: arguments",
            Attributes(owner, names),
            (f"vllm/config/{part}.py",),
            "engine_state/config_fingerprint.py",
            otherwise="the configuration fingerprint contains only the arguments that exist",
        )
        for part, (owner, names) in ARGUMENTS.items()
    ),
)

_TRACING = ("vllm/tracing/utils.py", "vllm/tracing.py")


def _traced(name: str) -> Hook:
    return Hook(
        f"Native span: gen_ai.{name}",
        Attribute("SpanAttributes", f"gen_ai.{name}"),
        _TRACING,
        "../../collector/normalise/engine_spans.py",
        otherwise="the field is unknown for requests that only vLLM's own spans report",
    )


_NATIVE = (
    Hook(
        "Native span: llm_request",
        Contains("OutputProcessor.do_tracing", ("'llm_request'",)),
        OUTPUTS,
        "../../collector/normalise/engine_spans.py",
        otherwise="vLLM's own spans are ignored",
    ),
    Hook(
        "Native span: its scope vllm.llm_engine",
        Contains("AsyncLLM.__init__", ("init_tracer('vllm.llm_engine'",)),
        ("vllm/v1/engine/async_llm.py",),
        "../../collector/normalise/engine_spans.py",
        otherwise="no effect: the scope vllm.tracing.otel is accepted as well",
    ),
    *(
        _traced(name)
        for name in (
            "latency.e2e",
            "latency.time_to_first_token",
            "latency.time_in_queue",
            "latency.time_in_model_prefill",
            "latency.time_in_model_decode",
            "usage.prompt_tokens",
            "usage.completion_tokens",
            "request.id",
            "request.max_tokens",
        )
    ),
)


_OFFLOADING = (
    "vllm/v1/kv_offload/tiering/base.py",
    "vllm/distributed/kv_transfer/kv_connector/v1/offloading/metrics.py",
    "vllm/distributed/kv_transfer/kv_connector/v1/offloading_connector.py",
)


_ELSEWHERE = ("vllm/v1/spec_decode/metrics.py", "vllm/v1/metrics/perf.py")


def _metric(name: str, otherwise: str) -> Hook:
    return Hook(
        f"/metrics: vllm:{name}",
        Named(f"vllm:{name}"),
        _OFFLOADING if name.startswith("kv_offload") else (*LOGGERS, *_ELSEWHERE),
        "../../collector/scrape/engine_series.py",
        otherwise=otherwise,
    )


_UNKNOWN = "the value is unknown for servers that are only scraped"
_METRICS = (
    *(
        _metric(name, _UNKNOWN)
        for name in (
            "num_requests_waiting",
            "num_requests_running",
            "num_requests_waiting_by_reason",
            "num_requests_kv_fetch_by_stage",
            "kv_cache_usage_perc",
            "prompt_tokens",
            "generation_tokens",
            "prefix_cache_queries",
            "prefix_cache_hits",
            "external_prefix_cache_queries",
            "external_prefix_cache_hits",
            "prompt_tokens_cached_by_source",
            "mm_cache_queries",
            "mm_cache_hits",
            "kv_offload_load_bytes",
            "kv_offload_load_time",
            "kv_offload_store_bytes",
            "kv_offload_store_time",
            "kv_offload_total_bytes",
            "kv_offload_total_time",
            "kv_offload_allocation_failure",
            "kv_offload_lookup_sync_delay_seconds",
            "kv_offload_tiering_read_bytes",
            "kv_offload_tiering_read_time",
            "kv_offload_tiering_write_bytes",
            "kv_offload_tiering_write_time",
            "num_preemptions",
            "spec_decode_num_drafts",
            "spec_decode_num_draft_tokens",
            "spec_decode_num_accepted_tokens",
            "estimated_flops_per_gpu_total",
            "estimated_read_bytes_per_gpu_total",
            "estimated_write_bytes_per_gpu_total",
        )
    ),
    _metric("prompt_tokens_by_source", "prefill tokens include tokens found in a cache"),
)

_UNDIVIDED = "the parts of a start are unknown, or several parts are reported as one"
_START = (
    Hook(
        "Executor.__init__",
        RequiredMethod("Executor", "__init__"),
        ("vllm/v1/executor/abstract.py",),
        "start_up/hooks.py",
        otherwise=_UNDIVIDED,
    ),
    Hook(
        "EngineCore._initialize_kv_caches",
        RequiredMethod(
            "EngineCore",
            "_initialize_kv_caches",
            called_on=("self",),
            called_in=("vllm/v1/engine/core.py",),
        ),
        ("vllm/v1/engine/core.py",),
        "start_up/hooks.py",
        otherwise=_UNDIVIDED,
    ),
    Hook(
        "WorkerWrapperBase.init_device",
        RequiredMethod("WorkerWrapperBase", "init_device"),
        ("vllm/v1/worker/worker_base.py",),
        "start_up/hooks.py",
        otherwise=_UNDIVIDED,
    ),
    Hook(
        "WorkerWrapperBase.worker",
        Attributes("WorkerWrapperBase", ("worker",)),
        ("vllm/v1/worker/worker_base.py",),
        "start_up/hooks.py",
        otherwise=_UNDIVIDED,
    ),
    *(
        Hook(
            f"Worker.{name}",
            RequiredMethod("Worker", name),
            ("vllm/v1/worker/gpu_worker.py",),
            "start_up/hooks.py",
            otherwise=_UNDIVIDED,
        )
        for name in ("load_model", "determine_available_memory", "compile_or_warm_up_model")
    ),
    Hook(
        "CompilationConfig.compilation_time",
        Attributes("CompilationConfig", ("compilation_time",)),
        ("vllm/config/compilation.py",),
        "start_up/hooks.py",
        otherwise="the compilation time is the longest of torch's own timers",
    ),
    Hook(
        "CompilationConfig.encoder_compilation_time",
        Attributes("CompilationConfig", ("encoder_compilation_time",)),
        ("vllm/config/compilation.py",),
        "start_up/hooks.py",
        otherwise="the time to compile an encoder counts as time of memory profiling",
    ),
)

CONTRACT: dict[str, tuple[Hook, ...]] = {
    "Front end": _FRONT_END,
    "Plugin": _PLUGIN,
    "Stat logger": _STAT_LOGGER,
    "Engine core": _ENGINE_CORE,
    "Rust front end": _ENGINE_ONLY,
    "Start": _START,
    "Configuration": _FINGERPRINT,
    "Native spans": _NATIVE,
    "/metrics": _METRICS,
}
"""All hooks, grouped by part of vLLM."""

HOOKS: tuple[Hook, ...] = tuple(hook for hooks in CONTRACT.values() for hook in hooks)
