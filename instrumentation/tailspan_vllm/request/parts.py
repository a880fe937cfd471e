"""What a stretch of a request's time consists of, as it lived it. The parts sum to it."""

from typing import NamedTuple


class Parts(NamedTuple):
    """Seconds of a phase by what they were spent on.

    own: what the steps would have taken for this request alone.
    others_prefill, others_decode: what co-scheduled work of others added.
    preempted: evicted, waiting to come back, and computing again what was lost.
    stall: step time that no scheduled work explains.
    """

    own: float
    others_prefill: float
    others_decode: float
    preempted: float
    stall: float

    def scaled_to(self, total: float) -> "Parts":
        """The same shares of another total.

        The engine's and the front end's reading of one phase differ by microseconds; told
        with the front end's phase, the parts must sum to that.
        """
        own, others_prefill, others_decode, preempted, stall = self
        mine = own + others_prefill + others_decode + preempted + stall
        if mine <= 0:
            return Parts(total, 0.0, 0.0, 0.0, 0.0)
        scale = total / mine
        return Parts(
            own * scale,
            others_prefill * scale,
            others_decode * scale,
            preempted * scale,
            stall * scale,
        )


class QueueParts(NamedTuple):
    """Seconds in the queue by what stood in the way.

    seats: the batch was at its limit of requests.
    kv: there were no free blocks for it.
    budget: the step's tokens were spent on others.
    held: it was not eligible itself, whatever room there was: its adapter, its cache or its
        grammar was not there yet, or the engine was paused.
    step: nothing; it waited for the step under way to end.
    """

    seats: float
    kv: float
    budget: float
    held: float
    step: float

    def scaled_to(self, total: float) -> "QueueParts":
        """The same shares of another total, for the reason that `Parts` has."""
        seats, kv, budget, held, step = self
        mine = seats + kv + budget + held + step
        if mine <= 0:
            return QueueParts(0.0, 0.0, 0.0, 0.0, total)
        scale = total / mine
        return QueueParts(seats * scale, kv * scale, budget * scale, held * scale, step * scale)
