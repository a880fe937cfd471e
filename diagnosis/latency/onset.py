"""Find when the share of slow requests changed.

Pure. A request is slow if it is slower than the fastest request of the baseline's tail. The model
has two probabilities of a slow request: before the onset, and after the onset. The onset is the
block of time with the highest likelihood. A change must be clearly more likely than no change.

Source: likelihood ratio for a change in a binomial proportion, with Schwarz's penalty.
"""

from typing import Final

import numpy as np

from diagnosis.inputs.requests import FloatArray
from diagnosis.latency.tail import SortedLatencies
from diagnosis.question import Span

USUAL: Final = 3.0
"""Maximum share of slow requests before the onset, as a multiple of the baseline's share. Without a
fault, 99 % of the multiples are at most 2.9."""


def onset_unix_ns(
    now: SortedLatencies, usual: SortedLatencies, share: float, window: Span
) -> int | None:
    """Return the time at which slow requests became more frequent than usual, in unix nanoseconds.

    Return None if there is no such change."""
    threshold_s = float(usual.latency_s[usual.tail(share) - 1])
    slow = now.blocks[now.latency_s > threshold_s]
    bad = np.bincount(slow, minlength=now.block_count).astype(np.float64)
    whole = np.bincount(now.blocks, minlength=now.block_count).astype(np.float64)
    end = now.block_count
    while (block := _first_slow_block(bad[:end], whole[:end])) is not None:
        if bad[:block].sum() <= USUAL * share * whole[:block].sum():
            return window.from_unix_ns + int(
                block / now.block_count * (window.to_unix_ns - window.from_unix_ns)
            )
        # Slow requests were already frequent before this block, so search for an earlier onset.
        end = block
    return None


def _first_slow_block(bad: FloatArray, whole: FloatArray) -> int | None:
    """Return the first block of time of the period with more slow requests, or None if there is no
    change."""
    bad_before, all_before = np.cumsum(bad)[:-1], np.cumsum(whole)[:-1]
    bad_after, all_after = bad.sum() - bad_before, whole.sum() - all_before
    gain = (
        _likelihood(bad_before, all_before)
        + _likelihood(bad_after, all_after)
        - _likelihood(bad.sum(keepdims=True), whole.sum(keepdims=True))
    )
    rises = bad_after * np.maximum(all_before, 1) > bad_before * np.maximum(all_after, 1)
    gain = np.where(rises & (all_before > 0) & (all_after > 0), gain, 0.0)
    if not gain.size or gain.max() < 1.5 * np.log(max(whole.sum(), 2)):
        return None
    return int(gain.argmax()) + 1


def _likelihood(bad: FloatArray, whole: FloatArray) -> FloatArray:
    """Return the log likelihood of `bad` slow requests among `whole` requests: (n,)."""
    good = whole - bad
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(bad > 0, bad * np.log(bad / whole), 0.0)
        second = np.where(good > 0, good * np.log(good / whole), 0.0)
    return np.asarray(first + second, dtype=np.float64)
