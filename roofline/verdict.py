"""Determine the bottleneck of an engine in a time window: memory, compute, overhead, or no work.
Pure.

The memory time of a step is its bytes / peak bandwidth. The compute time is its FLOPs / peak
FLOP/s. The first line whose condition is true is the bottleneck:

    idle            SM activity below 0.2
    overhead-bound  the step takes more than twice the longer of the two times; the rest is CPU
                    time, kernel launches or communication
    memory-bound    the memory time is at least the compute time
    compute-bound   the compute time is longer than the memory time

Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

IDLE_BELOW: Final = 0.2
"""An engine is idle if the SM activity is below this value. If the SM activity is unknown, the
share of the window in which steps ran is used."""
OVERHEAD_BEYOND: Final = 2.0
"""A window is overhead-bound if its mean step takes more than this many times the longer of memory
time and compute time."""
DIFFERS_BEYOND: Final = 0.25
"""Limit of the relative difference between modelled and measured bandwidth."""
WORTH_COMPARING: Final = 0.05
"""The modelled and the measured bandwidth are compared only if one of them is at least this share
of the peak. At lower bandwidths, transfers that are not modelled dominate."""
LOW_ACTIVITY: Final = 0.3
LONG_STEP_S: Final = 0.01
BEYOND_PEAK: Final = 1.02


class RooflineVerdict(StrEnum):
    """The bottleneck of a window."""

    IDLE = "idle"
    MEMORY_BOUND = "memory_bound"
    COMPUTE_BOUND = "compute_bound"
    OVERHEAD_BOUND = "overhead_bound"


class RooflineFinding(StrEnum):
    """An additional remark on a window."""

    LOW_UTILISATION_LONG_STEPS = "low_utilisation_long_steps"
    """The engine is memory-bound, matrix units are mostly inactive, and steps are long."""
    MEASURED_ABOVE_MODEL = "measured_above_model"
    MEASURED_BELOW_MODEL = "measured_below_model"
    BEYOND_THE_PEAK = "beyond_the_peak"
    """The modelled bytes or FLOPs exceed the peak, so the reported shape or device is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The mean duration of a step, its bytes / peak bandwidth, and its FLOPs / peak FLOP/s, in
    seconds."""

    step_s: float
    memory_s: float | None
    compute_s: float | None

    @property
    def mbu(self) -> float | None:
        """Model bandwidth utilisation: the memory time / the step's duration."""
        return _share(self.memory_s, self.step_s)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation: the compute time / the step's duration."""
        return _share(self.compute_s, self.step_s)


def verdict_of(
    terms: Terms | None, sm_active_ratio: float | None, busy_ratio: float | None = None
) -> RooflineVerdict | None:
    """Return the bottleneck of a window, or None if it depends on an unknown value.

    Args:
        terms: the terms of the window's mean step, if known.
        sm_active_ratio: measured share of the window in which multiprocessors were active.
        busy_ratio: share of the window in steps. It is used if SM activity is unknown.
    """
    activity = busy_ratio if sm_active_ratio is None else sm_active_ratio
    if activity is not None and activity < IDLE_BELOW:
        return RooflineVerdict.IDLE
    if terms is None or terms.memory_s is None or terms.compute_s is None:
        return None
    if terms.step_s > OVERHEAD_BEYOND * max(terms.memory_s, terms.compute_s):
        return RooflineVerdict.OVERHEAD_BOUND
    if terms.memory_s >= terms.compute_s:
        return RooflineVerdict.MEMORY_BOUND
    return RooflineVerdict.COMPUTE_BOUND


def residual_of(
    least_bytes_per_s: float | None,
    most_bytes_per_s: float | None,
    measured_bytes_per_s: float | None,
) -> float | None:
    """Return how far the measured bandwidth is outside the modelled range.

    The result is relative to the nearer bound. It is negative if the measured bandwidth is below
    the range.

    Args:
        least_bytes_per_s: modelled bandwidth of weights and KV cache.
        most_bytes_per_s: modelled bandwidth, including activations between layers.
    """
    if measured_bytes_per_s is None or not least_bytes_per_s or not most_bytes_per_s:
        return None
    if measured_bytes_per_s > most_bytes_per_s:
        return measured_bytes_per_s / most_bytes_per_s - 1
    return min(0.0, measured_bytes_per_s / least_bytes_per_s - 1)


def findings_of(
    verdict: RooflineVerdict | None,
    terms: Terms | None,
    *,
    tensor_active_ratio: float | None,
    residual: float | None,
    of_the_peak: float | None,
) -> tuple[RooflineFinding, ...]:
    """Additional remarks on a window.

    Args:
        tensor_active_ratio: measured share of the time in which matrix units were active, or None
            to use MFU.
        of_the_peak: the larger of measured and modelled bandwidth / peak bandwidth.
    """
    found = []
    if terms is not None:
        active = terms.mfu if tensor_active_ratio is None else tensor_active_ratio
        low = active is not None and active < LOW_ACTIVITY
        if verdict is RooflineVerdict.MEMORY_BOUND and low and terms.step_s >= LONG_STEP_S:
            found.append(RooflineFinding.LOW_UTILISATION_LONG_STEPS)
        if max(terms.mbu or 0.0, terms.mfu or 0.0) > BEYOND_PEAK:
            found.append(RooflineFinding.BEYOND_THE_PEAK)
    worth = of_the_peak is None or of_the_peak >= WORTH_COMPARING
    if residual is not None and worth and abs(residual) > DIFFERS_BEYOND:
        above = residual > 0
        found.append(
            RooflineFinding.MEASURED_ABOVE_MODEL if above else RooflineFinding.MEASURED_BELOW_MODEL
        )
    return tuple(found)


def _share(part_s: float | None, whole_s: float) -> float | None:
    return None if part_s is None or whole_s <= 0 else part_s / whole_s
