"""Reserve memory for a message while it arrives, and release it after the response.

Use from one event loop only.
"""

from dataclasses import dataclass
from typing import Self

from collector.counters import Counters
from collector.errors import IntakeBusyError
from collector.limits.sender_limits import CollectorLimits


@dataclass(slots=True)
class _Usage:
    messages: int = 0
    size_bytes: int = 0


class MessageMemory:
    """The reservations of all unanswered messages."""

    def __init__(self, limits: CollectorLimits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._all = _Usage()
        self._peers: dict[str, _Usage] = {}

    def enter(self, peer: str) -> "MemoryReservation":
        """Reserve memory for a message that begins to arrive.

        Raises:
            IntakeBusyError: too many messages are waiting.
        """
        limits = self._limits
        usage = self._peers.get(peer)
        if usage is not None and usage.messages >= limits.max_peer_waiting_messages:
            raise IntakeBusyError(
                f"{usage.messages} messages from this address wait; send again later"
            )
        if self._all.messages >= limits.max_waiting_messages:
            raise IntakeBusyError(f"{self._all.messages} messages wait; send again later")
        self.change(peer, 1, 0)
        return MemoryReservation(self, peer)

    def check(self, peer: str, own_bytes: int, more_bytes: int) -> None:
        """Check that a message may reserve `more_bytes` in addition to its `own_bytes`. Raise
        IntakeBusyError if it may not."""
        for usage, most, origin in (
            (self._peers[peer], self._limits.max_peer_waiting_bytes, " from this address"),
            (self._all, self._limits.max_waiting_bytes, ""),
        ):
            others = usage.size_bytes - own_bytes
            # A message is always accepted if no other message is waiting.
            # `CollectorLimits.max_body_bytes` limits its size.
            if others and usage.size_bytes + more_bytes > most:
                raise IntakeBusyError(
                    f"{others} bytes{origin} wait to be stored, and {own_bytes + more_bytes} more"
                    f" would exceed {most}"
                )

    def change(self, peer: str, messages: int, size_bytes: int) -> None:
        """Add to the counts of a sender's waiting messages and bytes. The arguments may be
        negative."""
        usage = self._peers.setdefault(peer, _Usage())
        for each in (usage, self._all):
            each.messages += messages
            each.size_bytes += size_bytes
        if not usage.messages:
            del self._peers[peer]
        self._counters.waiting(messages, size_bytes)


class MemoryReservation:
    """The memory of one message. As a context manager, it releases the memory."""

    def __init__(self, memory: MessageMemory, peer: str) -> None:
        self._memory = memory
        self._open = True
        self.peer = peer
        self.size_bytes = 0

    def grow(self, more_bytes: int) -> None:
        """Reserve more bytes before they are used.

        Raises:
            IntakeBusyError: not enough memory is left.
        """
        self._memory.check(self.peer, self.size_bytes, more_bytes)
        self.set(self.size_bytes + more_bytes)

    def set(self, size_bytes: int) -> None:
        """Set the reservation's size without a check, because the memory is already in use."""
        if size_bytes != self.size_bytes:
            self._memory.change(self.peer, 0, size_bytes - self.size_bytes)
            self.size_bytes = size_bytes

    def move(self) -> "MemoryReservation":
        """Move the reserved memory to a new reservation, close this one, and return the new one."""
        moved = MemoryReservation(self._memory, self.peer)
        moved.size_bytes, self.size_bytes = self.size_bytes, 0
        self._open = False
        return moved

    def close(self) -> None:
        """Release the reservation. Idempotent."""
        if self._open:
            self._open = False
            self._memory.change(self.peer, -1, -self.size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
