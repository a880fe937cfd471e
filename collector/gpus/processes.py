"""The processes of this machine, as /proc tells of them: parents, namespaces, starts.

Of a process' environment one variable is read, CUDA_VISIBLE_DEVICES, and nothing else of it is
kept: the rest may hold secrets, as may a command line, which is not read at all. Whatever cannot
be read is unknown.
Source: proc(5).
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

VARIABLE: Final = b"CUDA_VISIBLE_DEVICES"
INIT: Final = 1
KERNEL_THREADS: Final = 2
"""Their parent's number, on every machine and in no container."""
_LISTENING: Final = "0A"
"""TCP_LISTEN, as the kernel's tables of sockets write it."""
_DEEPEST: Final = 64
"""Generations; a chain that is longer has changed while it was read."""


class Process(NamedTuple):
    """One process.

    Attributes:
        pid: as we number it.
        own_pid: as it numbers itself; another than `pid` in a container.
        contained: whether it lives in a namespace of process ids below ours.
        started_unix_s: when it began; None where nobody can say.
        program: the file that it runs; None where that is not ours to see.
    """

    pid: int
    own_pid: int
    contained: bool
    started_unix_s: float | None
    program: str | None = None


class Processes:
    """Reads processes.

    Args:
        root: where /proc is.
        ticks_per_s: of the clock that /proc counts starts in.
    """

    def __init__(self, root: Path = Path("/proc"), ticks_per_s: float | None = None) -> None:
        self._root = root
        self._ticks_per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")
        self._booted_s: float | None = None

    def ancestry(self, pid: int) -> Iterator[Process]:
        """A process, its parent, and so on to the first; of a machine without that one, which is
        everybody's. Where we are in a container ourselves, the first may be a server."""
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

    def children(self, pid: int) -> list[Process]:
        """The processes that a process started itself, and that are still there."""
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
        """CUDA_VISIBLE_DEVICES of a process; None where it is not set, or not ours to see."""
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
        """The one TCP port that a process listens on; None where there are several, or none, or
        its sockets are not ours to see."""
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
        """What the container of a process is called; None where that cannot be seen."""
        try:
            text = (self._root / str(pid) / "root" / "etc" / "hostname").read_text("utf-8")
        except (OSError, ValueError):
            return None
        return text.strip() or None

    def _sockets(self, pid: int) -> set[str]:
        found = set()
        for each in (self._root / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed meanwhile
                kind, _, number = str(each.readlink()).partition(":")
                if kind == "socket":
                    found.add(number.strip("[]"))
        return found

    def _is_machine(self) -> bool:
        try:
            return self._fields(KERNEL_THREADS).get("Name") == "kthreadd"
        except OSError:
            return False

    def _process(self, pid: int, status: dict[str, str]) -> Process:
        # Of the namespaces from ours down to its own; kernels before 4.1 do not say.
        numbers = status.get("NSpid", str(pid)).split()
        contained = len(numbers) > 1
        return Process(pid, int(numbers[-1]), contained, self._started(pid), self._program(pid))

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
            stat = (self._root / str(pid) / "stat").read_text("utf-8", "replace")
            # The name, in parentheses, may hold anything; the 22nd field is the 20th after it.
            ticks = int(stat.rpartition(")")[2].split()[19])
        except (OSError, ValueError, IndexError, StopIteration):
            return None
        return self._booted_s + ticks / self._ticks_per_s


def _boot(text: str) -> float:
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith("btime "))
