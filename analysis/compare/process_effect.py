"""Compute how much a latency differs between processes of the same configuration, which is the
effect of a restart alone.

Pure.

    v = Σ over configurations Σ over processes (d − mean d of the configuration)² / freedom

v is the variance between processes. d is ln(percentile of a process / percentile before the
change), at the same mix and load. `freedom` is the number of degrees of freedom. v includes the
random errors of d, and the confidence interval of the change contains the same errors. So the wider
of the two intervals is used, and not their sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import expm1, sqrt
from typing import Final, TypeVar

import numpy as np

from analysis.compare.decision import Criteria, comparison_of
from analysis.compare.parts import ObservedRequests, SideComparison
from analysis.corrected_prediction import student

Key = TypeVar("Key")

MIN_FREEDOM: Final = 3
"""Minimum degrees of freedom: processes minus configurations. With 2 degrees of freedom, Student's
quantile is 4.3. If processes differ by 5 %, changes of up to 30 % could then not be detected."""


@dataclass(frozen=True, slots=True)
class ProcessEffect:
    """The effect of a restart on the logarithm of a percentile."""

    processes: int
    """Number of processes that were compared with other processes of the same configuration."""
    freedom: int
    log_sd: float | None
    """Standard deviation between processes, or None if too few processes were compared."""
    difference: float
    """The result of `difference_of`: √2 if each side has its own process, and 0 if the same
    processes served both sides."""

    @property
    def log_half(self) -> float:
        """Half of the width of the 95 % interval of the effect, or 0 if the effect is unknown."""
        if self.log_sd is None:
            return 0.0
        return student(self.freedom) * self.log_sd * self.difference

    @property
    def sentence(self) -> str:
        """How large the effect is, as a sentence."""
        other = "The processes that served the requests before and after the change differ."
        if self.log_sd is None:
            return (
                f"{other} A restart alone may also change the latency. The interval does not"
                " include this effect, because too few processes of the same configuration have"
                " served requests."
            )
        return (
            f"{other} The latencies of {self.processes} processes with the same configuration"
            f" differ by {100 * expm1(self.log_sd):.1f} % (standard deviation). The interval"
            " includes this effect."
        )


def difference_of(before: Mapping[Key, float], after: Mapping[Key, float]) -> float:
    """Return how much a restart alone changes ln(after / before), as a standard deviation. The unit
    is the standard deviation between processes.

    Args:
        before, after: for each process, the share of the side's requests that it served.
    """
    both = before.keys() | after.keys()
    return sqrt(sum((after.get(each, 0.0) - before.get(each, 0.0)) ** 2 for each in both))


def process_effect(
    before: ObservedRequests,
    of_configuration: Sequence[Sequence[ObservedRequests]],
    criteria: Criteria,
    difference: float,
) -> ProcessEffect:
    """Estimate the effect of a restart.

    Args:
        of_configuration: for each configuration, the requests of each process. Groups have the same
            numbers as in `before`.
    """
    squares, freedom, processes = 0.0, 0, 0
    for configuration in of_configuration:
        found = [_log_ratio(before, each, criteria) for each in configuration]
        logs = np.array([each for each in found if each is not None])
        if logs.size > 1:
            squares += float(((logs - logs.mean()) ** 2).sum())
            freedom += logs.size - 1
            processes += logs.size
    known = freedom >= MIN_FREEDOM
    log_sd = sqrt(squares / freedom) if known else None
    return ProcessEffect(processes, freedom, log_sd, difference)


def _log_ratio(
    before: ObservedRequests, process: ObservedRequests, criteria: Criteria
) -> float | None:
    """Return d, the logarithm of a process's ratio (see the module's docstring). Return None if the
    process cannot be compared."""
    found = comparison_of(before, process, criteria)
    return (
        found.equal().log_ratio(criteria.q, criteria.floor_s)
        if isinstance(found, SideComparison)
        else None
    )
