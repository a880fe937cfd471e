"""Define the engine arguments that affect latency, with vLLM's names."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from replay.kv_cache import BLOCK_TOKENS, blocks_for
from replay.step_model import EIGHT_B_ON_H100, StepModel

Scalar = str | int | float | bool
Policy = Literal["fcfs", "priority"]
KvRole = Literal["kv_producer", "kv_consumer"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

_LAUNCHES_S = 0.011
"""Seconds that about 600 kernel launches take in each step. A CUDA graph replaces these launches
with a single launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The arguments of an engine. If `max_loras` is 0, adapters are disabled. If
    `num_speculative_tokens` is 0, speculation is disabled."""

    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    max_num_queued_reqs: int = 1024
    """Maximum number of waiting and running requests, to bound memory. Requests above this limit
    are rejected."""
    max_model_len: int = 32_768
    # Llama-3-8B on an 80 GB GPU: (80 GB · 0.9 − 16.1 GB of weights − 3 GB of activations) / 2 MiB
    # per block.
    num_gpu_blocks: int = 25_000
    block_size: int = BLOCK_TOKENS
    enable_prefix_caching: bool = True
    policy: Policy = "fcfs"
    long_prefill_token_threshold: int = 0
    """Maximum number of prompt tokens of one request in a step with other requests; 0 for no
    limit."""
    scheduler_reserve_full_isl: bool = False
    """Whether a request waits until there are blocks for its whole prompt. True by default in
    recent versions of vLLM, such as 0.32."""
    max_loras: int = 0
    max_cpu_loras: int = 0
    num_speculative_tokens: int = 0
    tensor_parallel_size: int = 1
    kv_connector: bool = False
    kv_role: KvRole = "kv_consumer"
    async_scheduling: bool = False
    """Whether the engine schedules each step while the previous step runs. If True, a new request
    waits for one more step. A slot in the batch that becomes free is also used one step later.
    True by default in recent versions of vLLM on GPUs."""
    enforce_eager: bool = False
    """Whether each kernel is launched separately, without CUDA graphs."""
    step: StepModel = EIGHT_B_ON_H100
    step_noise_ratio: float = 0.03
    step_noise_quantiles: tuple[float, ...] = ()
    """Quantiles of (duration of a step) / (duration that the step model predicts), at the
    probabilities `(i + ½)/n`. They override `step_noise_ratio`."""

    def __post_init__(self) -> None:
        for key in (
            "max_num_batched_tokens",
            "max_num_seqs",
            "max_num_queued_reqs",
            "max_model_len",
            "num_gpu_blocks",
            "block_size",
            "tensor_parallel_size",
        ):
            if getattr(self, key) < 1:
                raise ValueError(f"{key}: {getattr(self, key)}; allowed: 1 or more")
        for key in ("max_loras", "num_speculative_tokens", "long_prefill_token_threshold"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key}: {getattr(self, key)}; allowed: 0 or more")
        if self.max_cpu_loras < self.max_loras:
            raise ValueError(
                f"max_cpu_loras: {self.max_cpu_loras}; allowed: at least max_loras "
                f"({self.max_loras})"
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens: {self.max_num_batched_tokens}; "
                f"allowed: at least max_num_seqs ({self.max_num_seqs})"
            )
        if self.policy not in POLICIES:
            raise ValueError(f"policy: {self.policy!r}; allowed: {', '.join(POLICIES)}")
        longest = blocks_for(self.max_model_len, self.block_size)
        if self.num_gpu_blocks < longest:
            raise ValueError(
                f"num_gpu_blocks: {self.num_gpu_blocks}; allowed: at least "
                f"{longest}, one request of max_model_len "
                f"({self.max_model_len})"
            )
        if not 0 <= self.step_noise_ratio < 1:
            raise ValueError(
                f"step_noise_ratio: {self.step_noise_ratio}; allowed: from 0 to below 1"
            )
        if any(not 0 < each < float("inf") for each in self.step_noise_quantiles) or sorted(
            self.step_noise_quantiles
        ) != list(self.step_noise_quantiles):
            raise ValueError(
                f"step_noise_quantiles: {self.step_noise_quantiles}; allowed: finite, more than 0, "
                "in ascending order"
            )

    @property
    def model(self) -> StepModel:
        """The step model for these arguments."""
        if not self.enforce_eager:
            return self.step
        return replace(self.step, base_s=self.step.base_s + _LAUNCHES_S)

    def arguments(self) -> dict[str, Scalar]:
        """Return the arguments in the form in which a real engine reports them."""
        reported: dict[str, Scalar] = {
            "model.max_model_len": self.max_model_len,
            "model.enforce_eager": self.enforce_eager,
            "cache.block_size": self.block_size,
            "cache.enable_prefix_caching": self.enable_prefix_caching,
            "cache.num_gpu_blocks": self.num_gpu_blocks,
            "cache.num_gpu_blocks_override": self.num_gpu_blocks,
            "scheduler.max_num_batched_tokens": self.max_num_batched_tokens,
            "scheduler.max_num_seqs": self.max_num_seqs,
            "scheduler.max_num_queued_reqs": self.max_num_queued_reqs,
            "scheduler.enable_chunked_prefill": True,
            "scheduler.policy": self.policy,
            "parallel.tensor_parallel_size": self.tensor_parallel_size,
        }
        if self.async_scheduling:
            reported["scheduler.async_scheduling"] = True
        if self.long_prefill_token_threshold:
            reported["scheduler.long_prefill_token_threshold"] = self.long_prefill_token_threshold
        if self.max_loras:
            reported |= {"lora.max_loras": self.max_loras, "lora.max_cpu_loras": self.max_cpu_loras}
        if self.num_speculative_tokens:
            reported |= {
                "speculative.method": "eagle",
                "speculative.num_speculative_tokens": self.num_speculative_tokens,
            }
        if self.kv_connector:
            reported |= {
                "kv_transfer.kv_connector": "NixlConnector",
                "kv_transfer.kv_role": self.kv_role,
            }
        return reported


@dataclass(slots=True)
class ReplayEngineTotals:
    """The engine's counters since its start."""

    steps: int = 0
    busy_s: float = 0.0
    stall_s: float = 0.0
    prefill_steps: int = 0
    """Number of steps with prefill."""
    scheduled_prefill_tokens: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    prefill_attention: float = 0.0
    decodes: int = 0
    """The number of decoding sequences, summed over all steps."""
    context_tokens: int = 0
    """The number of context tokens that decoding sequences read, summed over all steps."""
    cache_query_tokens: int = 0
    cache_hit_tokens: int = 0
    external_query_tokens: int = 0
    external_hit_tokens: int = 0
    transferred_tokens: int = 0
    transfer_s: float = 0.0
    preemptions: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
