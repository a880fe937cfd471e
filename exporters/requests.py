"""Totals over requests: how many ended how, their tokens, their latencies in buckets.

Knows neither Prometheus nor a clock. What a scrape reads is a copy, so that writing the
text holds nobody up.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

from exporters.series import HISTOGRAMS, TOKENS, Histogram
from telemetry.requests import Outcome, RequestTimeline

Pair = tuple[str, str]
"""Label values: model, replica."""


@dataclass(slots=True)
class Distribution:
    """One histogram: observations by bucket, not cumulative; the last is beyond all bounds."""

    counts: list[int]
    sum_s: float


@dataclass(slots=True)
class PairTotals:
    """The totals of one model on one replica. A histogram or token count is there once
    a value was known."""

    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    tokens: dict[str, int] = field(default_factory=dict)
    histograms: dict[str, Distribution] = field(default_factory=dict)

    def add(self, request: RequestTimeline) -> None:
        """Count one request."""
        self.outcomes[request.outcome] += 1
        for name in TOKENS:
            tokens: int | None = getattr(request, name)
            if tokens is not None:
                self.tokens[name] = self.tokens.get(name, 0) + tokens
        # What never reached the engine has no latency to speak of.
        if request.outcome is Outcome.REJECTED:
            return
        answered = request.outcome.answered
        for histogram in HISTOGRAMS:
            value_s: float | None = getattr(request, histogram.field)
            if value_s is not None and (answered or not histogram.answered_only):
                self._observe(histogram, value_s)

    def copy(self) -> "PairTotals":
        """As of now."""
        return PairTotals(
            dict(self.outcomes),
            dict(self.tokens),
            {
                name: Distribution(list(each.counts), each.sum_s)
                for name, each in self.histograms.items()
            },
        )

    def _observe(self, histogram: Histogram, value_s: float) -> None:
        held = self.histograms.get(histogram.name)
        if held is None:
            held = Distribution([0] * (len(histogram.bounds_s) + 1), 0.0)
            self.histograms[histogram.name] = held
        # A value on a bound belongs below it: Prometheus' `le`.
        held.counts[bisect_left(histogram.bounds_s, value_s)] += 1
        held.sum_s += value_s


class RequestTotals:
    """The totals of every pair."""

    def __init__(self) -> None:
        self._by_pair: dict[Pair, PairTotals] = {}

    def expect(self, pair: Pair) -> None:
        """A pair is known: its outcomes stand at 0 before the first request ends, or a
        rate would miss that one."""
        self._by_pair.setdefault(pair, PairTotals())

    def add(self, pair: Pair, request: RequestTimeline) -> None:
        """Count one request."""
        totals = self._by_pair.get(pair)
        if totals is None:
            totals = self._by_pair[pair] = PairTotals()
        totals.add(request)

    def forget(self, pairs: set[Pair]) -> None:
        """Drop pairs that have no room any more."""
        for pair in pairs:
            del self._by_pair[pair]

    @property
    def pairs(self) -> set[Pair]:
        """The pairs counted."""
        return set(self._by_pair)

    def copy(self) -> dict[Pair, PairTotals]:
        """As of now."""
        return {pair: totals.copy() for pair, totals in self._by_pair.items()}
