"""What holds a stretch of steps back: memory, arithmetic, neither, or nothing to do.

    idle            SM activity below 0.2
    memory-bound    bytes/bandwidth ≥ FLOPs/peak, and the step no longer than twice that
    compute-bound   the converse
    overhead-bound  the step is longer than twice both: CPU, launches, communication

Pure. Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

IDLE_BELOW: Final = 0.2
"""Share of the time in which a multiprocessor was at work, or, where nobody measured that, in
which the engine was in a step."""
OVERHEAD_BEYOND: Final = 2.0
"""A step may take so many times what the longer of its two terms asks."""
DIFFERS_BEYOND: Final = 0.25
"""Of the modelled bandwidth: more between it and the measured one is a finding."""
WORTH_COMPARING: Final = 0.05
"""Of the peak: below it other things move as many bytes."""
LOW_ACTIVITY: Final = 0.3
LONG_STEP_S: Final = 0.01
BEYOND_PEAK: Final = 1.02


class Verdict(StrEnum):
    """What a window is bound by."""

    IDLE = "idle"
    MEMORY_BOUND = "memory_bound"
    COMPUTE_BOUND = "compute_bound"
    OVERHEAD_BOUND = "overhead_bound"


class Finding(StrEnum):
    """What else a reader has to know of a window."""

    LOW_UTILISATION_LONG_STEPS = "low_utilisation_long_steps"
    """The trap: matrix units hardly at work and steps long, and yet nothing is idle."""
    MEASURED_ABOVE_MODEL = "measured_above_model"
    MEASURED_BELOW_MODEL = "measured_below_model"
    BEYOND_THE_PEAK = "beyond_the_peak"
    """More than the device can: shape or device are not what was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Of a mean step, in seconds: what it took, and what each resource asks at its best."""

    step_s: float
    memory_s: float | None
    compute_s: float | None

    @property
    def mbu(self) -> float | None:
        """Model bandwidth utilisation: the share of the peak bandwidth that was needed."""
        return _share(self.memory_s, self.step_s)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation, each arithmetic against its own peak."""
        return _share(self.compute_s, self.step_s)


def verdict_of(
    terms: Terms | None, sm_active_ratio: float | None, busy_ratio: float | None = None
) -> Verdict | None:
    """What bound a window.

    Args:
        terms: of its mean step; None where there was none.
        sm_active_ratio: as measured over the window; None where nobody did.
        busy_ratio: share of the window that the engine spent in steps, to stand in for it.

    Returns:
        None where a term is unknown.
    """
    activity = busy_ratio if sm_active_ratio is None else sm_active_ratio
    if activity is not None and activity < IDLE_BELOW:
        return Verdict.IDLE
    if terms is None or terms.memory_s is None or terms.compute_s is None:
        return None
    if terms.step_s > OVERHEAD_BEYOND * max(terms.memory_s, terms.compute_s):
        return Verdict.OVERHEAD_BOUND
    if terms.memory_s >= terms.compute_s:
        return Verdict.MEMORY_BOUND
    return Verdict.COMPUTE_BOUND


def residual_of(
    least_bytes_per_s: float | None,
    most_bytes_per_s: float | None,
    measured_bytes_per_s: float | None,
) -> float | None:
    """By how much the measured bandwidth is beyond what is modelled, as a share of that.

    Args:
        least_bytes_per_s: modelled, if nothing but weights and KV cache crosses the memory bus.
        most_bytes_per_s: modelled, if activations cross it whenever they are handed on.
        measured_bytes_per_s: None where nobody measured it.

    Returns:
        Above the most, or (negative) below the least; 0 in between.
    """
    if measured_bytes_per_s is None or not least_bytes_per_s or not most_bytes_per_s:
        return None
    if measured_bytes_per_s > most_bytes_per_s:
        return measured_bytes_per_s / most_bytes_per_s - 1
    return min(0.0, measured_bytes_per_s / least_bytes_per_s - 1)


def findings_of(
    verdict: Verdict | None,
    terms: Terms | None,
    *,
    tensor_active_ratio: float | None,
    residual: float | None,
    of_the_peak: float | None,
) -> tuple[Finding, ...]:
    """What else is to be said.

    Args:
        verdict: of the window.
        terms: of its mean step.
        tensor_active_ratio: as measured; the arithmetic's term stands in for it.
        residual: as `residual_of` has it.
        of_the_peak: the larger of measured and modelled bandwidth, as a share of the peak;
            None where that is unknown.
    """
    found = []
    if terms is not None:
        active = terms.mfu if tensor_active_ratio is None else tensor_active_ratio
        low = active is not None and active < LOW_ACTIVITY
        if verdict is Verdict.MEMORY_BOUND and low and terms.step_s >= LONG_STEP_S:
            found.append(Finding.LOW_UTILISATION_LONG_STEPS)
        if max(terms.mbu or 0.0, terms.mfu or 0.0) > BEYOND_PEAK:
            found.append(Finding.BEYOND_THE_PEAK)
    worth = of_the_peak is None or of_the_peak >= WORTH_COMPARING
    if residual is not None and worth and abs(residual) > DIFFERS_BEYOND:
        above = residual > 0
        found.append(Finding.MEASURED_ABOVE_MODEL if above else Finding.MEASURED_BELOW_MODEL)
    return tuple(found)


def _share(part_s: float | None, whole_s: float) -> float | None:
    return None if part_s is None or whole_s <= 0 else part_s / whole_s
