"""What a replay returns: the latencies of each request and the work of each engine, as columns."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from replay.arrivals import BoolArray, FloatArray, IntArray

Bind = Literal["seats", "kv", "tokens", "none"]
"""What keeps requests in the queue: `max_num_seqs`, KV blocks, the step's token budget."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Outcome:
    """The replayed requests, in the order of the arrivals. NaN means that there is no such time.

    frontend_s + queue_s + prefill_s + decode_s + delivery_s = e2e_s.
    """

    received_s: FloatArray
    """(n,) as in the arrivals; for a request that follows another, when its client sent it."""
    frontend_s: FloatArray
    """(n,) until the engine accepts it, between two of its steps."""
    queue_s: FloatArray
    prefill_s: FloatArray
    decode_s: FloatArray
    delivery_s: FloatArray
    """(n,) from the last token to the last byte."""
    ttft_s: FloatArray
    """(n,) from receipt to the first byte; to the last one if the answer is not streamed."""
    tpot_s: FloatArray
    """(n,) decode_s / (output_tokens − 1); NaN for one token."""
    itl_max_s: FloatArray
    """(n,) longest time between two tokens; NaN for one token."""
    e2e_s: FloatArray
    preemptions: IntArray
    cached_tokens: IntArray
    engine: IntArray
    """(n,) the replica that served it; −1 if it was rejected."""
    rejected: BoolArray
    """(n,) longer than `max_model_len`, or the queue was full. Its times are NaN."""
    engines: "EngineOutcome"

    @property
    def binds(self) -> Bind:
        """What kept the queue waiting for the longest time, over all engines."""
        return self.engines.binds


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EngineOutcome:
    """The work of each engine, in the order of the replicas."""

    steps: IntArray
    busy_s: FloatArray
    """(r,) time in steps."""
    end_s: FloatArray
    """(r,) when its last step ended; 0 if it had none."""
    blocked_seats_s: FloatArray
    """(r,) time in steps while the queue waited for a place among `max_num_seqs`."""
    blocked_kv_s: FloatArray
    blocked_tokens_s: FloatArray
    """(r,) the same for the step's token budget."""
    peak_kv_ratio: FloatArray
    """(r,) the largest share of its KV blocks that requests held."""
    preemptions: IntArray
    prompt_tokens: IntArray
    """(r,) prompt tokens that were looked up in the prefix cache."""
    cached_tokens: IntArray
    """(r,) prompt tokens found in it."""

    @property
    def binds(self) -> Bind:
        """What kept the queues waiting for the longest time."""
        blocked: list[tuple[float, Bind]] = [
            (float(np.sum(self.blocked_seats_s)), "seats"),
            (float(np.sum(self.blocked_kv_s)), "kv"),
            (float(np.sum(self.blocked_tokens_s)), "tokens"),
        ]
        longest_s, what = max(blocked)
        return what if longest_s > 0 else "none"
