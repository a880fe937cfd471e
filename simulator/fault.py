"""A fault: its cause, time, severity and replica."""

from dataclasses import dataclass
from typing import Final

CAUSES: Final = (
    "load_exceeds_capacity",
    "kv_cache_exhausted",
    "preemption",
    "prefill_interference",
    "long_prompt_blocking",
    "longer_prompts",
    "longer_outputs",
    "prefix_cache_miss",
    "decode_batch_growth",
    "frontend_cpu",
    "engine_stall",
    "cold_start",
    "lora_swap",
    "spec_decode_rejection",
    "gpu_throttling",
    "noisy_neighbour",
    "slow_rank",
    "kv_transfer",
    "network_or_client",
    "tenant_flood",
    "replica_imbalance",
    "config_change",
    "engine_hang",
    "retry_storm",
    "grammar_compile",
    "encoder",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFault:
    """A fault from `start_s` until `end_s`. At severity 1, its effect is clearly visible."""

    cause: str
    start_s: float
    end_s: float = float("inf")
    severity: float = 1.0
    replica: int = 0
    """The affected replica, if the fault affects only one replica."""

    def __post_init__(self) -> None:
        if self.cause not in CAUSES:
            raise ValueError(f"cause: {self.cause!r}; allowed: {', '.join(sorted(CAUSES))}")
        if not 0 < self.severity < float("inf"):
            raise ValueError(f"severity: {self.severity}; allowed: more than 0, finite")
        if not 0 <= self.start_s < self.end_s:
            raise ValueError(
                f"start_s: {self.start_s}, end_s: {self.end_s}; allowed: from 0, start before end"
            )
        if self.replica < 0:
            raise ValueError(f"replica: {self.replica}; allowed: 0 or more")
