"""Estimate a fleet's capacity. Pure.

Faults use the estimate to limit the load that they add, so that no queue grows without limit. The
engine time of a request is computed from mean lengths and the step model. The engine time depends
on the number of concurrent requests, and this number depends on the engine time, so the result is a
fixed point. Only the tokens of system prompts count as cached.
"""

import math
from typing import NamedTuple

from replay.engine_config import EngineConfig
from replay.kv_cache import BLOCK_TOKENS
from simulator.token_lengths import Lengths
from simulator.workload import Workload

_QUANTILES = tuple((2 * n + 1) / 400 for n in range(200))


class Means(NamedTuple):
    """Means over a workload's requests."""

    prompt_tokens: float
    output_tokens: float
    prefill_s: float
    shared_tokens: float
    """Tokens in the shared prefix, which the engine computes only once."""

    def stretched(self, outputs: float) -> "Means":
        """Return these means with a mean output that is `outputs` times as long."""
        return self._replace(output_tokens=self.output_tokens * outputs)


def mean_tokens(lengths: Lengths) -> float:
    """The mean of a length distribution in tokens."""
    return sum(map(lengths.quantile, _QUANTILES)) / len(_QUANTILES)


def means_of(workload: Workload, engine: EngineConfig) -> Means:
    """The means of a workload's requests on an engine."""
    if workload.trace:
        prompts = [float(row.prompt_tokens) for row in workload.trace]
        output_tokens = sum(row.output_tokens for row in workload.trace) / len(workload.trace)
    else:
        prompts = [float(workload.prompts.quantile(q)) for q in _QUANTILES]
        output_tokens = mean_tokens(workload.answers)
    prefill_s = sum(engine.step.prefill_s(round(p), 0) for p in prompts) / len(prompts)
    shared = _shared_tokens(workload, prompts) if engine.enable_prefix_caching else 0.0
    prefill_s -= shared * engine.step.prefill_token_s
    return Means(sum(prompts) / len(prompts), output_tokens, prefill_s, shared)


def _shared_tokens(workload: Workload, prompts: list[float]) -> float:
    weights = sum(tenant.weight for tenant in workload.tenants)
    shared = 0.0
    for tenant in workload.tenants:
        for prefix in tenant.prefixes:
            fits = sum(prompt > prefix.tokens for prompt in prompts) / len(prompts)
            shared += tenant.weight / weights / len(tenant.prefixes) * fits * prefix.tokens
    return shared * workload.prefix_share


def step_s(engine: EngineConfig, means: Means, running: float) -> float:
    """The seconds of a step with `running` decodes and no prefill."""
    context_tokens = running * (means.prompt_tokens + means.output_tokens / 2)
    return engine.step.step_s(0.0, round(context_tokens), round(running))


def running(engine: EngineConfig, means: Means, rate_per_s: float) -> float:
    """The number of concurrent requests at a rate. It is at most `max_num_seqs`."""
    count, share = 1.0, max(0.02, 1.0 - rate_per_s * means.prefill_s)
    for _ in range(60):
        stay_s = means.prefill_s + means.output_tokens * step_s(engine, means, count) / share
        count = 0.5 * (count + min(rate_per_s * stay_s, float(engine.max_num_seqs)))
    return count


def capacity_per_s(engine: EngineConfig, means: Means) -> float:
    """The requests per second of one replica with a full batch."""
    seats = float(engine.max_num_seqs)
    return 1.0 / (means.prefill_s + means.output_tokens * step_s(engine, means, seats) / seats)


def blocks(means: Means) -> float:
    """The KV blocks of a request when half of its output is generated."""
    own = means.prompt_tokens - means.shared_tokens + means.output_tokens / 2
    return own / BLOCK_TOKENS + 1


def required_blocks(means: Means, count: float, spread: float) -> float:
    """The KV blocks for count + spread·√count running requests.

    √count approximates the standard deviation of the number of running requests.
    """
    return (count + spread * math.sqrt(count)) * blocks(means)


def target_utilisation(severity: float, slack: float) -> float:
    """A utilisation between 0 and 1. At severity 1, the share slack/(1 + slack) of the capacity
    remains unused."""
    return severity / (severity + slack)
