"""Engine samples, GPU samples and engine starts, as columns. Pure. The increase of a counter over a
time range is the sum of its increases from sample to sample."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diagnosis.inputs.requests import BoolArray, FloatArray, IntArray, LabelColumn
from telemetry.cold_starts import ColdStart
from telemetry.counter_series import CounterSeries
from telemetry.starts import EngineStart

ENGINE_NUMBERS: Final = (
    "engine",
    "process",
    "waiting",
    "running",
    "deferred",
    "fetching_kv",
    "in_flight",
    "last_step_age_s",
    "kv_usage_ratio",
    "waiting_loras",
    "running_loras",
    "longest_step_s",
    "busy_s_total",
    "stall_s_total",
    "prefill_tokens_total",
    "decode_tokens_total",
    "prefix_cache_queries_tokens_total",
    "prefix_cache_hits_tokens_total",
    "kv_transfer_bytes_total",
    "kv_transfer_s_total",
    "kv_transfer_failures_total",
    "mm_cache_queries_total",
    "mm_cache_hits_total",
    "preemptions_total",
    "draft_tokens_total",
    "accepted_tokens_total",
    "process_cpu_s_total",
    "core_cpu_s_total",
    "host_cpu_busy_s_total",
    "host_cpu_steal_s_total",
)
GPU_VALUES: Final = (
    "sm_active_ratio",
    "power_w",
    "sm_clock_hz",
    "throttle_reasons",
    "foreign_processes",
)
"""The gauges and counters of engine samples and of GPU samples that the diagnosis reads."""


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
    """The server of each engine sample, or None if no replica has several engines."""
    _rises: dict[str, FloatArray] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return int(self.at_unix_ns.size)

    def number(self, name: str) -> FloatArray:
        """Return a column. All its numbers are NaN if no sample reports it.

        Raises:
            ValueError: neither `ENGINE_NUMBERS` nor `GPU_VALUES` has the column, so it was not
                read from the store.
        """
        found = self.numbers.get(name)
        if found is not None:
            return found
        if name not in (*ENGINE_NUMBERS, *GPU_VALUES):
            raise ValueError(f"column of samples: {name!r}; allowed: {', '.join(ENGINE_NUMBERS)}")
        return np.full(len(self), np.nan)

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
        """Return the seconds since the series' previous sample: (n,). The first sample has NaN."""
        return self._counters.apart_s

    @cached_property
    def _counters(self) -> CounterSeries:
        return CounterSeries.of(self.series, self.at_unix_ns)

    def rate(self, name: str, rows: BoolArray) -> float | None:
        """Return a counter's increase per second over the selected samples, or None if it is
        unknown."""
        rise, spans = self.rises(name)[rows], self.spans_s[rows]
        known = np.isfinite(rise) & np.isfinite(spans)
        seconds = float(spans[known].sum())
        return float(rise[known].sum()) / seconds if seconds > 0 else None

    def ratio(self, part: str, whole: str, rows: BoolArray) -> float | None:
        """Return the increase of counter `part` divided by the increase of counter `whole`, or None
        if it is unknown."""
        above, below = self.rises(part)[rows], self.rises(whole)[rows]
        known = np.isfinite(above) & np.isfinite(below)
        total = float(below[known].sum())
        return float(above[known].sum()) / total if total > 0 else None

    def mean(self, name: str, rows: BoolArray) -> float | None:
        """Return a gauge's mean over the selected samples, or None if no sample reports it."""
        values = self.number(name)[rows]
        values = values[np.isfinite(values)]
        return float(values.mean()) if values.size else None

    def quantile(self, name: str, q: float, rows: BoolArray) -> float | None:
        """Return a gauge's quantile over the selected samples, or None if no sample reports it."""
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
    """Samples and starts of the servers that a question concerns."""

    engines: Samples = field(default_factory=no_samples)
    gpus: Samples = field(default_factory=no_samples)
    starts: Sequence[EngineStart] = ()
    cold_starts: Sequence[ColdStart] = ()
    divided: Mapping[str, EngineName] = field(default_factory=dict)
    """Maps a label in the column `server` to its engine. Only replicas with several engines have
    such labels."""
