"""What a series of `/metrics` is: its name, meaning, unit and labels, as data."""

from typing import Final, NamedTuple

OTHER: Final = "other"
"""The label value that takes in what is beyond the cap."""


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
    """For durations that an abort or error cuts short: there, short is not fast."""
    bounds_s: tuple[float, ...]
    exemplars: bool = False
    """Whether its buckets name a request each: those of what clients feel."""


class Recent(NamedTuple):
    """Quantiles of one latency of `RequestTimeline` over the last minutes."""

    name: str
    by_model: str
    """The same over all replicas of a model."""
    by_tenant: str
    """The same by model and tenant."""
    help: str
    field: str
    answered_only: bool = False
    streamed_only: bool = False
    """The first byte of an answer that is not streamed is its last (docs/decisions/001)."""


def bounds_s(lowest: str, highest: str) -> tuple[float, ...]:
    """Six bounds a decade from `lowest` to `highest`.

    Args:
        lowest: exponent of ten of the first decade, as text.
        highest: the last bound, as text.
    """
    # Parsed from text, each bound is the double nearest to what is written: 0.3 is 0.3.
    steps = (
        float(f"{mantissa}e{exponent}")
        for exponent in range(int(lowest), 5)
        for mantissa in ("1", "1.5", "2", "3", "5", "7.5")
    )
    return tuple(bound for bound in steps if bound <= float(highest))


REQUEST_LABELS: Final = ("model", "replica")
TENANT_LABELS: Final = ("model", "tenant")
ENGINE_LABELS: Final = ("model", "replica", "engine")
