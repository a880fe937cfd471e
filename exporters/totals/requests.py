"""Totals of requests: outcomes, tokens, latency histograms, and the time of each phase and part."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from exporters.definitions.series import COSTS, HISTOGRAMS, TOKENS
from exporters.definitions.series_types import LatencyHistogram
from exporters.format.histogram_cells import cells
from exporters.format.histograms import HistogramCounts, distribution, observed
from exporters.totals.by_pair import ByPair, FromZeroByPair
from exporters.totals.request_batch import OUTCOMES, LabelGroups, Pair, RequestBatch
from telemetry.requests import DECODE_PARTS, PHASES, PREFILL_PARTS, QUEUE_PARTS, Outcome

_Key = TypeVar("_Key", str, Pair)

_PHASES: Final = tuple(name.removesuffix("_s") for name in PHASES)
_PARTS: Final = tuple(
    (names, tuple((phase, name[len(phase) + 1 : -2]) for name in names))
    for phase, names in (
        ("queue", QUEUE_PARTS),
        ("prefill", PREFILL_PARTS),
        ("decode", DECODE_PARTS),
    )
)


@dataclass(slots=True)
class RequestCounts:
    """The number of requests for each outcome, and totals of their tokens and costs. A total is
    absent until it is first reported."""

    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    tokens: dict[str, int] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)

    def copy(self) -> "RequestCounts":
        """Return a copy."""
        return RequestCounts(dict(self.outcomes), dict(self.tokens), dict(self.costs))

    def zero(self) -> "RequestCounts":
        """Return counts of 0 for the same outcomes, tokens and costs."""
        return RequestCounts(
            tokens=dict.fromkeys(self.tokens, 0), costs=dict.fromkeys(self.costs, 0.0)
        )


@dataclass(slots=True)
class PairTotals:
    """The totals of one model on one replica. Histograms, phases and parts are absent until they
    are first reported."""

    counts: RequestCounts = field(default_factory=RequestCounts)
    histograms: dict[str, HistogramCounts] = field(default_factory=dict)
    phased: int = 0
    phases_s: dict[str, float] = field(default_factory=dict)
    parts_s: dict[Pair, float] = field(default_factory=dict)
    """The seconds of each part of each phase."""

    def copy(self) -> "PairTotals":
        """Return a copy."""
        return PairTotals(
            self.counts.copy(),
            {name: each.copy() for name, each in self.histograms.items()},
            self.phased,
            self.phases_s.copy(),
            self.parts_s.copy(),
        )


def _count(counts: Sequence[RequestCounts], under: LabelGroups, bulk: RequestBatch) -> None:
    for each, numbers in zip(counts, under.numbers(bulk.outcomes, len(OUTCOMES)), strict=True):
        for outcome, number in zip(OUTCOMES, numbers, strict=True):
            each.outcomes[outcome] += number
    for name in TOKENS:
        for at, _, (tokens,) in under.sums(bulk.numbers(name)):
            token_counts = counts[at].tokens
            token_counts[name] = token_counts.get(name, 0) + int(tokens)
    for name in COSTS:
        for at, _, (cost,) in under.sums(bulk.numbers(name)):
            counts[at].costs[name] = counts[at].costs.get(name, 0.0) + cost


def _observe(totals: Sequence[PairTotals], bulk: RequestBatch, histogram: LatencyHistogram) -> None:
    counted = bulk.answered if histogram.answered_only else bulk.served
    values_s = bulk.numbers(histogram.field)
    rows = np.flatnonzero(counted & ~np.isnan(values_s))
    of = cells(histogram.bounds_s)
    for each in observed(of, bulk.pairs.place[rows], values_s[rows]):
        histograms = totals[each.at].histograms
        series = histograms.get(histogram.name)
        if series is None:
            series = histograms[histogram.name] = distribution(histogram)
        series.add(each)
        if histogram.exemplars:
            for bucket, number in each.latest.items():
                row = rows[number]
                series.exemplars[bucket] = (
                    bulk.rows.column("trace_id")[row],
                    float(values_s[row]),
                    float(bulk.ended_unix_ns[row] / 1e9),
                )


def _spend(totals: Sequence[PairTotals], bulk: RequestBatch) -> None:
    phases = [bulk.numbers(name, bulk.served) for name in PHASES]
    for at, requests, spent_s in bulk.pairs.sums(*phases):
        totals[at].phased += requests
        _add(totals[at].phases_s, _PHASES, spent_s)
    for names, labels in _PARTS:
        parts = [bulk.numbers(name, bulk.served) for name in names]
        for at, _, spent_s in bulk.pairs.sums(*parts):
            _add(totals[at].parts_s, labels, spent_s)


def _add(totals_s: dict[_Key, float], keys: tuple[_Key, ...], spent_s: list[float]) -> None:
    for key, value_s in zip(keys, spent_s, strict=True):
        totals_s[key] = totals_s.get(key, 0.0) + value_s


class RequestTotals(ByPair[PairTotals]):
    """The totals of every pair of model and replica."""

    def __init__(self, histograms: tuple[LatencyHistogram, ...] = HISTOGRAMS) -> None:
        super().__init__(PairTotals)
        self._histograms = histograms

    def add(self, bulk: RequestBatch) -> None:
        """Count requests."""
        totals = [self.expect(pair) for pair in bulk.pairs.labels]
        _count([each.counts for each in totals], bulk.pairs, bulk)
        for histogram in self._histograms:
            _observe(totals, bulk, histogram)
        _spend(totals, bulk)


class TenantTotals(FromZeroByPair[RequestCounts]):
    """The counts of every pair of model and tenant."""

    def __init__(self) -> None:
        super().__init__(RequestCounts)

    def add(self, bulk: RequestBatch) -> None:
        """Count requests."""
        under = bulk.tenant_pairs
        _count([self.expect(pair) for pair in under.labels], under, bulk)
