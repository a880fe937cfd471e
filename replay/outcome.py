"""Store the result of a replay, as columns: the latencies of each request, and the work of each
engine."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from replay.arrivals import BoolArray, FloatArray, IntArray

Bind = Literal["seats", "kv", "tokens", "none"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReplayOutcome:
    """The replayed requests, in the order of the arrivals. Undefined latencies are NaN.

    frontend_s + queue_s + prefill_s + decode_s + delivery_s = e2e_s.
    """

    received_s: FloatArray
    """(n,) time of receipt in seconds: the recorded time, or the replayed time for a request with
    `after`."""
    frontend_s: FloatArray
    """(n,) seconds from receipt until the engine accepts the request. The engine accepts requests
    only between two steps."""
    queue_s: FloatArray
    prefill_s: FloatArray
    decode_s: FloatArray
    delivery_s: FloatArray
    """(n,) seconds from the last token to the last byte."""
    ttft_s: FloatArray
    """(n,) seconds from receipt to the first byte, or to the last byte if the response is not
    streamed."""
    tpot_s: FloatArray
    """(n,) decode_s / (output_tokens − 1), or NaN for a single token."""
    itl_max_s: FloatArray
    """(n,) longest time between two tokens, or NaN for a single token."""
    e2e_s: FloatArray
    preemptions: IntArray
    cached_tokens: IntArray
    engine: IntArray
    """(n,) index of the replica that served the request; −1 if rejected."""
    rejected: BoolArray
    """(n,) whether the request was rejected, because it was longer than `max_model_len` or the
    queue was full. The latencies of rejected requests are NaN."""
    engines: "EngineOutcome"

    @property
    def binds(self) -> Bind:
        """The limit that blocked the queues for the longest total time, over all engines."""
        return self.engines.binds


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EngineOutcome:
    """The work of each engine, in the order of the replicas."""

    steps: IntArray
    busy_s: FloatArray
    """(r,) seconds that each engine spent in steps."""
    end_s: FloatArray
    """(r,) end of the last step, or 0 if there was no step."""
    blocked_seats_s: FloatArray
    """(r,) total seconds of the steps during which `max_num_seqs` blocked the queue."""
    blocked_kv_s: FloatArray
    blocked_tokens_s: FloatArray
    """(r,) total seconds of the steps during which the token budget blocked the queue."""
    preemptions: IntArray
    prompt_tokens: IntArray
    """(r,) number of prompt tokens looked up in the prefix cache."""
    cached_tokens: IntArray
    """(r,) number of prompt tokens found in the prefix cache."""

    @property
    def binds(self) -> Bind:
        """The limit that blocked the queues for the longest total time."""
        blocked: list[tuple[float, Bind]] = [
            (float(np.sum(self.blocked_seats_s)), "seats"),
            (float(np.sum(self.blocked_kv_s)), "kv"),
            (float(np.sum(self.blocked_tokens_s)), "tokens"),
        ]
        longest_s, what = max(blocked)
        return what if longest_s > 0 else "none"
