"""Limit messages, bytes and rates, per sender and for all senders together."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import Final

from collector.errors import ThrottledError

MIB: Final = 2**20
MAX_PEERS: Final = 4096
"""Maximum number of senders whose rates are stored. A new sender replaces the sender that has been
silent longest."""
MESSAGE_BYTES: Final = 512
"""Number of bytes that is added to the size of each body, because even an empty message causes
work."""


@dataclass(frozen=True, slots=True)
class CollectorLimits:
    """Limits of the collector, per sender and in total.

    Bytes are counted after decompression. A sender may send the bytes of one second in a single
    burst. It may also send one message of any allowed size.
    """

    max_body_bytes: int = 16 * MIB
    """Maximum size of one message in bytes."""
    max_waiting_bytes: int = 256 * MIB
    """Maximum size in bytes of all unanswered messages together, including messages that are still
    arriving."""
    max_peer_waiting_bytes: int = 128 * MIB
    """Maximum size in bytes of the unanswered messages from one address. It is half of the total,
    so that one sender cannot use all memory."""
    max_waiting_messages: int = 1024
    """Maximum number of unanswered messages. The transport uses up to 64 KiB for each message that
    is not read yet."""
    max_peer_waiting_messages: int = 256
    """Maximum number of unanswered messages from one address. An OpenTelemetry Collector sends 10
    messages at the same time (`num_consumers`), and a NAT may hide many senders."""
    max_connections: int = 1024
    """Maximum number of connections to each OTLP port."""
    max_peer_connections: int = 256
    """Maximum number of connections from one address to the HTTP port. gRPC cannot count
    connections by address."""
    max_peer_bytes_per_s: float = 128 * MIB
    max_bytes_per_s: float = 512 * MIB

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")


@dataclass(slots=True)
class _Bucket:
    """A token bucket that holds at most the bytes of one second.

    After a large message, the balance is negative. New messages are refused until it is positive.
    """

    left: float
    at: float

    def refill(self, rate: float, now: float) -> None:
        self.left = min(self.left + (now - self.at) * rate, rate)
        self.at = now


@dataclass(slots=True)
class RateLimiter:
    """Enforces the rates, on one event loop only."""

    limits: CollectorLimits
    clock: Callable[[], float] = time.monotonic
    _all: _Bucket = field(init=False)
    _peers: OrderedDict[str, _Bucket] = field(init=False, default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self._all = _Bucket(self.limits.max_bytes_per_s, self.clock())

    def check(self, peer: str) -> None:
        """Check that this sender, and all senders together, are below their rate limits.

        Raises:
            ThrottledError: a rate was exceeded.
        """
        _check(self._bucket(peer), self.limits.max_peer_bytes_per_s, "from this address")
        _check(self._all, self.limits.max_bytes_per_s, "from all senders")

    def charge(self, peer: str, body_bytes: int) -> None:
        """Count a message of this size.

        Raises:
            ThrottledError: a rate was exceeded before this message. The message is then not
                counted.
        """
        self.check(peer)
        self.add(peer, body_bytes + MESSAGE_BYTES)

    def add(self, peer: str, more_bytes: int) -> None:
        """Count the bytes by which decompression enlarged an accepted message."""
        self._bucket(peer).left -= more_bytes
        self._all.left -= more_bytes

    def _bucket(self, peer: str) -> _Bucket:
        now = self.clock()
        bucket = self._peers.pop(peer, None) or _Bucket(self.limits.max_peer_bytes_per_s, now)
        self._peers[peer] = bucket
        if len(self._peers) > MAX_PEERS:
            self._peers.popitem(last=False)
        bucket.refill(self.limits.max_peer_bytes_per_s, now)
        self._all.refill(self.limits.max_bytes_per_s, now)
        return bucket


def sender(address: str) -> str:
    """The key of a sender, which is its IPv4 address or its IPv6 network of 64 bits. An IPv6 host
    can use any address in its network. Source: RFC 4291, 2.5.4."""
    try:
        ip = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return f"{IPv6Address(int(ip) >> 64 << 64)}/64"


def _check(bucket: _Bucket, rate: float, origin: str) -> None:
    if bucket.left < 0:
        raise ThrottledError(
            f"more than {rate:.0f} bytes/s {origin}; send later",
            max(1, math.ceil(-bucket.left / rate)),
        )
