"""The forms of PromQL that panels use. Names come from the exporter's vocabulary."""

from typing import Final

from exporters.definitions.series_types import Histogram, Series

INTERVAL: Final = "$__rate_interval"
"""Grafana's rate interval: at least four scrapes, so a failed one leaves no gap."""

SERVERS: Final = 'model=~"$model",replica=~"$replica"'
MODELS: Final = 'model=~"$model"'
TENANTS: Final = 'model=~"$model",tenant=~"$tenant"'
GPUS: Final = 'replica=~"$replica"'
OBJECTIVES: Final = 'slo=~"$slo"'


def of(series: Series, where: str, *also: str) -> str:
    """A series without a function."""
    return f"{series.name}{{{','.join((where, *also))}}}" if where else series.name


def rate(series: Series, where: str, *also: str, by: str = "", over: str = INTERVAL) -> str:
    """Sum of the counters' rates over the interval, never since their start."""
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({of(series, where, *also)}[{over}]))"


def buckets(histogram: Histogram, where: str) -> str:
    """Observations per second, by bucket."""
    return f"sum by (le) (rate({histogram.name}_bucket{{{where}}}[{INTERVAL}]))"


def native(histogram: Histogram, where: str) -> str:
    """The same as one native histogram.

    A Prometheus that reads native histograms keeps classic buckets only if configured to; then
    those are used.
    """
    whole = f"sum(rate({histogram.name}{{{where}}}[{INTERVAL}]))"
    return f"{whole} unless on () {buckets(histogram, where)}"


def share(part: str, whole: str) -> str:
    """A part divided by the whole; no value without a whole, because 0 of 0 is not 0."""
    return f"{part} / ({whole} > 0)"


def at_quantile(series: Series, where: str, quantile: str) -> str:
    """A quantile of the last five minutes. Neither summed nor averaged."""
    return of(series, where, f'quantile="{quantile}"')
