"""The data for a bill, as columns: engine time, billed requests and energy. Pure.

A span is a time range of one engine or GPU, with the first and the last value of each counter. A
cell contains the sums over all requests of one hour with the same labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from telemetry.counter_series import FloatArray, IntArray
from telemetry.engines import EngineSample
from telemetry.fields import rolled_up
from telemetry.starts import EngineStart

BoolArray = NDArray[np.bool_]

GAP_S: Final = 60
"""If two consecutive samples are further apart than this (seconds), the time between them is not
billed, because the engine may not have run."""

WORK: Final = tuple(name for name in rolled_up(EngineSample) if name.endswith("_total"))

COEFFICIENTS: Final = tuple(name for name in rolled_up(EngineSample) if name not in WORK)
"""The coefficients γ, α, κ, β, δ, λ of the step model (`EngineSample`)."""

AMOUNTS: Final = ("billed_s", "wasted_s", "prompt_tokens", "cached_tokens", "output_tokens")
"""The fields of a request that are summed in a cell: engine seconds and tokens."""


class CounterKey(NamedTuple):
    """Identifies the counters of one engine, as one process counts them since its start."""

    replica: str
    engine: int
    process: int
    started_unix_ns: int


@dataclass(frozen=True, slots=True)
class EngineCounterSpans:
    """Spans of engine counters. `counts[which[i]]` identifies the counters of span i.

    A span lies within a minute or an hour, without a gap above GAP_S. `first` and `last` have a
    column for each counter in WORK. A counter that was not reported is NaN. `coefficients` has a
    column for each name in COEFFICIENTS. For a minute, it contains the means of the minute. For an
    hour, it contains the values of the latest minute.
    """

    counts: Sequence[CounterKey]
    regions: Sequence[str | None]
    which: IntArray
    bucket_unix_s: IntArray
    first_unix_ns: IntArray
    last_unix_ns: IntArray
    first: Mapping[str, FloatArray]
    last: Mapping[str, FloatArray]
    coefficients: Mapping[str, FloatArray]

    def of_replica(self, replica: str) -> "EngineCounterSpans":
        """The spans of one replica's engines."""
        ours = np.array([each.replica == replica for each in self.counts], bool)[self.which]
        return replace(
            self,
            which=self.which[ours],
            bucket_unix_s=self.bucket_unix_s[ours],
            first_unix_ns=self.first_unix_ns[ours],
            last_unix_ns=self.last_unix_ns[ours],
            first={name: each[ours] for name, each in self.first.items()},
            last={name: each[ours] for name, each in self.last.items()},
            coefficients={name: each[ours] for name, each in self.coefficients.items()},
        )


@dataclass(frozen=True, slots=True)
class GpuEnergySpans:
    """Spans of GPU energy counters, as in `EngineCounterSpans`. `gpus[which[i]]` is the replica and
    the GPU of span i."""

    gpus: Sequence[tuple[str, str]]
    models: Sequence[str | None]
    which: IntArray
    bucket_unix_s: IntArray
    first_unix_ns: IntArray
    last_unix_ns: IntArray
    first_j: FloatArray
    last_j: FloatArray

    def of_replica(self, replica: str) -> "GpuEnergySpans":
        """The spans of one replica's GPUs."""
        ours = np.array([name == replica for name, _ in self.gpus], bool)[self.which]
        return replace(
            self,
            which=self.which[ours],
            bucket_unix_s=self.bucket_unix_s[ours],
            first_unix_ns=self.first_unix_ns[ours],
            last_unix_ns=self.last_unix_ns[ours],
            first_j=self.first_j[ours],
            last_j=self.last_j[ours],
        )


@dataclass(frozen=True, slots=True)
class BillingCells:
    """Sums over the requests with the same labels and hour.

    Cell i has the labels `labels[group[i]]`, in the order of `by`, and begins at `hour_unix_s[i]`.
    `reported` is the number of requests that report an amount. A request that runs across the end
    of an hour is divided.
    """

    by: Sequence[str]
    labels: Sequence[tuple[str | None, ...]]
    group: IntArray
    hour_unix_s: IntArray
    requests: IntArray
    sums: Mapping[str, FloatArray]
    reported: Mapping[str, FloatArray]

    def have(self, equals: Mapping[str, str | None]) -> BoolArray:
        """Return for each cell whether it has these labels."""
        wanted = [(list(self.by).index(name), value) for name, value in equals.items()]
        fits = [all(labels[at] == value for at, value in wanted) for labels in self.labels]
        return np.array(fits, bool)[self.group]

    def at(self, places: BoolArray | Sequence[int]) -> "BillingCells":
        """Select cells by indices or by a mask."""
        chosen = np.asarray(places)
        return replace(
            self,
            group=self.group[chosen],
            hour_unix_s=self.hour_unix_s[chosen],
            requests=self.requests[chosen],
            sums={name: each[chosen] for name, each in self.sums.items()},
            reported={name: each[chosen] for name, each in self.reported.items()},
        )


@dataclass(frozen=True, slots=True)
class BillingData:
    """The data for a bill."""

    from_unix_ns: int
    to_unix_ns: int
    engines: EngineCounterSpans
    gpus: GpuEnergySpans
    cells: BillingCells
    starts: Sequence[EngineStart]
    """Each engine's last start before the time range, and all starts in the range. Starts shortly
    after the range are included, because their loading may lie in the range."""
    simulated: bool = False
    apportioned: bool = True
    """Whether requests that run across the end of an hour are divided between the hours. It is
    false if the rows of requests were deleted."""
    engines_from_unix_ns: int = 0
    """Start of the first hour with engine time. Earlier hours have only requests."""
    overflowed: int = 0
    """Number of requests for which a label of the bill is `_other`. If a label has too many values,
    some of them are stored as `_other`."""
