"""TCP connections: how many, from whom, and which one gives way.

asyncio's own server accepts without a limit. At the limit of descriptors it logs an error for
each place in its backlog, 2,048 of them each second. This acceptor counts each connection as
soon as it is accepted, before a TLS handshake. There is a limit for each address and one for all
addresses together. At a limit the connection that has waited longest for its client is closed for
the new one, so that idle connections cannot keep out a scrape or a probe.
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
"""Connections accepted before the event loop has other things to do."""
PAUSE_S: Final = 1.0
"""Before the next attempt when the system has no descriptor left; asyncio's own pause."""
MOST_DESCRIPTORS: Final = 8192
"""What the soft limit is raised to, where the hard one allows it: twice what all ports, the
database and the scrapes need."""
KEPT_DESCRIPTORS: Final = 256
"""For the database, /metrics, scrapes and logs."""

_FULL: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Of one port."""

    connections: int = 1024
    per_peer: int = 256
    handshake_s: float = 10.0
    """For TLS. Three round trips; asyncio's default is 60 s."""
    head_s: float = 10.0
    """From the connection, or from the first byte after an answer, to the end of a request's
    head. nginx allows 60 s, Apache (mod_reqtimeout) 20 s; a head is one packet."""
    idle_s: float = 75.0
    """Between an answer and the next request. Longer than senders pause between exports, which
    would otherwise be cut off in the middle of sending."""
    write_s: float = 30.0
    """For a client to read what is buffered for it: 3.9 MB, a large scrape, in 30 s."""


class Held(Protocol):
    """A connection, as the acceptor sees it."""

    @property
    def waits_since(self) -> float | None:
        """Since when it waits for its client, in monotonic seconds; None while it does not."""

    def give_way(self) -> None:
        """Close it at once."""


class Connection:
    """One accepted connection, until it is closed."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.began = time.monotonic()
        self.held: Held | None = None
        """None until a TLS handshake is done."""
        self.task: asyncio.Task[None] | None = None

    @property
    def waits_since(self) -> float | None:
        """As `Held.waits_since`; a handshake waits for the client."""
        return self.began if self.held is None else self.held.waits_since

    def give_way(self) -> None:
        """Close it at once."""
        if self.held is not None:
            self.held.give_way()
        elif self.task is not None:
            self.task.cancel()


class Acceptor:
    """Accepts connections on a listening socket, within limits.

    Args:
        listening: the socket; closed by `close`.
        protocol: makes the protocol of a connection, which must set its `held` and call
            `closed` at its end.
        limits: how many connections, and for how long a handshake may take.
        tls: None for plaintext.
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
        # In the order of their arrival.
        self._open: dict[Connection, None] = {}
        self._peers: Counter[str] = Counter()
        self._paused: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Stop accepting. Open connections stay open; unfinished TLS handshakes end."""
        if self._paused is not None:
            self._paused.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for connection in list(self._open):
            if connection.held is None:
                connection.give_way()

    async def wait_closed(self) -> None:
        """Return at once; uvicorn waits for its open connections itself."""

    def closed(self, connection: Connection) -> None:
        """A connection has ended; idempotent."""
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
                self._full(error)
                return
            self._admit(accepted, sender(address[0]))

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        mine = self._peers[peer] >= self._limits.per_peer
        if (mine or len(self._open) >= self._limits.connections) and not self._make_way(
            peer if mine else None
        ):
            accepted.close()
            _log.warning(
                "refused a connection from %s: %d of %d are open, %d of %d from it",
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
            # Not in the task: if it is cancelled before its first step, none of its code runs.
            error = None if task.cancelled() else task.exception()
            if task.cancelled() or error is not None:
                self.closed(connection)
                accepted.close()
            if error is not None and not isinstance(error, OSError):  # a defect of ours
                _log.error("a connection could not be served", exc_info=error)

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

    def _make_way(self, peer: str | None) -> bool:
        """Close the connection that has waited longest; return False if none waits.

        Args:
            peer: close one of this sender; None: one of the sender with the most connections.
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
        connection.give_way()
        self.closed(connection)
        return True

    def _full(self, error: OSError) -> None:
        _log.warning(
            "cannot accept connections: %s; %d are open here, trying again in %g s",
            error.strerror,
            len(self._open),
            PAUSE_S,
        )
        self._make_way(None)
        self._loop.remove_reader(self._listening)
        self._paused = self._loop.call_later(PAUSE_S, self._resume)


def within_descriptors(connections: int, ports: int) -> int:
    """As many of these connections for each of so many ports as there are descriptors for.

    Raises the soft limit of descriptors first, where the hard one allows it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < MOST_DESCRIPTORS:
        wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
        with suppress(OSError, ValueError):  # then with what there is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections
    return max(1, min(connections, (soft - KEPT_DESCRIPTORS) // ports))
