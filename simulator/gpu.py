"""GPU samples of a simulated server, computed from its engine's work. Pure.

Bytes and FLOPs come from the steps and their tokens. If one rank (GPU) is slow, all other ranks
wait in a collective operation. The multiprocessors of a waiting GPU are mostly inactive.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tailspan_vllm.engine_state.config_fingerprint import Scalar
from tailspan_vllm.engine_state.hardware import Machine

from replay.engine_config import ReplayEngineTotals
from simulator.conditions import ReplicaConditions
from telemetry.gpus import GpuSample, GpuSource

DEVICE = "NVIDIA H100 80GB HBM3"
WEIGHT_BYTES = 16.1e9
KV_TOKEN_BYTES = 131_072
TOKEN_FLOPS = 16.1e9
_SHAPE: Mapping[str, Scalar] = {
    "architecture": "LlamaForCausalLM",
    "model_type": "llama",
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "cache_dtype": "auto",
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
}
"""The shape of Llama-3-8B, as an engine reports it. The constants for bytes and FLOPs follow from
it."""
_PEAK_BYTES_PER_S = 3.35e12
_PEAK_FLOPS_PER_S = 989e12
_MEMORY_BYTES = 80 * 2**30
_USED_RATIO = 0.91
_CLOCK_MAX_HZ = 1_980_000_000
_CLOCK_STEP_HZ = 15_000_000
_MEMORY_CLOCK_HZ = 2_619_000_000
_IDLE_W, _RANGE_W = 110.0, 560.0
_WAITING_ACTIVITY = 0.2
"""Share of active multiprocessors while a GPU waits for a slow rank."""
_FOREIGN_ACTIVITY, _FOREIGN_BANDWIDTH, _FOREIGN_BYTES = 0.4, 0.2, 5 * 2**30
_STEP_LINK_BYTES = 2 * 32 * 4096 * 2
"""Bytes that each rank (GPU) exchanges for each token, in two all-reduces per layer."""


def machine(ranks: int) -> Machine:
    """Describe a machine with this number of ranks (GPUs)."""
    return Machine(DEVICE, ranks, {**_SHAPE, "tensor_parallel_size": ranks})


class GpuMeter:
    """The GPUs of one replica, one per rank."""

    def __init__(self, replica: str, ranks: int) -> None:
        self.replica = replica
        self.ranks = ranks
        self._before = ReplayEngineTotals()
        self._energy_j = [0.0] * ranks

    def restarted(self) -> None:
        """Reset the engine's totals. The driver's totals, such as energy, continue."""
        self._before = ReplayEngineTotals()

    def sample(
        self,
        at_unix_ns: int,
        over_s: float,
        totals: ReplayEngineTotals,
        conditions: ReplicaConditions,
    ) -> tuple[GpuSample, ...]:
        """One sample per GPU for the `over_s` seconds since the last call."""
        before, self._before = self._before, replace(totals)
        busy_s = totals.busy_s - before.busy_s - (totals.stall_s - before.stall_s)
        busy = min(max(busy_s / over_s, 0.0), 1.0)
        tokens = totals.decode_tokens - before.decode_tokens
        tokens += totals.scheduled_prefill_tokens - before.scheduled_prefill_tokens
        read = (totals.steps - before.steps) * WEIGHT_BYTES
        read += (totals.context_tokens - before.context_tokens) * KV_TOKEN_BYTES
        bandwidth = min(read / self.ranks / over_s, 0.92 * _PEAK_BYTES_PER_S)
        flops = tokens * TOKEN_FLOPS / self.ranks / over_s
        foreign = conditions.total("foreign")
        clock = conditions.factor("clock")
        slow = conditions.factor("rank_pace")
        shared: dict[str, Any] = {
            "replica": self.replica,
            "at_unix_ns": at_unix_ns,
            "simulated": True,
            "source": GpuSource.SIMULATOR,
            "model_name": DEVICE,
            "memory_total_bytes": _MEMORY_BYTES,
            "memory_clock_hz": _MEMORY_CLOCK_HZ,
            "sm_clock_max_hz": _CLOCK_MAX_HZ,
        }
        samples = []
        for rank in range(self.ranks):
            waits = slow > 1.0 and rank != self.ranks - 1
            at_work = busy * (1 / slow + (1 - 1 / slow) * _WAITING_ACTIVITY) if waits else busy
            mine: Mapping[str, float] = {
                "sm": min(at_work * 0.96 + foreign * _FOREIGN_ACTIVITY, 1.0),
                "tensor": min(flops / _PEAK_FLOPS_PER_S, 1.0),
                "dram": bandwidth + foreign * _FOREIGN_BANDWIDTH * _PEAK_BYTES_PER_S,
            }
            samples.append(self._gpu(rank, over_s, mine, clock, int(foreign), tokens, shared))
        return tuple(samples)

    def _gpu(
        self,
        rank: int,
        over_s: float,
        at_work: Mapping[str, float],
        clock: float,
        foreign: int,
        tokens: int,
        shared: Mapping[str, Any],
    ) -> GpuSample:
        dram = min(at_work["dram"], 0.95 * _PEAK_BYTES_PER_S)
        work = 0.6 * at_work["sm"] + 0.4 * dram / _PEAK_BYTES_PER_S
        power_w = _IDLE_W + _RANGE_W * work / clock
        self._energy_j[rank] += power_w * over_s
        link = tokens * _STEP_LINK_BYTES / over_s if self.ranks > 1 else None
        return GpuSample(
            gpu=f"{self.replica}/{rank}",
            dram_bandwidth_ratio=dram / _PEAK_BYTES_PER_S,
            dram_bandwidth_bytes_per_s=dram,
            sm_active_ratio=at_work["sm"],
            tensor_active_ratio=at_work["tensor"],
            memory_used_bytes=round(_MEMORY_BYTES * _USED_RATIO) + foreign * _FOREIGN_BYTES,
            power_w=power_w,
            energy_j_total=self._energy_j[rank],
            sm_clock_hz=round(_CLOCK_MAX_HZ / clock / _CLOCK_STEP_HZ) * _CLOCK_STEP_HZ,
            throttle_reasons="sw_thermal_slowdown" if clock > 1.0 else "",
            foreign_processes=foreign,
            pcie_rx_bytes_per_s=tokens * 16.0 / over_s,
            pcie_tx_bytes_per_s=tokens * 8.0 / over_s,
            nvlink_rx_bytes_per_s=link,
            nvlink_tx_bytes_per_s=link,
            **shared,
        )
