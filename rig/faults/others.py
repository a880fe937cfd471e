"""How much of the machine others use while something is recorded.

A stretch recorded beside a build or a test run is slower, and the injected fault is not the cause.
The result is stored with the truth; a recording waits a short time for a quiet machine.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path

QUIET_CPUS = 0.3
PATIENCE_S = 10.0

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def busy_s(stat: str) -> float:
    """Seconds that all CPUs have worked since the machine began, from /proc/stat."""
    user, nice, system, _idle, _waiting, interrupts, soft, steal = map(
        int, stat.splitlines()[0].split()[1:9]
    )
    return (user + nice + system + interrupts + soft + steal) * _TICK_S


def worked_s(stat: str) -> float:
    """Seconds that one process has worked, from its /proc/PID/stat."""
    # Its name, in parentheses, may hold blanks and parentheses.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def parent_of(stat: str) -> int:
    """The process that one was started by, from its /proc/PID/stat."""
    return int(stat.rpartition(")")[2].split()[1])


def family(parents: Mapping[int, int], eldest: int) -> set[int]:
    """A process and all that descend from it, by each one's parent."""
    found: set[int] = set()
    coming = {eldest}
    while coming:
        found |= coming
        coming = {child for child, parent in parents.items() if parent in coming} - found
    return found


class Meter:
    """Measures since it was made. Ours are this process and all that descend from it."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._busy_s, self._ours_s = _read()

    def cpus(self) -> float:
        """CPUs that others have used, in the mean."""
        busy_now_s, ours_now_s = _read()
        seconds = max(time.monotonic() - self._begun, 1e-3)
        # The time of our processes that have ended since is lost, not negative.
        ours_s = max(0.0, ours_now_s - self._ours_s)
        return max(0.0, busy_now_s - self._busy_s - ours_s) / seconds


def _read() -> tuple[float, float]:
    """Seconds that all CPUs have worked, and that they have worked for us."""
    stats = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            stats[int(process.name)] = (process / "stat").read_text()
        except OSError:
            continue  # it has ended meanwhile
    ours = family({pid: parent_of(stat) for pid, stat in stats.items()}, os.getpid())
    return (
        busy_s(Path("/proc/stat").read_text()),
        sum(worked_s(stat) for pid, stat in stats.items() if pid in ours),
    )


def wait_for_quiet(patience_s: float = PATIENCE_S) -> None:
    """Wait until others leave the machine alone for two seconds, or patience ends."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        meter = Meter()
        time.sleep(2.0)
        if meter.cpus() < QUIET_CPUS:
            return
