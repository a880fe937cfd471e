"""Test whether an objective's attainment (the share of good requests) fell. Pure.

A request is slow if its latency exceeds the objective's threshold. The attainment fell if two
conditions hold: the window misses the target, and the share of slow requests rose significantly.

Slow requests occur in bursts, because requests of the same minute share their server's state. To
correct for the bursts, Kish's design effect converts the numbers of requests to effective numbers
of independent requests. The design effect is measured on the differences between neighbouring
blocks of the baseline. So a slow drift does not count as noise. It is not measured in the window,
because an incident is itself a burst.

Sources: Agresti and Caffo, The American Statistician 54, 2000 (one slow and one fast request are
added to each range); Kish, Survey Sampling, 1965; von Neumann, Annals of Mathematical Statistics
12, 1941 (mean square successive difference).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np

from diagnosis.inputs.requests import BoolArray, FloatArray, Requests
from diagnosis.latency.parts import selected_latency_s
from diagnosis.latency.tail import BLOCK_S, MIN_BLOCKS
from diagnosis.question import FROM_RECEIPT, Metric, Question

MIN_REQUESTS: Final = 30
"""Minimum number of requests in each range. One slow request is then at most 3.3 % of them."""

CRITICAL_Z: Final = 1.645
"""Critical value of a one-sided test, in standard errors. By chance, one test in 20 finds a
rise."""

MIN_BASELINE_ATTAINMENT: Final = 0.5
"""Minimum share of the baseline's requests within a threshold. Below this share, the threshold does
not separate slow requests from usual requests. The threshold then affects the verdict only if the
share fell even further (see `fell`)."""


@dataclass(frozen=True, slots=True)
class LatencyThreshold:
    """The threshold that an objective sets for the latency that is explained.

    Args:
        seconds: the threshold in seconds.
        budget: the share of requests that may exceed the threshold.
        counts: a function that selects the requests that the objective counts.
        whole: whether the threshold is the objective's only condition for a good request.
    """

    slo: str
    seconds: float
    budget: float
    counts: Callable[[Requests], BoolArray]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Attainment:
    """In baseline and window, the number of requests that the objective counts, and how many of
    them are above the threshold."""

    slo: str
    threshold_s: float
    budget: float
    baseline_requests: int
    baseline_slow: int
    requests: int
    slow: int
    standard_errors: float
    """Increase of the share of slow requests, in standard errors."""
    whole: bool = True

    @property
    def decides(self) -> bool:
        """True if the verdict depends on this attainment."""
        return self.fell or (
            self._enough and self.baseline_attained_ratio >= MIN_BASELINE_ATTAINMENT
        )

    @property
    def _enough(self) -> bool:
        return min(self.baseline_requests, self.requests) >= MIN_REQUESTS

    @property
    def attained_ratio(self) -> float:
        """The share of the window's requests within the threshold."""
        return 1.0 - self.slow / self.requests if self.requests else 1.0

    @property
    def baseline_attained_ratio(self) -> float:
        """The share of the baseline's requests within the threshold."""
        return 1.0 - self.baseline_slow / self.baseline_requests if self.baseline_requests else 1.0

    @property
    def missed(self) -> bool:
        """True if the window has more slow requests than the target allows."""
        return self.slow > self.budget * self.requests

    @property
    def fell(self) -> bool:
        """True if the window misses the target and the increase is significant."""
        return self._enough and self.missed and self.standard_errors > CRITICAL_Z


def attainment(
    now: Requests, before: Requests, question: Question, threshold: LatencyThreshold
) -> Attainment:
    """Count the requests that exceed one objective's threshold, in window and baseline."""
    slow_now, counted_now = _slow(now, question, threshold)
    slow_before, counted_before = _slow(before, question, threshold)
    at_s = (before.received_unix_ns - question.baseline.from_unix_ns) / 1e9
    effect = _design_effect(slow_before, counted_before, at_s, question.baseline.seconds)
    counted = int(counted_before.sum()), int(counted_now.sum())
    slow = int(slow_before.sum()), int(slow_now.sum())
    return Attainment(
        slo=threshold.slo,
        threshold_s=threshold.seconds,
        budget=threshold.budget,
        baseline_requests=counted[0],
        baseline_slow=slow[0],
        requests=counted[1],
        slow=slow[1],
        standard_errors=_rise_of_slow_share(counted, slow, effect),
        whole=threshold.whole,
    )


def _slow(
    requests: Requests, question: Question, threshold: LatencyThreshold
) -> tuple[BoolArray, BoolArray]:
    """Return two masks, both (n,): the requests above the threshold, and the counted requests."""
    latency = selected_latency_s(requests, question)
    selected = threshold.counts(requests) & requests.matching(question.where)
    slow = latency > threshold.seconds
    counted = np.isfinite(latency)
    if question.metric in (*FROM_RECEIPT, Metric.QUEUE):
        # A request that the client cancelled before the threshold is not counted: it is unknown
        # whether the request would have been slow. A request that was cancelled later is slow.
        left = requests.label("outcome").is_value("abort") & ~counted
        left &= requests.number("e2e_s") > threshold.seconds
        if question.metric in (Metric.TTFT, Metric.FIRST_CONTENT):
            left &= ~np.isfinite(requests.number(f"{question.metric.value}_s"))
        slow, counted = slow | left, counted | left
    return slow & selected, counted & selected


def _design_effect(slow: BoolArray, counted: BoolArray, at_s: FloatArray, seconds: float) -> float:
    """Return the design effect. It is the number of correlated requests that have as much
    information as one independent request, and at least 1."""
    number, hits = int(counted.sum()), int(slow.sum())
    if not 0 < hits < number:
        return 1.0
    block_s = min(BLOCK_S, seconds / MIN_BLOCKS)
    block = np.maximum((at_s / block_s).astype(np.int64), 0)
    sizes = np.bincount(block[counted]).astype(np.float64)
    slows = np.bincount(block[slow], minlength=sizes.size)[sizes > 0]
    sizes = sizes[sizes > 0]
    if sizes.size < 2:
        return 1.0
    share = hits / number
    differences = float((np.diff(slows / sizes) ** 2).sum())
    expected = share * (1.0 - share) * float((1.0 / sizes[1:] + 1.0 / sizes[:-1]).sum())
    return max(1.0, differences / expected)


def _rise_of_slow_share(counted: tuple[int, int], slow: tuple[int, int], effect: float) -> float:
    """Return the increase of the share of slow requests from baseline to window, in standard
    errors."""
    if not all(counted):
        return 0.0
    shares, variance = [], 0.0
    for number, hits in zip(counted, slow, strict=True):
        worth = number / effect
        share = (hits / effect + 1.0) / (worth + 2.0)
        shares.append(share)
        variance += share * (1.0 - share) / (worth + 2.0)
    return (shares[1] - shares[0]) / sqrt(variance)
