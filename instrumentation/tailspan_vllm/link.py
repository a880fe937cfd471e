"""From the engine core to the front ends of one server: a local socket, nothing else shared.

What the engine's ledger settles belongs on spans that the front end makes. Both ends find
each other by a token that children inherit in their environment. The engine never waits:
what a front end does not take at once is kept up to a limit, and then dropped and counted.

Linux only (abstract sockets leave no files behind); elsewhere, and between machines, there
is no link, and spans are told without the engine's half.
"""

import json
import os
import secrets
import socket
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tailspan_vllm.billing import Bill
from tailspan_vllm.fingerprint import Scalar
from tailspan_vllm.ledger import Account
from tailspan_vllm.machine import Machine
from tailspan_vllm.parts import Parts, QueueParts
from tailspan_vllm.queueing import Waited

TOKEN_VARIABLE = "TAILSPAN_LINK"
BACKLOG = 4096
"""Messages kept for a front end that is slow to read."""

RECENT = 512
"""Messages told again to a front end that has just connected."""

PACKET_BYTES = 32768
_ACCOUNT = struct.Struct("<i24d")
_NAN = float("nan")
_UNKNOWN = (_NAN,) * 5


def make_token(environ: "os._Environ[str]") -> None:
    """Give this process and its children a token, unless a parent has."""
    environ.setdefault(TOKEN_VARIABLE, secrets.token_hex(8))


class EngineEnd:
    """The engine's end: listens, and pushes messages to whoever has connected."""

    def __init__(self, token: str, name: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.setblocking(False)
        self._listener.bind(f"\0tailspan-{token}-{name}-{os.getpid()}")
        self._listener.listen(16)
        self._fronts: list[socket.socket] = []
        self._backlog: deque[bytes] = deque()
        self._recent: deque[bytes] = deque(maxlen=RECENT)
        self.greeting = b""
        """Said first to every front end that connects."""
        self.dropped = 0

    def put(self, message: bytes) -> None:
        """Queue a message; the oldest gives way when the backlog is full."""
        if len(self._backlog) >= BACKLOG:
            self._backlog.popleft()
            self.dropped += 1
        self._backlog.append(message)

    def flush(self) -> None:
        """Send what is queued, without waiting for anybody."""
        self._accept()
        self._recent.extend(self._backlog)
        for packet in _packets(self._backlog):
            for front in tuple(self._fronts):
                self._send(front, packet)
        self._backlog.clear()

    def tell_one(self, message: bytes) -> None:
        """Send to one front end only: what must not be counted twice."""
        self._accept()
        if self._fronts:
            self._send(self._fronts[0], _framed(message))

    def close(self) -> None:
        """Close both the door and the conversations."""
        for end in (self._listener, *self._fronts):
            end.close()
        self._fronts.clear()

    def _accept(self) -> None:
        try:
            while True:
                front, _ = self._listener.accept()
                front.setblocking(False)
                self._fronts.append(front)
                # It may have come for a request that is over: the engine's first ones are
                # quicker than the finding of each other.
                greeted = (self.greeting,) if self.greeting else ()
                for packet in _packets((*greeted, *self._recent)):
                    self._send(front, packet)
        except BlockingIOError:
            return

    def _send(self, front: socket.socket, packet: bytes) -> None:
        try:
            front.send(packet)
        except BlockingIOError:
            self.dropped += 1
        except OSError:
            self._fronts.remove(front)
            front.close()


class FrontEnd:
    """A front end's end: finds the engines of its server and reads what they say."""

    def __init__(self, token: str) -> None:
        self._prefix = f"@tailspan-{token}-"
        self._engines: dict[str, socket.socket] = {}
        self._packet = bytearray(2 * PACKET_BYTES)

    @property
    def connected(self) -> bool:
        """Whether any engine is at the other end."""
        return bool(self._engines)

    def discover(self) -> None:
        """Connect to the engines that have appeared."""
        try:
            table = Path("/proc/net/unix").read_text()
        except OSError:
            return
        for line in table.splitlines():
            _, at, name = line.partition(self._prefix)
            address = self._prefix + name
            # A listening socket has one line, and one more for each connection it accepted.
            if not at or address in self._engines:
                continue
            engine = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                engine.connect("\0" + address[1:])
            except OSError:
                engine.close()
                continue
            engine.setblocking(False)
            self._engines[address] = engine

    def close(self) -> None:
        """Hang up."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()

    def read(self) -> list[bytes]:
        """Every message that has come since the last call."""
        messages: list[bytes] = []
        for address, engine in tuple(self._engines.items()):
            try:
                while size := engine.recv_into(self._packet):
                    messages += _unframed(self._packet, size)
            except BlockingIOError:
                continue
            except OSError:
                pass
            engine.close()  # the engine has ended
            del self._engines[address]
        return messages


def encode_account(engine: int, request_id: str, account: Account) -> bytes:
    """One request's account by an engine, as a message."""
    return (
        b"A"
        + _ACCOUNT.pack(
            engine,
            *(account.prefill or _UNKNOWN),
            *(account.decode or _UNKNOWN),
            *(account.waited.parts if account.waited else _UNKNOWN),
            account.waited.queued if account.waited else _NAN,
            _or_nan(account.scheduled),
            _or_nan(account.first_token),
            _or_nan(account.last_token),
            _or_nan(account.itl_max_s),
            _or_nan(account.external_cached_tokens),
            _or_nan(account.others_prefill_tokens_max),
            *(account.bill or (_NAN, _NAN)),
        )
        + request_id.encode()
    )


def encode_sample(sample: dict[str, Any]) -> bytes:
    """An engine's totals and fit, as a message."""
    return b"S" + json.dumps(sample).encode()


class Identity(NamedTuple):
    """Which engine is at the other end, for a front end that has no stat logger."""

    engine: int
    started_unix_ns: int
    model: str
    config: str
    version: str
    arguments: dict[str, Scalar]
    process: int
    machine: Machine


def encode_identity(identity: Identity) -> bytes:
    """Who an engine is, as a message."""
    return b"I" + json.dumps(identity).encode()


class Settled(NamedTuple):
    """One request's account, and the engine that settled it."""

    request_id: str
    engine: int
    account: Account


def decode(message: bytes) -> Settled | Identity | dict[str, Any]:
    """A message, read back.

    Raises: ValueError where it is neither an account, an identity nor a sample.
    """
    if message[:1] == b"A":
        engine, *values = _ACCOUNT.unpack_from(message, 1)
        known = [None if value != value else value for value in values]
        queued, scheduled, first_token, last_token = known[15:19]
        itl_max_s, external, others, billed_s, wasted_s = known[19:]
        account = Account(
            scheduled=scheduled,
            first_token=first_token,
            last_token=last_token,
            prefill=None if known[0] is None else Parts(*values[:5]),
            decode=None if known[5] is None else Parts(*values[5:10]),
            itl_max_s=itl_max_s,
            waited=None if queued is None else Waited(queued, QueueParts(*values[10:15])),
            others_prefill_tokens_max=None if others is None else int(others),
            external_cached_tokens=None if external is None else int(external),
            bill=None if billed_s is None or wasted_s is None else Bill(billed_s, wasted_s),
        )
        return Settled(message[1 + _ACCOUNT.size :].decode(), engine, account)
    if message[:1] == b"S":
        sample: dict[str, Any] = json.loads(message[1:])
        return sample
    if message[:1] == b"I":
        identity = Identity(*json.loads(message[1:]))
        return identity._replace(machine=Machine(*identity.machine))
    raise ValueError(f"unknown message {message[:1]!r}; known: b'A', b'I', b'S'")


def _or_nan(value: float | None) -> float:
    return _NAN if value is None else value


def _framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "little") + message


def _packets(messages: Iterable[bytes]) -> Iterator[bytes]:
    packet = b""
    for message in messages:
        framed = _framed(message)
        if packet and len(packet) + len(framed) > PACKET_BYTES:
            yield packet
            packet = b""
        packet += framed
    if packet:
        yield packet


def _unframed(packet: bytearray, length: int) -> list[bytes]:
    messages, position = [], 0
    while position + 4 <= length:
        size = int.from_bytes(packet[position : position + 4], "little")
        messages.append(bytes(packet[position + 4 : position + 4 + size]))
        position += 4 + size
    return messages
