"""What a span of engine time consists of, as one request lived it. The parts sum to it."""

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
