"""What a bill needs, as columns: the time of engines, the accounts of requests, energy.

Pure. A span of an engine has the first and the last values of its samples, which is all that a
difference needs; a cell is requests of one hour that share their labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from telemetry.counter_series import FloatArray, IntArray
from telemetry.engines import EngineSample
from telemetry.fields import rolled_up
from telemetry.starts import EngineStart

GAP_S: Final = 60
"""An engine was there between two samples that are at most so far apart; longer silence is
neither billed nor idle. Samples come each second, or every few where /metrics is scraped."""

WORK: Final = tuple(name for name in rolled_up(EngineSample) if name.endswith("_total"))
"""What an engine counts of its steps: their time, and the work that explains it."""

COEFFICIENTS: Final = tuple(name for name in rolled_up(EngineSample) if name not in WORK)
"""γ, α, κ, β, δ: what a step takes, for each piece of work in it."""

AMOUNTS: Final = ("billed_s", "wasted_s", "prompt_tokens", "cached_tokens", "output_tokens")
"""The amounts that are summed over requests."""


class Count(NamedTuple):
    """One process's count of one engine's work, since it started."""

    replica: str
    engine: int
    process: int
    started_unix_ns: int


@dataclass(frozen=True, slots=True)
class EngineStretches:
    """Entry i is a span of the samples of `counts[which[i]]`.

    An entry lies in one bucket, a minute or an hour, and has no gap longer than GAP_S. Each
    total in WORK has the columns `first` and `last`, NaN where the entry lacks it; each
    of COEFFICIENTS has its mean, or the latest minute's.
    """

    counts: Sequence[Count]
    regions: Sequence[str | None]
    """The region of each count."""
    which: IntArray
    bucket_unix_s: IntArray
    """When the entry's minute or hour begins."""
    first_unix_ns: IntArray
    last_unix_ns: IntArray
    first: Mapping[str, FloatArray]
    last: Mapping[str, FloatArray]
    coefficients: Mapping[str, FloatArray]

    def of_replica(self, replica: str) -> "EngineStretches":
        """Those of its engines alone."""
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
class GpuStretches:
    """Entry i is a span of the samples of `gpus[which[i]]` (replica, GPU); else as of engines."""

    gpus: Sequence[tuple[str, str]]
    models: Sequence[str | None]
    """The device's name, of each GPU."""
    which: IntArray
    bucket_unix_s: IntArray
    first_unix_ns: IntArray
    last_unix_ns: IntArray
    first_j: FloatArray
    last_j: FloatArray

    def of_replica(self, replica: str) -> "GpuStretches":
        """Those of its GPUs alone."""
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
class Cells:
    """Requests by labels and hour.

    Entry i is of the requests with `labels[group[i]]` (in the order of `by`) in the hour that
    begins at `hour_unix_s[i]`: their number, and of each amount its sum and how many have it.
    Where a request spanned an hour's end, its seconds have been given to both.
    """

    by: Sequence[str]
    labels: Sequence[tuple[str | None, ...]]
    group: IntArray
    hour_unix_s: IntArray
    requests: IntArray
    sums: Mapping[str, FloatArray]
    told: Mapping[str, FloatArray]


@dataclass(frozen=True, slots=True)
class Accounts:
    """All that a bill of one stretch of time rests on."""

    from_unix_ns: int
    to_unix_ns: int
    engines: EngineStretches
    gpus: GpuStretches
    cells: Cells
    starts: Sequence[EngineStart]
    """Those in force at the beginning, those in the stretch, and those soon after it: their
    engines may have been loading within it."""
    simulated: bool = False
    apportioned: bool = True
    """Whether requests that span an hour's end are split; their rows may be gone."""
    engines_from_unix_ns: int = 0
    """For hours that began earlier, no engine time is known, only requests."""
    overflowed: int = 0
    """Requests of which a label had no room of its own in the rollups."""
