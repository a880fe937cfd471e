import pytest

from collector.counters import Counters
from collector.errors import IntakeBusyError
from collector.limits.message_memory import MessageMemory
from collector.limits.sender_limits import CollectorLimits


def _memory(counters: Counters, **limits: int) -> MessageMemory:
    given = {
        "max_waiting_bytes": 100,
        "max_peer_waiting_bytes": 60,
        "max_waiting_messages": 3,
        "max_peer_waiting_messages": 2,
    }
    return MessageMemory(CollectorLimits(**{**given, **limits}), counters)


def test_bytes_are_limited_by_sender_and_in_all() -> None:
    counters = Counters()
    memory = _memory(counters)
    first, second, other = memory.enter("a"), memory.enter("a"), memory.enter("b")
    first.grow(40)
    second.grow(20)
    with pytest.raises(IntakeBusyError, match=r"40 bytes from this address wait .* exceed 60"):
        second.grow(1)
    other.grow(40)
    with pytest.raises(
        IntakeBusyError, match="60 bytes wait to be stored, and 41 more would exceed 100"
    ):
        other.grow(1)
    assert counters.waiting_bytes == 100
    first.close()
    other.grow(1)
    assert counters.waiting_bytes == 61


def test_messages_are_limited_by_sender_and_in_all() -> None:
    """The limits include messages whose first byte has not arrived."""
    memory = _memory(Counters())
    held = [memory.enter("a"), memory.enter("a")]
    with pytest.raises(IntakeBusyError, match="2 messages from this address wait"):
        memory.enter("a")
    held.append(memory.enter("b"))
    with pytest.raises(IntakeBusyError, match="3 messages wait"):
        memory.enter("c")
    for reservation in held:
        reservation.close()
    assert not memory._peers


def test_a_message_of_any_size_is_accepted_if_the_queue_is_empty() -> None:
    counters = Counters()
    with _memory(counters).enter("a") as reservation:
        reservation.grow(1000)
        reservation.set(10)
        assert counters.waiting_bytes == 10
    assert counters.report().waiting_messages == counters.waiting_bytes == 0


def test_a_room_that_was_moved_is_released_once() -> None:
    counters = Counters()
    with _memory(counters).enter("a") as reservation:
        reservation.grow(10)
        moved = reservation.move()
    assert counters.waiting_bytes == 10
    moved.close()
    moved.close()
    assert counters.report().waiting_messages == counters.waiting_bytes == 0
