"""Build levers: actions with a flag, its current value and a value to try.

The current value comes from the start of the engine. Pure."""

from typing import Final

from diagnosis.claim import Lever
from diagnosis.growth.case import DiagnosisCase
from telemetry.starts import Argument, read

ARGUMENT_OF: Final = {
    "--max-num-seqs": "scheduler.max_num_seqs",
    "--max-num-batched-tokens": "scheduler.max_num_batched_tokens",
    "--max-model-len": "model.max_model_len",
    "--gpu-memory-utilization": "cache.gpu_memory_utilization",
    "--enable-prefix-caching": "cache.enable_prefix_caching",
    "--max-loras": "lora.max_loras",
    "--max-cpu-loras": "lora.max_cpu_loras",
    "--speculative-config num_speculative_tokens": "speculative.num_speculative_tokens",
}

_REPLAYED: Final = ("--max-num-seqs", "--max-num-batched-tokens")
"""The flags whose changes a replay can predict."""


def rate_limit(tenant: str, before: float, now: float) -> Lever:
    """Return an action (lever) that limits a tenant to its rate in the baseline."""
    factor = max(before / now, _MIN_RATE) if now > 0 else 1.0
    change = f"rate=tenant={tenant}:{factor:.3f}x"
    return Lever(f"limit the rate of {tenant} at the gateway", change=change)


_MIN_RATE: Final = 0.01
"""Minimum share of a tenant's requests that a rate limit admits."""


def in_force(case: DiagnosisCase, flag: str) -> Argument | None:
    """Return a flag's current value at a slow server, or None if no engine start reports it."""
    starts = sorted(case.servers.starts, key=lambda start: start.at_unix_ns, reverse=True)
    for start in starts:
        if start.at_unix_ns < case.question.window.to_unix_ns and (
            not case.slow_replicas or start.replica in case.slow_replicas
        ):
            return read(start.arguments).get(ARGUMENT_OF[flag])
    return None


def lever(case: DiagnosisCase, action: str, flag: str, factor: float | None = None) -> Lever:
    """Return an action (lever) that changes a flag. If the flag's current value is known, the
    action's text contains it. Examples are "(now 512)", or "(512 → 1024)" with a factor."""
    value = in_force(case, flag)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return Lever(action, flag)
    if factor is None:
        return Lever(f"{action} (now {value})", flag)
    new = max(1, round(value * factor))
    change = f"{flag[2:].replace('-', '_')}={new}" if flag in _REPLAYED else None
    return Lever(f"{action} ({value} → {new})", flag, change)


def lever_if(case: DiagnosisCase, action: str, flag: str, value: Argument) -> list[Lever]:
    """Return one action (lever) if the flag's current value is `value`. If the flag has another
    value, return no action."""
    return [Lever(action, flag)] if in_force(case, flag) == value else []
