"""How much is taken at once and a second, from one sender and from all of them."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from collector.errors import ThrottledError

MIB: Final = 2**20
MOST_PEERS: Final = 4096
"""Senders told apart; of more, the longest silent begins anew."""
MESSAGE_BYTES: Final = 512
"""What a message counts beside its body: an empty one is work, too."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes are counted decompressed. A rate is an average: a second's worth may come at once,
    and one message of any size that is allowed."""

    max_body_bytes: int = 16 * MIB
    """Of one message."""
    max_waiting_bytes: int = 256 * MIB
    """Of all messages not yet answered."""
    max_peer_bytes_per_s: float = 128 * MIB
    """From one address."""
    max_bytes_per_s: float = 512 * MIB
    """From all of them."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")


@dataclass(slots=True)
class _Bucket:
    """Fills at a rate up to a second's worth; may be in debt by one message."""

    left: float
    at: float

    def refill(self, rate: float, now: float) -> None:
        self.left = min(self.left + (now - self.at) * rate, rate)
        self.at = now


@dataclass(slots=True)
class Rates:
    """Holds senders to the limits, one event loop's worth of them.

    Args:
        limits: the rates.
        clock: monotonic seconds.
    """

    limits: Limits
    clock: Callable[[], float] = time.monotonic
    _all: _Bucket = field(init=False)
    _peers: OrderedDict[str, _Bucket] = field(init=False, default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self._all = _Bucket(self.limits.max_bytes_per_s, self.clock())

    def charge(self, peer: str, body_bytes: int) -> None:
        """Count a message.

        Args:
            peer: the sender's address, without the port of its connection.
            body_bytes: decompressed.

        Raises:
            ThrottledError: too much in too short a time; it was not counted.
        """
        now, cost = self.clock(), body_bytes + MESSAGE_BYTES
        bucket = self._peers.pop(peer, None) or _Bucket(self.limits.max_peer_bytes_per_s, now)
        self._peers[peer] = bucket
        if len(self._peers) > MOST_PEERS:
            self._peers.popitem(last=False)
        bucket.refill(self.limits.max_peer_bytes_per_s, now)
        self._all.refill(self.limits.max_bytes_per_s, now)
        _check(bucket, self.limits.max_peer_bytes_per_s, "from this address")
        _check(self._all, self.limits.max_bytes_per_s, "from all senders")
        bucket.left -= cost
        self._all.left -= cost


def _check(bucket: _Bucket, rate: float, whose: str) -> None:
    if bucket.left < 0:
        raise ThrottledError(
            f"more than {rate:.0f} bytes/s {whose}; send later",
            max(1, math.ceil(-bucket.left / rate)),
        )
