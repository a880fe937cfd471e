"""The types of series of `/metrics`: name, help, unit and labels, as data."""

from typing import Final, NamedTuple

OTHER: Final = "other"
"""The label value that replaces all values beyond the limit."""


class Series(NamedTuple):
    """A counter or gauge."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


class Histogram(NamedTuple):
    """A histogram of one latency of `RequestTimeline`."""

    name: str
    help: str
    field: str
    answered_only: bool
    """Whether only complete answers count, because an abort or error shortens this duration."""
    bounds_s: tuple[float, ...]
    exemplars: bool = False
    """Whether each bucket has an exemplar; only for latencies that clients experience."""


class Recent(NamedTuple):
    """Quantiles of one latency of `RequestTimeline` over the last minutes."""

    name: str
    by_model: str
    """Name of the same quantiles over all replicas of a model."""
    by_tenant: str
    """Name of the same quantiles by model and tenant."""
    help: str
    field: str
    answered_only: bool = False
    streamed_only: bool = False
    """Whether only streamed answers count, because others have their first byte at the end
    (docs/decisions/001)."""


def bounds_s(lowest: str, highest: str) -> tuple[float, ...]:
    """Return six bounds per decade from `lowest` to `highest`.

    Args:
        lowest: exponent of ten of the first decade, as text.
        highest: the last bound, as text.
    """
    # Parsed from text, each bound is the double nearest to the decimal number.
    steps = (
        float(f"{mantissa}e{exponent}")
        for exponent in range(int(lowest), 5)
        for mantissa in ("1", "1.5", "2", "3", "5", "7.5")
    )
    return tuple(bound for bound in steps if bound <= float(highest))


REQUEST_LABELS: Final = ("model", "replica")
TENANT_LABELS: Final = ("model", "tenant")
ENGINE_LABELS: Final = ("model", "replica", "engine")
