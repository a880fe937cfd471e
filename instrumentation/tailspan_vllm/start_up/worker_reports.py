"""Sends a worker's report to the engine core that started it, over a local datagram socket.

A worker never waits. If the engine core does not listen, or its buffer is full, the report is lost,
and the engine core uses the other workers' reports. Linux only, like the engine's link.
"""

import os
import socket
import struct
from contextlib import suppress

from tailspan_vllm import guard
from tailspan_vllm.start_up.instants import WorkerStart

_REPORT = struct.Struct(f"<{len(WorkerStart._fields)}d")
_CREDENTIALS = struct.Struct("3i")
"""Linux's `struct ucred`: process, user, group."""
_READS = 4096


def _address(token: str, engine_process: int) -> str:
    return f"\0tailspan-start-{token}-{engine_process}"


def send_report(token: str, report: WorkerStart) -> None:
    """Send a report to the parent process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end, suppress(OSError):
        end.setblocking(False)
        end.sendto(_REPORT.pack(*report), _address(token, os.getppid()))


class WorkerReports:
    """The engine core's end: listens from before its workers start until they are ready."""

    def __init__(self, token: str) -> None:
        self._end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._end.setblocking(False)
        self._end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._end.bind(_address(token, os.getpid()))

    def __del__(self) -> None:
        """Close this end if the start failed before `read`."""
        if hasattr(self, "_end"):
            self._end.close()

    def read(self) -> list[WorkerStart]:
        """Return the reports that have arrived, and close this end.

        Reports of processes of other users are dropped and counted (unix(7), SO_PASSCRED).
        """
        found: list[WorkerStart] = []
        with self._end:
            for _ in range(_READS):
                try:
                    data, ancillary, _flags, _from = self._end.recvmsg(
                        _REPORT.size + 1, socket.CMSG_SPACE(_CREDENTIALS.size)
                    )
                except OSError:
                    break
                if len(data) == _REPORT.size and _is_ours(ancillary):
                    found.append(WorkerStart(*_REPORT.unpack(data)))
                else:
                    guard.count("start.refused", "tailspan: refused a report of a worker's start")
        return found


def _is_ours(ancillary: list[tuple[int, int, bytes]]) -> bool:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return bool(_CREDENTIALS.unpack(data[: _CREDENTIALS.size])[1] == os.geteuid())
    return False
