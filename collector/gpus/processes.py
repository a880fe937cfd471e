"""Read the processes of this machine from /proc: parents, namespaces, start times.

No command line is read. The only environment variable that is used is CUDA_VISIBLE_DEVICES, because
other variables may contain secrets. Source: proc(5).
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from telemetry.corroborated_time import since_boot_ns

VARIABLE: Final = b"CUDA_VISIBLE_DEVICES"
INIT: Final = 1
KERNEL_THREADS: Final = 2
"""The parent of all kernel threads. It is not visible in containers."""
_LISTENING: Final = "0A"
"""TCP_LISTEN in the kernel's tables of sockets."""
_DEEPEST: Final = 64
"""Maximum number of ancestors. A longer chain means that processes changed during the read."""


class HostProcess(NamedTuple):
    """A process, with its id in Tailspan's namespace and its id in its own namespace.

    `contained` is true if its namespace is nested in Tailspan's namespace, as in a container.
    `started_unix_s` is computed from the boot time that was read first, so a change of the system
    clock does not affect it.
    """

    pid: int
    own_pid: int
    contained: bool
    started_unix_s: float | None
    program: str | None = None


def _clock_offset_ns() -> int:
    return time.time_ns() - since_boot_ns()


class HostProcesses:
    """Reads processes.

    Args:
        clock_offset_ns: returns the system clock's time minus the time since boot.
    """

    def __init__(
        self,
        root: Path = Path("/proc"),
        ticks_per_s: float | None = None,
        clock_offset_ns: Callable[[], int] = _clock_offset_ns,
    ) -> None:
        self._root = root
        self._ticks_per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")
        self._clock_offset_ns = clock_offset_ns
        self._booted_s: float | None = None
        self._first_offset_ns = 0

    @property
    def clock_step_s(self) -> float:
        """Seconds by which the system clock was set forward since the boot time was read. Negative
        if the clock was set back."""
        if self._booted_s is None:
            return 0.0
        return (self._clock_offset_ns() - self._first_offset_ns) / 1e9

    def ancestry(self, pid: int) -> Iterator[HostProcess]:
        """Yield a process, its parent, and so on. Process 1 of the machine is omitted. Process 1 of
        a container is included, because it may be a server."""
        for _ in range(_DEEPEST):
            if pid == INIT and self._is_machine():
                return
            try:
                status = self._fields(pid)
                yield self._process(pid, status)
                pid = int(status.get("PPid", "0"))
            except (OSError, ValueError):
                return
            if pid <= 0:
                return

    def children(self, pid: int) -> list[HostProcess]:
        """The running child processes of a process."""
        try:
            text = (self._root / str(pid) / "task" / str(pid) / "children").read_text("utf-8")
        except (OSError, ValueError):
            return []
        return [
            process
            for word in text.split()
            if (process := next(self.ancestry(int(word)), None)) is not None
        ]

    def visible_devices(self, pid: int) -> str | None:
        """CUDA_VISIBLE_DEVICES of a process, or None if it is unset or not readable."""
        try:
            environment = (self._root / str(pid) / "environ").read_bytes()
        except OSError:
            return None
        for variable in environment.split(b"\0"):
            name, _, value = variable.partition(b"=")
            if name == VARIABLE:
                return value.decode("utf-8", "replace")
        return None

    def port(self, pid: int) -> int | None:
        """The TCP port that a process listens on. The result is None if there are no ports or
        several ports."""
        try:
            mine = self._sockets(pid)
            lines = [
                line.split()
                for table in ("tcp", "tcp6")
                if (path := self._root / str(pid) / "net" / table).exists()
                for line in path.read_text("ascii", "replace").splitlines()[1:]
            ]
            ports = {
                int(fields[1].rpartition(":")[2], 16)
                for fields in lines
                if fields[3] == _LISTENING and fields[9] in mine
            }
        except (OSError, ValueError, IndexError):
            return None
        return ports.pop() if len(ports) == 1 else None

    def hostname(self, pid: int) -> str | None:
        """The host name of a process's container, or None if it cannot be read."""
        try:
            text = (self._root / str(pid) / "root" / "etc" / "hostname").read_text("utf-8")
        except (OSError, ValueError):
            return None
        return text.strip() or None

    def _sockets(self, pid: int) -> set[str]:
        found = set()
        for each in (self._root / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                kind, _, number = str(each.readlink()).partition(":")
                if kind == "socket":
                    found.add(number.strip("[]"))
        return found

    def _is_machine(self) -> bool:
        try:
            return self._fields(KERNEL_THREADS).get("Name") == "kthreadd"
        except OSError:
            return False

    def _process(self, pid: int, status: dict[str, str]) -> HostProcess:
        # NSpid lists the process's id in each namespace, from Tailspan's namespace to the process's
        # own. Linux before 4.1 does not report it.
        numbers = status.get("NSpid", str(pid)).split()
        contained = len(numbers) > 1
        return HostProcess(pid, int(numbers[-1]), contained, self._started(pid), self._program(pid))

    def _program(self, pid: int) -> str | None:
        try:
            return str((self._root / str(pid) / "exe").readlink())
        except OSError:
            return None

    def _fields(self, pid: int) -> dict[str, str]:
        text = (self._root / str(pid) / "status").read_text("utf-8", "replace")
        pairs = (line.partition(":") for line in text.splitlines())
        return {name: value.strip() for name, _, value in pairs}

    def _started(self, pid: int) -> float | None:
        try:
            if self._booted_s is None:
                self._booted_s = _boot((self._root / "stat").read_text("utf-8", "replace"))
                self._first_offset_ns = self._clock_offset_ns()
            stat = (self._root / str(pid) / "stat").read_text("utf-8", "replace")
            # The process name in parentheses may contain any character.
            ticks = int(stat.rpartition(")")[2].split()[19])
        except (OSError, ValueError, IndexError, StopIteration):
            return None
        return self._booted_s + ticks / self._ticks_per_s


def _boot(text: str) -> float:
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith("btime "))
