"""What the servers told while the requests ran: engines, GPUs, starts.

Pure. A counter is told as its total since a start; what happened in a stretch of time is the
sum of the rises between neighbouring samples of the same process and start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diagnosis.inputs.requests import BoolArray, FloatArray, IntArray, Labels
from telemetry.starts import EngineStart


@dataclass(frozen=True)
class Samples:
    """Samples of engines or of GPUs, in the order of time.

    `series` numbers what a counter belongs to: replica, engine or GPU, process, start.
    """

    at_unix_ns: IntArray
    replica: Labels
    series: IntArray
    numbers: Mapping[str, FloatArray] = field(default_factory=dict)
    texts: Mapping[str, Labels] = field(default_factory=dict)
    _rises: dict[str, FloatArray] = field(default_factory=dict, repr=False, compare=False)
    """What was asked for: many detectors ask for the same."""

    def __len__(self) -> int:
        return int(self.at_unix_ns.size)

    def number(self, name: str) -> FloatArray:
        """A column; all NaN where nobody told it."""
        found = self.numbers.get(name)
        return np.full(len(self), np.nan) if found is None else found

    def rises(self, name: str) -> FloatArray:
        """(n,) how much a counter rose since the sample before of the same series; NaN for
        the first of a series, and where it is not told."""
        known = self._rises.get(name)
        if known is not None:
            return known
        values, order = self.number(name), self._order
        ordered, series = values[order], self.series[order]
        rise = np.full(values.size, np.nan)
        if values.size > 1:
            step = np.diff(ordered)
            same = (series[1:] == series[:-1]) & (step >= 0)
            rise[order[1:]] = np.where(same, step, np.nan)
        self._rises[name] = rise
        return rise

    @cached_property
    def _order(self) -> IntArray:
        """Of each series by time."""
        return np.lexsort((self.at_unix_ns, self.series))

    @cached_property
    def spans_s(self) -> FloatArray:
        """(n,) seconds since the sample before of the same series; NaN for the first."""
        order = self._order
        at, series = self.at_unix_ns[order], self.series[order]
        spans = np.full(at.size, np.nan)
        if at.size > 1:
            spans[order[1:]] = np.where(series[1:] == series[:-1], np.diff(at) / 1e9, np.nan)
        return spans

    def rate(self, name: str, rows: BoolArray) -> float | None:
        """A counter's rise per second over the chosen samples; None where nobody told it."""
        rise, spans = self.rises(name)[rows], self.spans_s[rows]
        known = np.isfinite(rise) & np.isfinite(spans)
        seconds = float(spans[known].sum())
        return float(rise[known].sum()) / seconds if seconds > 0 else None

    def ratio(self, part: str, whole: str, rows: BoolArray) -> float | None:
        """One counter's rise over another's; None where the other did not rise."""
        above, below = self.rises(part)[rows], self.rises(whole)[rows]
        known = np.isfinite(above) & np.isfinite(below)
        total = float(below[known].sum())
        return float(above[known].sum()) / total if total > 0 else None

    def mean(self, name: str, rows: BoolArray) -> float | None:
        """A gauge's mean over the chosen samples; None where nobody told it."""
        values = self.number(name)[rows]
        values = values[np.isfinite(values)]
        return float(values.mean()) if values.size else None

    def quantile(self, name: str, q: float, rows: BoolArray) -> float | None:
        """A gauge's quantile over the chosen samples; None where nobody told it."""
        values = self.number(name)[rows]
        values = values[np.isfinite(values)]
        return float(np.quantile(values, q)) if values.size else None


def no_samples() -> Samples:
    """Nobody told anything."""
    nothing: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    return Samples(nothing, Labels(np.zeros(0, dtype=np.int32), ()), nothing)


@dataclass(frozen=True, slots=True)
class Servers:
    """All that the servers told."""

    engines: Samples = field(default_factory=no_samples)
    gpus: Samples = field(default_factory=no_samples)
    starts: Sequence[EngineStart] = ()
