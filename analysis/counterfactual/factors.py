"""Define the factors: properties of a window that a replay can reset to the baseline, and the
causes that they represent. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from diagnosis.explanation import Cause


class FactorKind(Enum):
    """The kind of property that a replay can reset to its value in the baseline."""

    RATE = "rate"
    """The times of arrival of all requests, or of the requests of the factor's tenant."""
    LONG_PROMPTS = "long prompts"
    LONG_OUTPUTS = "long outputs"
    PROMPTS = "prompts"
    OUTPUTS = "outputs"
    CACHE_HITS = "cache hits"
    ACCEPTANCE = "acceptance"
    """The share of drafted tokens that are accepted."""
    ROUTING = "routing"
    """The share of the requests that each engine receives."""
    PACE = "pace"
    """The duration of a step with a given amount of work."""
    STALLS = "stalls"
    FRONT_END = "front end"
    DELIVERY = "delivery"
    """The time from the last token to the last byte. It is long for slow clients."""
    TRANSFERS = "KV transfers"
    """The time that the transfer of a token's KV cache takes."""
    ADAPTERS = "adapters"
    """The waits of requests for their LoRA adapter, and the stalls while adapters are loaded."""
    GRAMMAR = "grammar"
    """The time that a request waits for the grammar of its structured output."""
    BLOCKS = "KV blocks"
    """KV blocks that the engines lost in the window, for example by a leak."""
    OUTGROWN_BLOCKS = "KV blocks and outputs"
    """The lost KV blocks and the numbers of output tokens, which together cause preemptions. They
    are reset together."""
    CONFIG = "configuration"


RATES: Final = (FactorKind.RATE, FactorKind.LONG_PROMPTS, FactorKind.LONG_OUTPUTS)
LENGTHS: Final = (
    *(FactorKind.PROMPTS, FactorKind.OUTPUTS, FactorKind.OUTGROWN_BLOCKS),
    *(FactorKind.CACHE_HITS, FactorKind.DELIVERY, FactorKind.GRAMMAR, FactorKind.ADAPTERS),
)
"""Kinds of factors that a replay resets by giving each request another value in one column."""

SERVERS: Final = (
    *(FactorKind.PACE, FactorKind.STALLS, FactorKind.FRONT_END, FactorKind.CONFIG),
    *(FactorKind.BLOCKS, FactorKind.OUTGROWN_BLOCKS),
)
"""Kinds of factors that change the servers."""

KIND_OF_CAUSE: Final[Mapping[str, FactorKind]] = {
    "load_exceeds_capacity": FactorKind.RATE,
    "tenant_flood": FactorKind.RATE,
    "prefill_interference": FactorKind.LONG_PROMPTS,
    "long_prompt_blocking": FactorKind.LONG_PROMPTS,
    "decode_batch_growth": FactorKind.LONG_OUTPUTS,
    "longer_prompts": FactorKind.PROMPTS,
    "longer_outputs": FactorKind.OUTPUTS,
    "prefix_cache_miss": FactorKind.CACHE_HITS,
    "spec_decode_rejection": FactorKind.ACCEPTANCE,
    "replica_imbalance": FactorKind.ROUTING,
    "gpu_throttling": FactorKind.PACE,
    "noisy_neighbour": FactorKind.PACE,
    "slow_rank": FactorKind.PACE,
    "engine_stall": FactorKind.STALLS,
    "frontend_cpu": FactorKind.FRONT_END,
    "network_or_client": FactorKind.DELIVERY,
    "kv_cache_exhausted": FactorKind.BLOCKS,
    "kv_transfer": FactorKind.TRANSFERS,
    "grammar_compile": FactorKind.GRAMMAR,
    "lora_swap": FactorKind.ADAPTERS,
    "preemption": FactorKind.OUTGROWN_BLOCKS,
    "config_change": FactorKind.CONFIG,
}
"""The kind of factor for each cause that a replay can remove. The replay does not model restarts,
hangs, retries or encoders."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A property to reset to the baseline. A tenant, replica or engine of None means all of
    them."""

    kind: FactorKind
    tenant: str | None = None
    replica: str | None = None
    engine: int | None = None

    def contains(self, other: "Factor") -> bool:
        """Return whether resetting this factor also resets the other factor."""
        if self.kind is not FactorKind.OUTGROWN_BLOCKS:
            return self == other
        parts = (FactorKind.OUTGROWN_BLOCKS, FactorKind.BLOCKS, FactorKind.OUTPUTS)
        return other.kind in parts and self.tenant in (None, other.tenant)

    def is_of(self, replica: str, engine: int) -> bool:
        """Return whether the factor applies to this engine."""
        return self.replica in (None, replica) and self.engine in (None, engine)


def factors_of(causes: Sequence[Cause]) -> list[Factor | None]:
    """Return the factor that represents each cause, or None if a replay cannot remove the cause.

    If lost blocks alone cause preemptions, `preemption` and `kv_cache_exhausted` have the same
    factor.
    """
    found = [_factor_of(cause) for cause in causes]
    if Factor(FactorKind.BLOCKS) not in found:
        return found
    outgrown, blocks = Factor(FactorKind.OUTGROWN_BLOCKS), Factor(FactorKind.BLOCKS)
    return [blocks if factor == outgrown else factor for factor in found]


def _factor_of(cause: Cause) -> Factor | None:
    kind = KIND_OF_CAUSE.get(cause.id)
    if kind is None:
        return None
    if kind in RATES or kind in LENGTHS:
        return Factor(kind, tenant=cause.where.get("tenant"))
    if kind is FactorKind.PACE:
        number = cause.where.get("engine")
        engine = None if number is None else int(number)
        return Factor(kind, replica=cause.where.get("replica"), engine=engine)
    return Factor(kind)
