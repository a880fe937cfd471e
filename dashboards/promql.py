"""PromQL expressions for panels, with the exporter's metric names."""

from typing import Final

from exporters.definitions.series_types import LatencyHistogram, MetricSeries

INTERVAL: Final = "$__rate_interval"
"""At least four scrape intervals. With this interval, a failed scrape leaves no gap."""

SERVERS: Final = 'model=~"$model",replica=~"$replica"'
MODELS: Final = 'model=~"$model"'
TENANTS: Final = 'model=~"$model",tenant=~"$tenant"'
GPUS: Final = 'replica=~"$replica"'
PROBES: Final = 'region=~"$prober_region",endpoint=~"$endpoint"'
OBJECTIVES: Final = 'slo=~"$slo"'


def of(series: MetricSeries, where: str, *also: str) -> str:
    """A series selector."""
    return f"{series.name}{{{','.join((where, *also))}}}" if where else series.name


def rate(series: MetricSeries, where: str, *also: str, by: str = "", over: str = INTERVAL) -> str:
    """The sum of the rates of all selected counters over the interval."""
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({of(series, where, *also)}[{over}]))"


def buckets(histogram: LatencyHistogram, where: str) -> str:
    """Observations per second in each bucket."""
    return f"sum by (le) (rate({histogram.name}_bucket{{{where}}}[{INTERVAL}]))"


def native(histogram: LatencyHistogram, where: str) -> str:
    """Observations per second as a native histogram. Classic buckets give no result."""
    whole = f"sum(rate({histogram.name}{{{where}}}[{INTERVAL}]))"
    return f"{whole} unless on () {buckets(histogram, where)}"


def share(part: str, whole: str) -> str:
    """A part divided by the whole. The query has no result where the whole is 0."""
    return f"{part} / ({whole} > 0)"


def at_quantile(series: MetricSeries, where: str, quantile: str) -> str:
    """A quantile of the last five minutes. Do not sum or average quantiles."""
    return of(series, where, f'quantile="{quantile}"')
