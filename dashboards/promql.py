"""The few forms of PromQL that panels are made of. Names come from the exporter's vocabulary."""

from typing import Final

from exporters.definitions.series_types import Histogram, Series

INTERVAL: Final = "$__rate_interval"
"""Grafana's: at least four scrapes, so that one that failed leaves no hole."""

SERVERS: Final = 'model=~"$model",replica=~"$replica"'
MODELS: Final = 'model=~"$model"'
TENANTS: Final = 'model=~"$model",tenant=~"$tenant"'
GPUS: Final = 'replica=~"$replica"'
OBJECTIVES: Final = 'slo=~"$slo"'


def of(series: Series, where: str, *also: str) -> str:
    """The series as it stands."""
    return f"{series.name}{{{','.join((where, *also))}}}" if where else series.name


def rate(series: Series, where: str, *also: str, by: str = "", over: str = INTERVAL) -> str:
    """How fast counters grew, summed. Never since boot: of the interval alone."""
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({of(series, where, *also)}[{over}]))"


def buckets(histogram: Histogram, where: str) -> str:
    """Observations a second, by bucket."""
    return f"sum by (le) (rate({histogram.name}_bucket{{{where}}}[{INTERVAL}]))"


def native(histogram: Histogram, where: str) -> str:
    """The same as one native histogram. A Prometheus that asks for those keeps the classic buckets
    only where it is told to; where it does, they are enough."""
    whole = f"sum(rate({histogram.name}{{{where}}}[{INTERVAL}]))"
    return f"{whole} unless on () {buckets(histogram, where)}"


def share(part: str, whole: str) -> str:
    """A part of the whole; nothing where there was none: 0 of 0 is not 0."""
    return f"{part} / ({whole} > 0)"


def at_quantile(series: Series, where: str, quantile: str) -> str:
    """A quantile of the last five minutes. Neither summed nor averaged."""
    return of(series, where, f'quantile="{quantile}"')
