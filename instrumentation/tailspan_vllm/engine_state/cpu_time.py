"""Reads the CPU time of this process, of an engine core and of the machine, and this process's age.

Totals count from the first reading. Unavailable values are left out. The module works only on
Linux.

Source: proc_pid_stat(5), proc_stat(5).
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from tailspan_vllm import names


class Processors:
    """Reads CPU times. Used only on the reading thread."""

    def __init__(
        self,
        proc: Path = Path("/proc"),
        own_cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._proc = str(proc)
        self._own_cpu_s = own_cpu_s
        self._ticks_per_s = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
        self._first: dict[tuple[str, int], float] = {}

    def host(self) -> dict[str, float]:
        """Maps metric names to the CPU seconds of this process and of the machine."""
        totals = {names.PROCESS_CPU_TIME: self._since(names.PROCESS_CPU_TIME, 0, self._own_cpu_s())}
        try:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(
                int, _begin_of(f"{self._proc}/stat").partition(b"\n")[0].split()[1:9]
            )
        except (OSError, ValueError):
            return totals
        busy_s = (user + nice + system + irq + softirq) / self._ticks_per_s
        totals[names.HOST_BUSY_TIME] = self._since(names.HOST_BUSY_TIME, 0, busy_s)
        steal_s = steal / self._ticks_per_s
        totals[names.HOST_STEAL_TIME] = self._since(names.HOST_STEAL_TIME, 0, steal_s)
        return totals

    def core(self, process: int | None) -> dict[str, float]:
        """Maps metric names to the CPU seconds of an engine core's process."""
        if process is None:
            return {}
        try:
            # The program's name stands in parentheses, and may itself contain a parenthesis.
            fields = _begin_of(f"{self._proc}/{process}/stat").rpartition(b")")[2].split()
            used_s = (int(fields[11]) + int(fields[12])) / self._ticks_per_s
        except (OSError, ValueError, IndexError):
            return {}
        return {names.CORE_CPU_TIME: self._since(names.CORE_CPU_TIME, process, used_s)}

    def _since(self, name: str, process: int, now_s: float) -> float:
        return max(0.0, now_s - self._first.setdefault((name, process), now_s))


def _begin_of(path: str) -> bytes:
    """The beginning of a file as bytes, because reading as text takes twice as long."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1024)
    finally:
        os.close(file)


def own_age_s(proc: Path = Path("/proc")) -> float | None:
    """The seconds since this process started, or None if they are unavailable."""
    try:
        text = (proc / "self" / "stat").read_text()
        started_ticks = int(text.rpartition(")")[2].split()[19])
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    age_s = now_s - started_ticks / os.sysconf("SC_CLK_TCK")
    return age_s if age_s >= 0 else None
