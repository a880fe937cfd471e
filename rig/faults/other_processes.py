"""Measure how much CPU time other processes use during a recording, for the ground truth."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

QUIET_CPUS = 0.3
PATIENCE_S = 10.0

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def busy_s(stat: str) -> float:
    """The CPU time of all CPUs since the machine started, in seconds, from /proc/stat."""
    user, nice, system, _idle, _waiting, interrupts, soft, steal = map(
        int, stat.splitlines()[0].split()[1:9]
    )
    return (user + nice + system + interrupts + soft + steal) * _TICK_S


def worked_s(stat: str) -> float:
    """The CPU time in seconds of one process, from its /proc/PID/stat."""
    # The process name in parentheses may contain spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def parent_of(stat: str) -> int:
    """The parent process id, from /proc/PID/stat."""
    return int(stat.rpartition(")")[2].split()[1])


def family(parents: Mapping[int, int], eldest: int) -> set[int]:
    """A process and its descendants. `parents` maps each process to its parent."""
    found: set[int] = set()
    coming = {eldest}
    while coming:
        found |= coming
        coming = {child for child, parent in parents.items() if parent in coming} - found
    return found


class Meter:
    """Measures the CPU time that other processes have used since the meter was created."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._busy_s, self._ours_s = _read()

    def cpus(self) -> float:
        """The mean number of CPUs that other processes have used."""
        busy_now_s, ours_now_s = _read()
        seconds = max(time.monotonic() - self._begun, 1e-3)
        # The difference can be negative, because the second reading does not include processes of
        # this program that have ended.
        ours_s = max(0.0, ours_now_s - self._ours_s)
        return max(0.0, busy_now_s - self._busy_s - ours_s) / seconds


def _read() -> tuple[float, float]:
    """The CPU time of all CPUs, and the CPU time of this program's processes, in seconds."""
    stats = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            stats[int(process.name)] = (process / "stat").read_text()
        except OSError:
            continue  # the process has ended
    ours = family({pid: parent_of(stat) for pid, stat in stats.items()}, os.getpid())
    return (
        busy_s(Path("/proc/stat").read_text()),
        sum(worked_s(stat) for pid, stat in stats.items() if pid in ours),
    )


def wait_for_quiet(patience_s: float = PATIENCE_S) -> None:
    """Wait until other processes have left the machine idle for two seconds. The wait has a time
    limit."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        meter = Meter()
        time.sleep(2.0)
        if meter.cpus() < QUIET_CPUS:
            return
