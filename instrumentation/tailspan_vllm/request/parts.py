"""The parts of a queue, prefill or decode phase. The parts sum to the phase."""

from typing import Final, NamedTuple


class RequestPhaseParts(NamedTuple):
    """Seconds of a prefill or decode phase, by cause.

    own: time that the steps would have taken if this request had been alone in the engine.
    others_prefill, others_decode: time added by other requests' work in the same steps.
    preempted: time from a preemption until the discarded work was computed again.
    stall: step time that no scheduled work explains.
    """

    own: float
    others_prefill: float
    others_decode: float
    preempted: float
    stall: float

    def scaled_to(self, total: float) -> "RequestPhaseParts":
        """Return parts that sum to another total, in the same proportion.

        The parts must sum to the front end's duration of the phase, which differs by microseconds
        from the engine's duration.
        """
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
    held: the request was not allowed to join the batch. Its adapter, KV cache or grammar was not
    ready, or the engine was paused.
    step: no obstacle; the request waited only for the end of the current step.
    """

    seats: float
    kv: float
    budget: float
    held: float
    step: float

    def scaled_to(self, total: float) -> "RequestQueueParts":
        """Return parts that sum to `total`, in the same proportion. See `RequestPhaseParts`."""
        seats, kv, budget, held, step = self
        mine = seats + kv + budget + held + step
        if mine <= 0:
            return RequestQueueParts(0.0, 0.0, 0.0, 0.0, total)
        scale = total / mine
        return RequestQueueParts(
            seats * scale, kv * scale, budget * scale, held * scale, step * scale
        )


class HeldParts(NamedTuple):
    """Seconds during which a request was not allowed to join the batch, by reason.

    These seconds are parts of `RequestQueueParts.held`.

    kv_load: its KV cache was being loaded from outside the engine.
    grammar: the grammar of its structured output was being compiled.
    adapter: other adapters used all slots (`max_loras`).

    The rest of `held` has other reasons, for example a paused engine.
    """

    kv_load: float
    grammar: float
    adapter: float


class KvLoad(NamedTuple):
    """The KV cache that a connector loaded for a request: its size over all tensor-parallel ranks,
    and its tier. If the KV cache came from several tiers, the tier is the last of these in
    `TIERS`."""

    size_bytes: int | None
    tier: str | None


TIERS: Final = ("host", "p2p", "disk", "other")
"""The tiers of a KV cache outside the engine: host memory, another engine, disk, and a store that
the connector does not specify.
"""
