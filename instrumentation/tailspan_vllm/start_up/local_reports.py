"""Sends short reports between the processes of a server, over a local stream socket.

A sender never waits. If the listener has closed, or if too many connections wait, the report is
lost. The kernel keeps connections until the listener reads, so the listener needs no thread. The
module works only on Linux. A datagram socket would keep only ten reports (net.unix.max_dgram_qlen).
"""

import os
import socket
import struct
import weakref
from contextlib import suppress
from typing import Final

from tailspan_vllm import guard

MAX_WAITING: Final = 1024
"""The number of connections that the kernel keeps, unless net.core.somaxconn is lower."""

_CREDENTIALS: Final = struct.Struct("3i")
"""Linux's `struct ucred`: process, user, group."""
_READS: Final = 4096


def send(address: str, report: bytes) -> None:
    """Send a report to the listener of an address."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end, suppress(OSError):
        end.setblocking(False)
        end.connect(address)
        end.send(report)


class LocalReports:
    """The listener, which receives reports until `read` is called. `address` is abstract: it begins
    with a zero byte."""

    def __init__(self, address: str, size: int) -> None:
        self._size = size
        self._end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._end.setblocking(False)
        self._end.bind(address)
        self._end.listen(MAX_WAITING)
        # On a GPU, vLLM forks its engines and workers. These processes would keep the listener
        # open.
        end = weakref.ref(self._end)
        os.register_at_fork(after_in_child=lambda: _close(end()))

    def __del__(self) -> None:
        if hasattr(self, "_end"):
            self._end.close()

    def read(self) -> list[bytes]:
        """Close the listener, and return the reports. Reports from other users' processes are
        dropped and counted (unix(7), SO_PEERCRED)."""
        found: list[bytes] = []
        with self._end:
            for _ in range(_READS):
                try:
                    connection, _address = self._end.accept()
                except OSError:
                    break
                with connection:
                    data = self._received(connection)
                if len(data) == self._size:
                    found.append(data)
                else:
                    guard.count("start.refused", "tailspan: refused a report of a start")
        return found

    def _received(self, connection: socket.socket) -> bytes:
        """The bytes, which are empty if a different user's process sent them."""
        try:
            connection.setblocking(False)
            sender = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if _CREDENTIALS.unpack(sender)[1] != os.geteuid():
                return b""
            return connection.recv(self._size + 1)
        except OSError:
            return b""


def _close(end: socket.socket | None) -> None:
    if end is not None:
        end.close()
