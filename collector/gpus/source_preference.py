"""Select one source for a GPU that both the driver and a dcgm-exporter report.

A source that reports the bandwidth is preferred. If both sources report it, or if neither source
does, the driver is preferred, because it is read every second. If the preferred source is silent
for `SILENT_NS`, the other source is used.
"""

from typing import Final, NamedTuple

from collector.gpus.reader import AbsenceReason, GpuReading
from telemetry.gpus import GpuSource

SILENT_NS: Final = 60 * 10**9
_BANDWIDTH: Final = "dram_bandwidth_ratio"


class _Source(NamedTuple):
    source: GpuSource
    rank: tuple[bool, bool]
    at_unix_ns: int


class SourcePreference:
    """The preferred source of each GPU."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}

    def keeps(self, gpu: GpuReading) -> bool:
        """Return whether to store this sample, and update the preferred source of its GPU."""
        preferred = self._sources.get(gpu.gpu)
        this = _Source(gpu.source, _rank(gpu), gpu.at_unix_ns)
        if (
            preferred is not None
            and preferred.source is not this.source
            and preferred.rank > this.rank
            # The difference is negative after the clock was set back.
            and abs(this.at_unix_ns - preferred.at_unix_ns) <= SILENT_NS
        ):
            return False
        self._sources[gpu.gpu] = this
        return True


def _rank(gpu: GpuReading) -> tuple[bool, bool]:
    absence = gpu.absent.get(_BANDWIDTH)
    # The first sample of a source never has a bandwidth.
    reports = _BANDWIDTH in gpu.values or (
        absence is not None and absence.why is AbsenceReason.FIRST_LOOK
    )
    return reports, gpu.source is not GpuSource.DCGM
