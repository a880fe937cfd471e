"""Accept TCP connections within limits. asyncio's own server has no such limits.

There are limits per address and in total. A connection is counted even before its TLS handshake.
When a limit is reached, a new connection replaces the connection whose client has been inactive
longest. So idle connections cannot block a scrape or a health check.
"""

import asyncio
import errno
import logging
import resource
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from collector.limits.sender_limits import sender

ACCEPT_AT_ONCE: Final = 64
"""Number of connections that are accepted before the event loop does other work."""
PAUSE_S: Final = 1.0
"""Pause after the process has run out of file descriptors, as in asyncio."""
MAX_DESCRIPTORS: Final = 8192
"""The process's soft limit of file descriptors is raised to this number. The ports, the database
and the scrapes need half of it."""
KEPT_DESCRIPTORS: Final = 256
"""Descriptors that are reserved for the database, /metrics, scrapes and logs."""

_FULL: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one port."""

    connections: int = 1024
    per_peer: int = 256
    handshake_s: float = 10.0
    """Time limit for the TLS handshake, which takes three round trips. asyncio's default is 60
    s."""
    head_s: float = 10.0
    """Time limit for a request's head. The time begins with the connection. For later requests, it
    begins with the first byte. nginx allows 60 s, Apache (mod_reqtimeout) 20 s."""
    idle_s: float = 75.0
    """Time limit between a response and the next request. It is longer than the interval between
    exports."""
    write_s: float = 30.0
    """Time limit for a client to read its response. The largest response (/metrics) has 3.9 MB."""


class OpenConnection(Protocol):
    """The connection's interface for the acceptor, after the handshake."""

    @property
    def waits_since(self) -> float | None:
        """The monotonic time since which the server has been waiting for the client. It is None if
        the server is not waiting."""

    def close_at_once(self) -> None:
        """Close the connection immediately."""


class Connection:
    """A TCP connection, from its acceptance to its end."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.began = time.monotonic()
        self.held: OpenConnection | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def waits_since(self) -> float | None:
        """See `OpenConnection`. The server also waits for the client during a TLS handshake."""
        return self.began if self.held is None else self.held.waits_since

    def close_at_once(self) -> None:
        """Close the connection immediately."""
        if self.held is not None:
            self.held.close_at_once()
        elif self.task is not None:
            self.task.cancel()


class Acceptor:
    """Accepts the connections of a listening socket, within limits.

    Args:
        protocol: returns the asyncio protocol for a `Connection`. It must set `held` when the
            connection is open, and call `Acceptor.closed` at the end.
    """

    def __init__(
        self,
        listening: socket.socket,
        protocol: Callable[[Connection], asyncio.Protocol],
        limits: ConnectionLimits,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listening = listening
        self._protocol = protocol
        self._limits = limits
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._open: dict[Connection, None] = {}
        self._peers: Counter[str] = Counter()
        self._paused: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Stop accepting. Open connections stay open, but unfinished TLS handshakes end."""
        if self._paused is not None:
            self._paused.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for connection in list(self._open):
            if connection.held is None:
                connection.close_at_once()

    async def wait_closed(self) -> None:
        """Do nothing. uvicorn waits for open connections itself."""

    def closed(self, connection: Connection) -> None:
        """Remove a connection that has ended; idempotent."""
        if connection in self._open:
            del self._open[connection]
            self._peers[connection.peer] -= 1
            if not self._peers[connection.peer]:
                del self._peers[connection.peer]

    def _resume(self) -> None:
        self._paused = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self._pause_accepting(error)
                return
            self._admit(accepted, sender(address[0]))

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        mine = self._peers[peer] >= self._limits.per_peer
        if (
            mine or len(self._open) >= self._limits.connections
        ) and not self._close_longest_waiting(peer if mine else None):
            accepted.close()
            _log.warning(
                "refused a connection from %s: %d of %d are open, %d of %d from this address",
                peer,
                len(self._open),
                self._limits.connections,
                self._peers[peer],
                self._limits.per_peer,
            )
            return
        accepted.setblocking(False)
        connection = Connection(peer)
        self._open[connection] = None
        self._peers[peer] += 1
        connection.task = self._loop.create_task(self._serve(accepted, connection))

        def served(task: asyncio.Task[None]) -> None:
            # If a task is cancelled before its first step, none of its own code runs.
            error = None if task.cancelled() else task.exception()
            if task.cancelled() or error is not None:
                self.closed(connection)
                accepted.close()
            if error is not None and not isinstance(error, OSError):  # a defect
                _log.error("handling a connection failed", exc_info=error)

        connection.task.add_done_callback(served)

    async def _serve(self, accepted: socket.socket, connection: Connection) -> None:
        handshake = {
            "ssl_handshake_timeout": self._limits.handshake_s,
            "ssl_shutdown_timeout": self._limits.handshake_s,
        }
        await self._loop.connect_accepted_socket(
            lambda: self._protocol(connection),
            accepted,
            ssl=self._tls,
            **(handshake if self._tls else {}),
        )

    def _close_longest_waiting(self, peer: str | None) -> bool:
        """Close the connection that has waited longest for its client. Return false if no
        connection waits.

        Args:
            peer: the address whose connection to close. If None, the address with the most
                connections is used.
        """
        if peer is None:
            peer = max(self._peers, key=lambda name: self._peers[name], default=None)
        waiting = [
            (since, number, each)
            for number, each in enumerate(self._open)
            if each.peer == peer and (since := each.waits_since) is not None
        ]
        if not waiting:
            return False
        connection = min(waiting)[2]
        connection.close_at_once()
        self.closed(connection)
        return True

    def _pause_accepting(self, error: OSError) -> None:
        _log.warning(
            "cannot accept connections: %s; %d are open here, trying again in %g s",
            error.strerror,
            len(self._open),
            PAUSE_S,
        )
        self._close_longest_waiting(None)
        self._loop.remove_reader(self._listening)
        self._paused = self._loop.call_later(PAUSE_S, self._resume)


def within_descriptors(connections: int, ports: int) -> int:
    """The number of connections per port that the limit of file descriptors allows. It is at most
    `connections`. The process's soft limit is raised first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < MAX_DESCRIPTORS:
        wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
        with suppress(OSError, ValueError):  # the current limit stays in force
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections
    return max(1, min(connections, (soft - KEPT_DESCRIPTORS) // ports))
