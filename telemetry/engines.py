"""The state of an engine at one instant.

Gauges are values at that instant. `*_total` values count since `started_unix_ns`, when the engine
(or the front end that reports it) started. The difference of two samples with the same start is
what happened between them, so a lost or repeated sample does no harm.
"""

from dataclasses import dataclass
from typing import Final

from telemetry.requests import Source

HUNG_S: Final = 60
"""An engine hangs if it has requests and takes no step for longer than this.

vLLM itself warns after 60 s without an answer from a worker (VLLM_RINGBUFFER_WARNING_INTERVAL)
and ends the engine after 300 s (VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS). The longest step that is
legitimate is a prefill of 128k tokens in one piece. A 70B model needs about 4e16 FLOP for it:
18e15 for the weights (2 x 70e9 x 128e3) and 22e15 for attention. That is 20 s on four H100 at
half of their peak of 990 TFLOP/s. CUDA graphs are captured before the server takes requests.
"""


MEND_HUNG: Final = (
    "Look at the server's log first, then for GPU errors (nvidia-smi; Xid in dmesg); `py-spy dump`"
    " of the EngineCore process shows where it stands. Then restart the server."
)
"""What to do about an engine that hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample:
    """One engine at one instant, as one reporting process saw it. Unknown is None."""

    replica: str
    engine: int
    process: int
    at_unix_ns: int
    started_unix_ns: int
    simulated: bool = False
    source: Source | None = None
    model: str | None = None
    region: str | None = None
    config: str | None = None
    waiting: int | None = None
    running: int | None = None
    deferred: int | None = None
    fetching_kv: int | None = None
    in_flight: int | None = None
    """Requests that the reporting process has given to its engines and that have not ended."""
    oldest_request_age_s: float | None = None
    last_step_age_s: float | None = None
    """Time since the reporting process last received a step of any of its engines, or handed over
    its first request in flight, whichever is later; None without requests in flight."""
    kv_usage_ratio: float | None = None
    waiting_loras: int | None = None
    running_loras: int | None = None
    longest_step_s: float | None = None
    step_model_base_s: float | None = None
    step_model_per_prefill_token_s: float | None = None
    step_model_per_prefill_attention_s: float | None = None
    step_model_per_context_token_s: float | None = None
    step_model_per_decode_s: float | None = None
    step_model_error_ratio: float | None = None
    step_model_r_squared: float | None = None
    steps_total: int | None = None
    busy_s_total: float | None = None
    stall_s_total: float | None = None
    scheduled_prefill_tokens_total: int | None = None
    prefill_attention_total: float | None = None
    context_tokens_total: int | None = None
    decodes_total: int | None = None
    prefill_tokens_total: int | None = None
    decode_tokens_total: int | None = None
    prefix_cache_queries_tokens_total: int | None = None
    prefix_cache_hits_tokens_total: int | None = None
    external_cache_queries_tokens_total: int | None = None
    external_cache_hits_tokens_total: int | None = None
    local_cached_prompt_tokens_total: int | None = None
    external_cached_prompt_tokens_total: int | None = None
    kv_transfer_bytes_total: int | None = None
    kv_transfer_s_total: float | None = None
    kv_transfer_failures_total: int | None = None
    preemptions_total: int | None = None
    drafts_total: int | None = None
    draft_tokens_total: int | None = None
    accepted_tokens_total: int | None = None
    modelled_flops_total: float | None = None
    modelled_read_bytes_total: float | None = None
    modelled_write_bytes_total: float | None = None
    host_cpus: int | None = None
    process_cpu_s_total: float | None = None
    core_cpu_s_total: float | None = None
    host_cpu_busy_s_total: float | None = None
    host_cpu_steal_s_total: float | None = None
    spans_dropped_total: int | None = None
    hook_failures_total: int | None = None
    accounts_dropped_total: int | None = None
    clock_ahead_s: float | None = None
    """As of a request: by how much its instants were set back."""
