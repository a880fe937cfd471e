"""Convert totals to metric families. A family without any series is left out."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeVar

from alerts.objectives import GoodEvents
from exporters.definitions import series
from exporters.definitions.engine_series import (
    ENGINE_GAUGES,
    ENGINE_INFO,
    ENGINE_TOTALS,
    LAST_SAMPLE,
)
from exporters.definitions.series_types import LatencyHistogram, MetricSeries
from exporters.format.histograms import Distributions
from exporters.format.label_cache import Labels
from exporters.format.text import Family, Scalars
from exporters.self_metrics.health import CollectorReport
from exporters.totals.engines import EngineView
from exporters.totals.recent_latencies import Latencies, RecentCounts
from exporters.totals.recent_quantiles import quantiles_s
from exporters.totals.request_batch import Pair
from exporters.totals.requests import PairTotals, RequestCounts
from exporters.totals.slo import Key, SloTotals

_Labels = TypeVar("_Labels", bound=tuple[str, ...])


def counter(of: MetricSeries, values: Mapping[_Labels, float]) -> Family:
    """A counter with one series for each set of label values."""
    return Scalars(of, "counter", dict[Labels, float](values.items()))


def gauge(of: MetricSeries, values: Mapping[_Labels, float]) -> Family:
    """A gauge with one series for each set of label values."""
    return Scalars(of, "gauge", dict[Labels, float](values.items()))


def _non_empty(families: Iterator[Scalars]) -> Iterator[Family]:
    return (family for family in families if family.values)


def request_families(
    by_pair: Mapping[Pair, PairTotals],
    histograms: tuple[LatencyHistogram, ...],
    created_unix_s: float,
) -> Iterator[Family]:
    """Yield the outcomes, tokens, costs, phases and latencies of each replica."""
    yield from _count_families(
        {pair: totals.counts for pair, totals in by_pair.items()},
        series.REQUESTS,
        series.TOKENS,
        series.COSTS,
    )
    phased = {pair: totals for pair, totals in by_pair.items() if totals.phased}
    if phased:
        yield counter(series.PHASED_REQUESTS, {pair: each.phased for pair, each in phased.items()})
        yield counter(
            series.PHASE_SECONDS,
            {
                (*pair, phase): value_s
                for pair, each in phased.items()
                for phase, value_s in each.phases_s.items()
            },
        )
    parts_s = {
        (*pair, *part): value_s
        for pair, each in by_pair.items()
        for part, value_s in each.parts_s.items()
    }
    if parts_s:
        yield counter(series.PART_SECONDS, parts_s)
    for histogram in histograms:
        observed = {
            pair: each.histograms[histogram.name]
            for pair, each in by_pair.items()
            if histogram.name in each.histograms
        }
        if observed:
            yield Distributions(histogram, observed, created_unix_s)


def tenant_families(by_tenant: Mapping[Pair, RequestCounts]) -> Iterator[Family]:
    """Yield the outcomes, tokens and costs of each tenant."""
    yield from _count_families(
        by_tenant, series.TENANT_REQUESTS, series.TENANT_TOKENS, series.TENANT_COSTS
    )


def _count_families(
    by_pair: Mapping[Pair, RequestCounts],
    requests: MetricSeries,
    tokens: Mapping[str, MetricSeries],
    costs: Mapping[str, MetricSeries],
) -> Iterator[Family]:
    outcomes = {
        (*pair, str(outcome)): count
        for pair, counts in by_pair.items()
        for outcome, count in counts.outcomes.items()
    }
    if outcomes:
        yield counter(requests, outcomes)
    for name, of in tokens.items():
        counted = {pair: each.tokens[name] for pair, each in by_pair.items() if name in each.tokens}
        if counted:
            yield counter(of, counted)
    for name, of in costs.items():
        known = {pair: each.costs[name] for pair, each in by_pair.items() if name in each.costs}
        if known:
            yield counter(of, known)


def recent_families(recent: RecentCounts) -> Iterator[Family]:
    """Yield the quantiles of the last minutes for each replica, each model and each tenant."""
    by_model = {(model,): counts for model, counts in recent.by_model.items()}
    yield from _non_empty(_summaries(series.RECENT_BY_REPLICA, recent.by_pair))
    yield from _non_empty(_summaries(series.RECENT_BY_MODEL, by_model))
    yield from _non_empty(_summaries(series.RECENT_BY_TENANT, recent.by_tenant))


def _summaries(
    by_field: Mapping[str, MetricSeries], counts: Mapping[_Labels, Latencies]
) -> Iterator[Scalars]:
    for name, of in by_field.items():
        windows = {
            labels: latencies[name]
            for labels, latencies in counts.items()
            if name in latencies and latencies[name].bins
        }
        by_place = list(windows)
        values: dict[Labels, float] = {
            (*by_place[place], label): value_s
            for place, label, value_s in quantiles_s([*windows.values()], series.QUANTILES)
        }
        yield Scalars(of, "summary", values)


def engine_families(
    by_labels: Mapping[_Labels, EngineView], versions: Mapping[tuple[str, ...], str]
) -> Iterator[Family]:
    """Yield gauges of engines that currently send samples, and totals of all engines."""
    for name, of in ENGINE_GAUGES.items():
        gauges = {
            labels: view.gauges[name] for labels, view in by_labels.items() if name in view.gauges
        }
        if gauges:
            yield gauge(of, gauges)
    for name, of in ENGINE_TOTALS.items():
        counted = {
            labels: view.totals[name] for labels, view in by_labels.items() if name in view.totals
        }
        if counted:
            yield counter(of, counted)
    if by_labels:
        yield gauge(
            LAST_SAMPLE,
            {labels: view.last_sample_unix_ns / 1e9 for labels, view in by_labels.items()},
        )
        infos = {
            (*labels, *view.info, versions.get(labels, "")): 1 for labels, view in by_labels.items()
        }
        yield gauge(ENGINE_INFO, infos)


def slo_families(
    totals: Mapping[Key, SloTotals],
    goodputs: Mapping[str, GoodEvents],
    targets: Mapping[str, float],
) -> Iterator[Family]:
    """Yield good events, all events and the target, for each objective and group.

    If any objective is grouped by a field, every series has a label for this field. The label is
    empty for objectives that are not grouped by this field.
    """
    if targets:
        yield gauge(series.SLO_TARGET, {(name,): target for name, target in targets.items()})
    if not totals:
        return
    by = tuple(sorted({field for each in goodputs.values() for field in each.by}))

    def labels(key: Key) -> tuple[str, ...]:
        name, group = key
        values = dict(zip(goodputs[name].by, group, strict=True))
        return (name, *(values.get(field, "") for field in by))

    events, good, excluded = (
        each._replace(labels=(each.labels[0], *by, *each.labels[1:]))
        for each in (series.SLO_EVENTS, series.SLO_GOOD_EVENTS, series.SLO_EXCLUDED_EVENTS)
    )
    yield counter(events, {labels(key): each.events for key, each in totals.items()})
    yield counter(good, {labels(key): each.good for key, each in totals.items()})
    yield counter(
        excluded,
        {
            (*labels(key), reason): count
            for key, each in totals.items()
            for reason, count in each.excluded.items()
        },
    )
    if by:
        grouped = Counter(name for name, group in totals if group)
        yield gauge(series.SLO_GROUPS, {(name,): n - 1 for name, n in grouped.items()})


def report_families(report: CollectorReport) -> Iterator[Family]:
    """Yield the collector's own counters."""
    yield counter(series.ITEMS, report.items)
    yield counter(series.MESSAGES, report.messages)
    yield counter(series.TRUNCATED_TEXTS, {(): report.truncated_texts})
    dropped = {(reason,): count for reason, count in report.dropped_values.items()}
    yield counter(series.DROPPED_VALUES, dropped)
    yield counter(series.LISTENER_FAILURES, {(): report.listener_failures})
    yield gauge(series.WAITING_MESSAGES, {(): report.waiting_messages})
    yield gauge(series.WAITING_BYTES, {(): report.waiting_bytes})
    if report.last_commit_unix_ns is not None:
        yield gauge(series.LAST_COMMIT, {(): report.last_commit_unix_ns / 1e9})
