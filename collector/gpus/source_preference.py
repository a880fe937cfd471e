"""One GPU, told of by two: by its own driver here, and by a dcgm-exporter.

Who tells of bandwidth goes first, then the driver, which is asked every second; the other is
passed by for as long as that one tells.
"""

from typing import Final, NamedTuple

from collector.gpus.reader import Told, Why
from telemetry.gpus import GpuSource

SILENT_NS: Final = 60 * 10**9
_BANDWIDTH: Final = "dram_bandwidth_ratio"


class _Teller(NamedTuple):
    source: GpuSource
    rank: tuple[bool, bool]
    at_unix_ns: int


class Preference:
    """Remembers who tells of each GPU."""

    def __init__(self) -> None:
        self._tellers: dict[str, _Teller] = {}

    def keeps(self, gpu: Told) -> bool:
        """Whether this is the one to listen to."""
        known = self._tellers.get(gpu.gpu)
        mine = _Teller(gpu.source, _rank(gpu), gpu.at_unix_ns)
        if (
            known is not None
            and known.source is not mine.source
            and known.rank > mine.rank
            and mine.at_unix_ns - known.at_unix_ns <= SILENT_NS
        ):
            return False
        self._tellers[gpu.gpu] = mine
        return True


def _rank(gpu: Told) -> tuple[bool, bool]:
    absence = gpu.absent.get(_BANDWIDTH)
    # A first look will be followed by a second.
    tells = _BANDWIDTH in gpu.values or (absence is not None and absence.why is Why.FIRST_LOOK)
    return tells, gpu.source is not GpuSource.DCGM
