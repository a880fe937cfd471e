"""Totals as prometheus_client's metric families. A family without samples is left out."""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.utils import floatToGoString

from exporters import series
from exporters.engines import EngineView
from exporters.health import CollectorReport
from exporters.recent_latencies import Latencies, RecentCounts
from exporters.requests import Distribution, Pair, PairTotals
from exporters.series import Histogram, Series
from exporters.slo import SloTotals
from telemetry.quantiles import least_number
from telemetry.sketches import quantiles_s

_Labels = TypeVar("_Labels", bound=tuple[str, ...])
"""Label values, in the order of the series' labels."""


def counter(of: Series, values: Mapping[_Labels, float]) -> Metric:
    """A counter family."""
    family = CounterMetricFamily(of.name, of.help, labels=of.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def gauge(of: Series, values: Mapping[_Labels, float]) -> Metric:
    """A gauge family."""
    family = GaugeMetricFamily(of.name, of.help, labels=of.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _histogram(of: Histogram, values: Mapping[Pair, Distribution]) -> Metric:
    family = HistogramMetricFamily(of.name, of.help, labels=series.REQUEST_LABELS)
    bounds = [*map(floatToGoString, of.bounds_s), "+Inf"]
    for pair, each in values.items():
        cumulative = accumulate(each.counts)
        family.add_metric(pair, list(zip(bounds, cumulative, strict=True)), each.sum_s)
    return family


def request_families(by_pair: Mapping[Pair, PairTotals]) -> Iterator[Metric]:
    """Outcomes, tokens and latencies."""
    outcomes = {
        (*pair, str(outcome)): count
        for pair, totals in by_pair.items()
        for outcome, count in totals.outcomes.items()
    }
    if outcomes:
        yield counter(series.REQUESTS, outcomes)
    for name, of in series.TOKENS.items():
        tokens = {pair: each.tokens[name] for pair, each in by_pair.items() if name in each.tokens}
        if tokens:
            yield counter(of, tokens)
    for histogram in series.HISTOGRAMS:
        observed = {
            pair: each.histograms[histogram.name]
            for pair, each in by_pair.items()
            if histogram.name in each.histograms
        }
        if observed:
            yield _histogram(histogram, observed)


def recent_families(recent: RecentCounts) -> Iterator[Metric]:
    """Quantiles of the last minutes, by replica and by model."""
    by_model = {(model,): counts for model, counts in recent.by_model.items()}
    yield from _summaries(series.RECENT_BY_REPLICA, recent.by_pair)
    yield from _summaries(series.RECENT_BY_MODEL, by_model)


def _summaries(
    by_field: Mapping[str, Series], counts: Mapping[_Labels, Latencies]
) -> Iterator[Metric]:
    for name, of in by_field.items():
        family = SummaryMetricFamily(of.name, of.help)
        for labels, latencies in counts.items():
            bins = latencies.get(name, {})
            number = sum(bins.values())
            told = {label: q for label, q in series.QUANTILES.items() if number >= least_number(q)}
            for label, value in zip(told, quantiles_s(bins, told.values()), strict=False):
                family.add_sample(
                    of.name, dict(zip(of.labels, (*labels, label), strict=True)), value
                )
        if family.samples:
            yield family


def engine_families(by_labels: Mapping[_Labels, EngineView]) -> Iterator[Metric]:
    """Gauges of fresh engines, totals of all."""
    for name, of in series.ENGINE_GAUGES.items():
        told = {
            labels: view.gauges[name] for labels, view in by_labels.items() if name in view.gauges
        }
        if told:
            yield gauge(of, told)
    for name, of in series.ENGINE_TOTALS.items():
        counted = {
            labels: view.totals[name] for labels, view in by_labels.items() if name in view.totals
        }
        if counted:
            yield counter(of, counted)
    if by_labels:
        yield gauge(
            series.LAST_SAMPLE,
            {labels: view.last_sample_unix_ns / 1e9 for labels, view in by_labels.items()},
        )


def slo_families(by_name: Mapping[str, SloTotals]) -> Iterator[Metric]:
    """Good events and all, per objective; from the start, at 0."""
    if by_name:
        yield counter(series.SLO_EVENTS, {(name,): each.events for name, each in by_name.items()})
        yield counter(
            series.SLO_GOOD_EVENTS, {(name,): each.good for name, each in by_name.items()}
        )
        yield counter(
            series.SLO_EXCLUDED_EVENTS,
            {
                (name, reason): count
                for name, each in by_name.items()
                for reason, count in each.excluded.items()
            },
        )


def report_families(report: CollectorReport) -> Iterator[Metric]:
    """The collector on itself."""
    yield counter(series.ITEMS, report.items)
    yield counter(series.MESSAGES, report.messages)
    yield counter(series.TRUNCATED_TEXTS, {(): report.truncated_texts})
    yield counter(series.LISTENER_FAILURES, {(): report.listener_failures})
    yield gauge(series.WAITING_MESSAGES, {(): report.waiting_messages})
    yield gauge(series.WAITING_BYTES, {(): report.waiting_bytes})
    if report.last_commit_unix_ns is not None:
        yield gauge(series.LAST_COMMIT, {(): report.last_commit_unix_ns / 1e9})
