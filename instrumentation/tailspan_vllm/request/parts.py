"""Parts of a queue, prefill or decode phase. The parts sum to the phase."""

from typing import Final, NamedTuple


class RequestPhaseParts(NamedTuple):
    """Seconds of a prefill or decode phase that each cause took.

    - own: the time that the steps would have taken if this request had been alone in the engine.
    - others_prefill, others_decode: time added by other requests' work in the same steps.
    - preempted: time from a preemption until the discarded work was computed again.
    - stall: step time that no scheduled work explains.
    """

    own: float
    others_prefill: float
    others_decode: float
    preempted: float
    stall: float

    def scaled_to(self, total: float) -> "RequestPhaseParts":
        """Parts in the same proportion. The front end's phases differ from the engine's phases by
        microseconds."""
        own, others_prefill, others_decode, preempted, stall = self
        mine = own + others_prefill + others_decode + preempted + stall
        if mine <= 0:
            return RequestPhaseParts(total, 0.0, 0.0, 0.0, 0.0)
        scale = total / mine
        return RequestPhaseParts(
            own * scale,
            others_prefill * scale,
            others_decode * scale,
            preempted * scale,
            stall * scale,
        )


class RequestQueueParts(NamedTuple):
    """Seconds in the queue, by the reason for waiting.

    seats: the batch had its maximum number of requests.
    kv: there were not enough free KV-cache blocks.
    budget: other requests used up the step's token budget.
    held: the adapter, KV cache or grammar was not ready, or the engine was paused.
    step: no obstacle; the request waited only for the end of the current step.
    """

    seats: float
    kv: float
    budget: float
    held: float
    step: float

    def scaled_to(self, total: float) -> "RequestQueueParts":
        """Parts in the same proportion. See `RequestPhaseParts.scaled_to`."""
        seats, kv, budget, held, step = self
        mine = seats + kv + budget + held + step
        if mine <= 0:
            return RequestQueueParts(0.0, 0.0, 0.0, 0.0, total)
        scale = total / mine
        return RequestQueueParts(
            seats * scale, kv * scale, budget * scale, held * scale, step * scale
        )


class HeldParts(NamedTuple):
    """Parts of `RequestQueueParts.held`. The rest of `held` has other reasons, such as a paused
    engine.

    - kv_load: the KV cache was being loaded from outside the engine.
    - grammar: the grammar of the structured output was being compiled.
    - adapter: other adapters used all slots (`max_loras`).
    """

    kv_load: float
    grammar: float
    adapter: float


class KvLoad(NamedTuple):
    """The size of a KV-cache load over all tensor-parallel ranks, and its tier. If a load has
    several tiers, `tier` is the tier with the highest index in `TIERS`."""

    size_bytes: int | None
    tier: str | None


TIERS: Final = ("host", "p2p", "disk", "other")
"""The tiers outside the engine: host memory, another engine, disk, and an unspecified store."""
