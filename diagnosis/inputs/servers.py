"""Engine samples, GPU samples and engine starts, as columns. Pure. The increase of a counter over a
time range is the sum of its increases from sample to sample."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diagnosis.inputs.requests import BoolArray, FloatArray, IntArray, LabelColumn
from telemetry.cold_starts import ColdStart
from telemetry.counter_series import CounterSeries
from telemetry.starts import EngineStart


@dataclass(frozen=True)
class Samples:
    """Engine or GPU samples in order of time. `series` is a number that identifies the source of a
    sample's counters: the replica, the engine or GPU, the process and the process's start."""

    at_unix_ns: IntArray
    replica: LabelColumn
    series: IntArray
    numbers: Mapping[str, FloatArray] = field(default_factory=dict)
    texts: Mapping[str, LabelColumn] = field(default_factory=dict)
    server: LabelColumn | None = None
    """The server of each engine sample, if a replica has several engines; otherwise None."""
    _rises: dict[str, FloatArray] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return int(self.at_unix_ns.size)

    def number(self, name: str) -> FloatArray:
        """Return a column; all NaN if no sample reports it."""
        found = self.numbers.get(name)
        return np.full(len(self), np.nan) if found is None else found

    def rises(self, name: str) -> FloatArray:
        """Return the counter's increase since the previous sample of the same series, (n,). The
        increase is NaN for the first sample of a series and for samples without the counter."""
        known = self._rises.get(name)
        if known is not None:
            return known
        rise = self._rises[name] = self._counters.rises(self.number(name))
        return rise

    @property
    def spans_s(self) -> FloatArray:
        """Return the seconds since the series' previous sample: (n,). NaN for the first sample."""
        return self._counters.apart_s

    @cached_property
    def _counters(self) -> CounterSeries:
        return CounterSeries.of(self.series, self.at_unix_ns)

    def rate(self, name: str, rows: BoolArray) -> float | None:
        """Return a counter's increase per second over the selected samples; None if unknown."""
        rise, spans = self.rises(name)[rows], self.spans_s[rows]
        known = np.isfinite(rise) & np.isfinite(spans)
        seconds = float(spans[known].sum())
        return float(rise[known].sum()) / seconds if seconds > 0 else None

    def ratio(self, part: str, whole: str, rows: BoolArray) -> float | None:
        """Return the increase of counter `part` divided by the increase of counter `whole`; None if
        unknown."""
        above, below = self.rises(part)[rows], self.rises(whole)[rows]
        known = np.isfinite(above) & np.isfinite(below)
        total = float(below[known].sum())
        return float(above[known].sum()) / total if total > 0 else None

    def mean(self, name: str, rows: BoolArray) -> float | None:
        """Return a gauge's mean over the selected samples; None if no sample reports it."""
        values = self.number(name)[rows]
        values = values[np.isfinite(values)]
        return float(values.mean()) if values.size else None

    def quantile(self, name: str, q: float, rows: BoolArray) -> float | None:
        """Return a gauge's quantile over the selected samples; None if no sample reports it."""
        values = self.number(name)[rows]
        values = values[np.isfinite(values)]
        return float(np.quantile(values, q)) if values.size else None


def no_samples() -> Samples:
    """Return an empty `Samples`."""
    nothing: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    return Samples(nothing, LabelColumn(np.zeros(0, dtype=np.int32), ()), nothing)


class EngineName(NamedTuple):
    """An engine of a replica with several engines."""

    replica: str
    engine: int

    @property
    def server(self) -> str:
        """Return the label of this server."""
        return f"{self.replica} engine {self.engine}"


@dataclass(frozen=True, slots=True)
class Servers:
    """Samples and starts of the servers that a question is about."""

    engines: Samples = field(default_factory=no_samples)
    gpus: Samples = field(default_factory=no_samples)
    starts: Sequence[EngineStart] = ()
    cold_starts: Sequence[ColdStart] = ()
    divided: Mapping[str, EngineName] = field(default_factory=dict)
    """The engines of replicas with several engines, by label in the column `server`."""
