"""Totals over requests: how many ended how, their tokens, their latencies in buckets, and where
their time went.

Knows neither Prometheus nor a clock. What a scrape reads is a copy, so that writing the
text holds nobody up.
"""

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, TypeVar

from exporters.distributions import Distribution, Exemplar, distribution
from exporters.kinds import Histogram
from exporters.series import COSTS, HISTOGRAMS, TOKENS
from telemetry.requests import (
    DECODE_PARTS,
    PHASES,
    PREFILL_PARTS,
    QUEUE_PARTS,
    Outcome,
    RequestTimeline,
)

Pair = tuple[str, str]
"""Label values: a model and a replica, or a model and a tenant."""

_Key = TypeVar("_Key", str, Pair)

_PHASES: Final = tuple(name.removesuffix("_s") for name in PHASES)
_phases_of: Final = attrgetter(*PHASES)
_costs_of: Final = attrgetter(*COSTS)
_PARTS: Final = tuple(
    (attrgetter(*names), tuple((phase, name[len(phase) + 1 : -2]) for name in names))
    for phase, names in (
        ("queue", QUEUE_PARTS),
        ("prefill", PREFILL_PARTS),
        ("decode", DECODE_PARTS),
    )
)
"""Of each phase that has any: what reads them, and the label values of each: (phase, part)."""


@dataclass(slots=True)
class Counts:
    """How many requests ended how, their tokens and what they cost. An amount is there once it
    was known."""

    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    tokens: dict[str, int] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)

    def add(self, request: RequestTimeline) -> None:
        """Count one request."""
        self.outcomes[request.outcome] += 1
        for name in TOKENS:
            tokens: int | None = getattr(request, name)
            if tokens is not None:
                self.tokens[name] = self.tokens.get(name, 0) + tokens
        for name, value in zip(COSTS, _costs_of(request), strict=True):
            if value is not None:
                self.costs[name] = self.costs.get(name, 0.0) + value

    def copy(self) -> "Counts":
        """As of now."""
        return Counts(dict(self.outcomes), dict(self.tokens), dict(self.costs))


@dataclass(slots=True)
class PairTotals:
    """The totals of one model on one replica. A histogram, phase or part is there once a value
    was known."""

    counts: Counts = field(default_factory=Counts)
    histograms: dict[str, Distribution] = field(default_factory=dict)
    phased: int = 0
    """Requests whose phases are all known."""
    phases_s: dict[str, float] = field(default_factory=dict)
    parts_s: dict[Pair, float] = field(default_factory=dict)
    """By phase and part."""

    def add(self, request: RequestTimeline, histograms: tuple[Histogram, ...] = HISTOGRAMS) -> None:
        """Count one request."""
        self.counts.add(request)
        # What never reached the engine has no latency to speak of.
        if request.outcome is Outcome.REJECTED:
            return
        answered = request.outcome.answered
        trace_id, ended_unix_s = request.trace_id, request.received_unix_ns / 1e9 + request.e2e_s
        for histogram in histograms:
            value_s: float | None = getattr(request, histogram.field)
            if value_s is not None and (answered or not histogram.answered_only):
                self._observe(
                    histogram,
                    value_s,
                    (trace_id, value_s, ended_unix_s) if histogram.exemplars else None,
                )
        self._spend(request)

    def copy(self) -> "PairTotals":
        """As of now."""
        return PairTotals(
            self.counts.copy(),
            {name: each.copy() for name, each in self.histograms.items()},
            self.phased,
            self.phases_s.copy(),
            self.parts_s.copy(),
        )

    def _observe(
        self, histogram: Histogram, value_s: float, exemplar: Exemplar | None = None
    ) -> None:
        held = self.histograms.get(histogram.name)
        if held is None:
            held = self.histograms[histogram.name] = distribution(histogram)
        held.observe(value_s, exemplar)

    def _spend(self, request: RequestTimeline) -> None:
        spent_s = _phases_of(request)
        if None not in spent_s:
            self.phased += 1
            _add(self.phases_s, _PHASES, spent_s)
        for parts_of, labels in _PARTS:
            spent_s = parts_of(request)
            # Parts are known together or not at all.
            if None not in spent_s:
                _add(self.parts_s, labels, spent_s)


def _add(totals_s: dict[_Key, float], keys: tuple[_Key, ...], spent_s: tuple[float, ...]) -> None:
    for key, value_s in zip(keys, spent_s, strict=True):
        totals_s[key] = totals_s.get(key, 0.0) + value_s


class RequestTotals:
    """The totals of every pair of model and replica.

    Args:
        histograms: with the bounds to count by.
    """

    def __init__(self, histograms: tuple[Histogram, ...] = HISTOGRAMS) -> None:
        self._by_pair: dict[Pair, PairTotals] = {}
        self._histograms = histograms

    def expect(self, pair: Pair) -> None:
        """A pair is known: its outcomes stand at 0 before the first request ends, or a
        rate would miss that one."""
        self._by_pair.setdefault(pair, PairTotals())

    def add(self, pair: Pair, request: RequestTimeline) -> None:
        """Count one request."""
        totals = self._by_pair.get(pair)
        if totals is None:
            totals = self._by_pair[pair] = PairTotals()
        totals.add(request, self._histograms)

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


class TenantTotals:
    """The counts of every pair of model and tenant."""

    def __init__(self) -> None:
        self._by_pair: dict[Pair, Counts] = {}

    def add(self, pair: Pair, request: RequestTimeline) -> None:
        """Count one request."""
        counts = self._by_pair.get(pair)
        if counts is None:
            counts = self._by_pair[pair] = Counts()
        counts.add(request)

    def forget(self, pairs: set[Pair]) -> None:
        """Drop pairs that have no room any more."""
        for pair in pairs:
            del self._by_pair[pair]

    @property
    def pairs(self) -> set[Pair]:
        """The pairs counted."""
        return set(self._by_pair)

    def copy(self) -> dict[Pair, Counts]:
        """As of now."""
        return {pair: counts.copy() for pair, counts in self._by_pair.items()}
