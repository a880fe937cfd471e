"""The types of the series of `/metrics`."""

from typing import Final, NamedTuple

OTHER: Final = "other"


class MetricSeries(NamedTuple):
    """A counter or gauge."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


class LatencyHistogram(NamedTuple):
    """A histogram of one latency of `RequestTimeline`."""

    name: str
    help: str
    field: str
    answered_only: bool
    """Whether only completely answered requests are counted. The latencies of other requests are
    too short, because these requests ended early."""
    bounds_s: tuple[float, ...]
    exemplars: bool = False
    """Whether the buckets have exemplars. True for latencies that clients experience."""


class Recent(NamedTuple):
    """Quantiles of one latency of `RequestTimeline` over the last minutes."""

    name: str
    by_model: str
    by_tenant: str
    help: str
    field: str
    answered_only: bool = False
    streamed_only: bool = False
    """Whether only streamed responses are counted. Without streaming, the first byte arrives at the
    end of the response (docs/decisions/001)."""


def bounds_s(lowest: str, highest: str) -> tuple[float, ...]:
    """Bucket bounds, six per decade, from `lowest` to `highest`.

    Args:
        lowest: the exponent of ten at which the first decade begins, such as "-3" for 0.001 s.
        highest: the last bound.
    """
    # The number is parsed from text, so that each bound is the double nearest to the decimal
    # number.
    steps = (
        float(f"{mantissa}e{exponent}")
        for exponent in range(int(lowest), 5)
        for mantissa in ("1", "1.5", "2", "3", "5", "7.5")
    )
    return tuple(bound for bound in steps if bound <= float(highest))


REQUEST_LABELS: Final = ("model", "replica")
TENANT_LABELS: Final = ("model", "tenant")
ENGINE_LABELS: Final = ("model", "replica", "engine")
