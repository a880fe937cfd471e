"""The data for a bill, as columns: engine time, billed requests and energy.

Pure. A span of an engine has the first and the last value of each counter; the bill uses their
difference. A cell contains the requests of one hour with the same labels.
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
"""If two samples are at most this far apart, the engine was running between them.

A longer gap is neither billed nor idle. Samples arrive every second, or every few seconds from a
scrape.
"""

WORK: Final = tuple(name for name in rolled_up(EngineSample) if name.endswith("_total"))
"""The counters of an engine's steps: time and work."""

COEFFICIENTS: Final = tuple(name for name in rolled_up(EngineSample) if name not in WORK)
"""γ, α, κ, β, δ: the coefficients of the step model."""

AMOUNTS: Final = ("billed_s", "wasted_s", "prompt_tokens", "cached_tokens", "output_tokens")
"""The amounts that are summed over requests."""


class Count(NamedTuple):
    """The key of one engine's counters in one process, since the process started."""

    replica: str
    engine: int
    process: int
    started_unix_ns: int


@dataclass(frozen=True, slots=True)
class EngineStretches:
    """Spans of engine samples. Entry i is a span of the samples of `counts[which[i]]`.

    An entry lies in one bucket, a minute or an hour, and has no gap longer than GAP_S. `first` and
    `last` have a column for each total in WORK, with NaN if it was not reported. `coefficients` has
    the mean of each of COEFFICIENTS, or the value of the latest minute.
    """

    counts: Sequence[Count]
    regions: Sequence[str | None]
    """The region of each entry in `counts`."""
    which: IntArray
    bucket_unix_s: IntArray
    """When the entry's minute or hour begins."""
    first_unix_ns: IntArray
    last_unix_ns: IntArray
    first: Mapping[str, FloatArray]
    last: Mapping[str, FloatArray]
    coefficients: Mapping[str, FloatArray]

    def of_replica(self, replica: str) -> "EngineStretches":
        """Return the spans of one replica's engines."""
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
    """Spans of GPU samples. Entry i is a span of the samples of `gpus[which[i]]`: (replica, GPU).

    See `EngineStretches`.
    """

    gpus: Sequence[tuple[str, str]]
    models: Sequence[str | None]
    """The device name of each GPU."""
    which: IntArray
    bucket_unix_s: IntArray
    first_unix_ns: IntArray
    last_unix_ns: IntArray
    first_j: FloatArray
    last_j: FloatArray

    def of_replica(self, replica: str) -> "GpuStretches":
        """Return the spans of one replica's GPUs."""
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

    Entry i describes the requests with the labels `labels[group[i]]` (in the order of `by`) in the
    hour that begins at `hour_unix_s[i]`: their number, the sum of each amount, and the number of
    requests that report it. The seconds of a request that spans the end of an hour are divided.
    """

    by: Sequence[str]
    labels: Sequence[tuple[str | None, ...]]
    group: IntArray
    hour_unix_s: IntArray
    requests: IntArray
    sums: Mapping[str, FloatArray]
    reported: Mapping[str, FloatArray]

    def at(self, places: BoolArray | Sequence[int]) -> "Cells":
        """Return the entries at these places, or where the mask is true."""
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
class Accounts:
    """The data for the bill of one time range."""

    from_unix_ns: int
    to_unix_ns: int
    engines: EngineStretches
    gpus: GpuStretches
    cells: Cells
    starts: Sequence[EngineStart]
    """The engine starts in force at the beginning, those in the range, and those shortly after it,
    because these engines may have been loading within the range."""
    simulated: bool = False
    apportioned: bool = True
    """Whether the seconds of requests that span the end of an hour are divided. They cannot be if
    their rows are deleted."""
    engines_from_unix_ns: int = 0
    """For hours that began earlier, requests are known, but engine time is not."""
    overflowed: int = 0
    """Number of requests with a label value that rollups replaced by `_other`."""
