"""Link from an engine core to the front ends of its server, over a local socket.

An account contains what the step ledger measured for one request. The engine sends each account,
and the front end adds it to the request's span.

The engine core and the front ends find each other by a token that child processes inherit. Any
local process can read the token in /proc/net/unix. So each process also asks the kernel for the
user of the other process, and accepts only its own user.

The engine never waits. Messages stay in one log of limited size. If a message is removed before a
front end received it, it counts as dropped.

Without Linux's abstract sockets, or across machines, spans have no accounts.
"""

import errno
import os
import re
import secrets
import socket
import struct
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from tailspan_vllm import guard

TOKEN_VARIABLE = "TAILSPAN_LINK"

LOG_BYTES = 4 * 2**20
"""The log holds about 50 s of accounts (400 bytes each) at 200 requests per second."""

RECENT = 512
"""Maximum number of earlier messages that a new front end receives."""

PACKET_BYTES = 32768
"""The kernel's send buffer (212,992 bytes by default) holds several packets."""

MESSAGE_BYTES = PACKET_BYTES - 4
"""An account has at most 1,500 bytes."""

PACKETS_PER_FLUSH = 16

PACKETS_PER_READ = 1024

FRONT_ENDS_LIMIT = 64
"""Maximum number of connections to one engine, one per API server."""

ENGINES_LIMIT = 64
"""Maximum number of connected engines. `discover` makes at most this many connection attempts."""

ACCEPTS_PER_FLUSH = 16
_REFUSED_KEPT = 4096
_MESSAGE_OVERHEAD_BYTES = 48

_CREDENTIALS = struct.Struct("3i")
"""Linux's `struct ucred`: process, user, group."""


def make_token(environ: "os._Environ[str]") -> None:
    """Set a token for this process and its child processes, unless a parent process has set one."""
    environ.setdefault(TOKEN_VARIABLE, secrets.token_hex(8))


class EngineEnd:
    """The engine core's end of the link."""

    def __init__(self, token: str, name: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.setblocking(False)
        self._listener.bind(f"\0tailspan-{token}-{name}-{os.getpid()}")
        # The kernel queues connections until the engine's next flush.
        self._listener.listen(FRONT_ENDS_LIMIT)
        self._fronts: list[_Front] = []
        self._log: deque[bytes] = deque()
        self._log_bytes = 0
        self._first = 0
        """Number of messages removed from the log so far."""
        self.greeting = b""
        self.dropped = 0
        """Messages lost before delivery, summed over the front ends."""

    def put(self, message: bytes) -> None:
        """Append a message to the log. Drop the oldest messages if the log is full."""
        if len(message) > MESSAGE_BYTES:
            self.dropped += max(1, len(self._fronts))
            return
        self._log.append(message)
        self._log_bytes += len(message) + _MESSAGE_OVERHEAD_BYTES
        while self._log_bytes > LOG_BYTES:
            self._forget_oldest()
            for front in self._fronts:
                if front.position < self._first:
                    front.position = self._first
                    self.dropped += 1

    def flush(self) -> None:
        """Send pending messages until the buffer of each socket is full. Never wait."""
        self._accept()
        packets: dict[int, tuple[bytes, int]] = {}
        for front in tuple(self._fronts):
            self._push(front, packets)
        if len(self._log) > 2 * RECENT:
            read_by_all = min((front.position for front in self._fronts), default=self._end)
            while self._first < read_by_all and len(self._log) > RECENT:
                self._forget_oldest()

    def send_to_one(self, message: bytes) -> None:
        """Send a sample to one front end only, so that its totals are not reported twice. The
        sample replaces an earlier unsent sample."""
        self._accept()
        if not self._fronts:
            return
        if len(message) > MESSAGE_BYTES:
            self.dropped += 1
            return
        front = self._fronts[0]
        front.sample = message
        self._push(front, {})

    def send_to_others(self, message: bytes) -> None:
        """Send an engine's load to the front ends that receive no samples. It replaces an earlier
        unsent load."""
        for front in self._fronts[1:]:
            front.sample = message
            self._push(front, {})

    def close(self) -> None:
        """Close the listener and all connections."""
        for end in (self._listener, *(front.connection for front in self._fronts)):
            end.close()
        self._fronts.clear()
        self._log.clear()
        self._log_bytes = 0

    @property
    def _end(self) -> int:
        return self._first + len(self._log)

    def _forget_oldest(self) -> None:
        self._log_bytes -= len(self._log.popleft()) + _MESSAGE_OVERHEAD_BYTES
        self._first += 1

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_FLUSH):
            try:
                connection, _address = self._listener.accept()
            except OSError:
                return  # no connection is waiting, or this process has no free file descriptor
            connection.setblocking(False)
            if not _is_ours(connection) or len(self._fronts) >= FRONT_ENDS_LIMIT:
                guard.count(
                    "link.refused",
                    "tailspan: refused a connection to the engine's link: the process belongs to"
                    f" another user, or {FRONT_ENDS_LIMIT} front ends are already connected",
                )
                connection.close()
                continue
            position = max(self._first, self._end - RECENT)
            self._fronts.append(_Front(connection, position, self.greeting))

    def _push(self, front: "_Front", packets: dict[int, tuple[bytes, int]]) -> None:
        for _ in range(PACKETS_PER_FLUSH):
            aside = front.greeting or front.sample
            if aside:
                packet, count = _framed(aside), 0
            elif front.position < self._end:
                if front.position not in packets:
                    packets[front.position] = self._packet(front.position)
                packet, count = packets[front.position]
            else:
                return
            try:
                front.connection.send(packet)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.ENOBUFS, errno.EINTR):
                    return
                if error.errno != errno.EMSGSIZE:
                    self._fronts.remove(front)
                    front.connection.close()
                    return
                self.dropped += count or 1  # the packet exceeds the socket buffer
            if front.greeting:
                front.greeting = b""
            elif aside:
                front.sample = b""
            front.position += count

    def _packet(self, position: int) -> tuple[bytes, int]:
        framed: list[bytes] = []
        size = 0
        # Most front ends read near the end of the deque, where access is fast.
        for index in range(position - self._first, len(self._log)):
            message = self._log[index]
            size += 4 + len(message)
            if size > PACKET_BYTES:
                break
            framed.append(_framed(message))
        return b"".join(framed), len(framed)


class _Front:
    __slots__ = ("connection", "greeting", "position", "sample")

    def __init__(self, connection: socket.socket, position: int, greeting: bytes) -> None:
        self.connection = connection
        self.position = position
        self.greeting = greeting
        self.sample = b""


class FrontEndLink:
    """A front end's connections to the engines of its server."""

    def __init__(self, token: str) -> None:
        self._names = re.compile(re.escape(f"@tailspan-{token}-").encode() + rb"[^\n]*")
        self._engines: dict[str, socket.socket] = {}
        self._refused: set[str] = set()
        self._packet = bytearray(2 * PACKET_BYTES)

    @property
    def connections(self) -> int:
        """Number of engines with an open connection."""
        return len(self._engines)

    def discover(self) -> None:
        """Connect to engines that have started since the last call."""
        try:
            table = Path("/proc/net/unix").read_bytes()
        except OSError:
            return
        tries = 0
        for name in self._names.findall(table):
            address = name.decode(errors="replace")
            if address in self._engines or address in self._refused:
                continue
            tries += 1
            if tries > ENGINES_LIMIT or len(self._engines) >= ENGINES_LIMIT:
                return
            self._connect(address)

    def close(self) -> None:
        """Close all connections."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()

    def read(self) -> list[bytes]:
        """Return every message that has arrived since the last call."""
        messages: list[bytes] = []
        for address, engine in tuple(self._engines.items()):
            if not self._read_from(engine, messages):
                engine.close()  # the engine has ended
                del self._engines[address]
        return messages

    def _connect(self, address: str) -> None:
        engine = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A blocking `connect` would wait while the listener's queue is full.
        engine.setblocking(False)
        try:
            engine.connect("\0" + address[1:])
        except OSError:
            engine.close()
            return
        if _is_ours(engine):
            self._engines[address] = engine
            return
        guard.count("link.refused", "tailspan: refused a link that belongs to another user")
        engine.close()
        if len(self._refused) < _REFUSED_KEPT:
            self._refused.add(address)

    def _read_from(self, engine: socket.socket, messages: list[bytes]) -> bool:
        """Return False if the engine has closed the connection."""
        for _ in range(PACKETS_PER_READ):
            try:
                size = engine.recv_into(self._packet)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not size:
                return False
            messages += _unframed(self._packet, size)
        return True


def _is_ours(connection: socket.socket) -> bool:
    """Return whether the other process runs as the same user. Source: unix(7), SO_PEERCRED."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _process, user, _group = _CREDENTIALS.unpack(credentials)
    return bool(user == os.geteuid())


def _framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "little") + message


def _unframed(packet: bytearray, length: int) -> Iterator[bytes]:
    position = 0
    while position < length:
        begins = position + 4
        ends = begins + int.from_bytes(packet[position:begins], "little")
        if ends > length:
            guard.count("link.malformed", "tailspan: dropped a malformed packet of an engine")
            return
        yield bytes(packet[begins:ends])
        position = ends
