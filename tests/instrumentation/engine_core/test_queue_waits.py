from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailspan_vllm.engine_core.queue_waits import HoldReason, Obstacle, Queue, QueueWait
from tailspan_vllm.request.parts import HeldParts, RequestQueueParts

NO_HOLDS: dict[str, HoldReason] = {}


def test_a_request_that_is_let_in_at_once_waited_for_the_step() -> None:
    queue = Queue()
    queue.decided(10.0, None, NO_HOLDS)
    queue.joined("r", 10.25)
    queue.decided(11.0, None, NO_HOLDS)
    assert queue.admitted("r", 11.0) == QueueWait(
        10.25, RequestQueueParts(0.0, 0.0, 0.0, 0.0, 0.75)
    )


def test_obstacles_follow_one_another() -> None:
    queue = Queue()
    queue.joined("r", 9.5)
    queue.decided(10.0, Obstacle.SEATS, NO_HOLDS)
    queue.decided(12.0, Obstacle.KV, NO_HOLDS)
    queue.decided(13.0, Obstacle.BUDGET, NO_HOLDS)
    queue.joined("later", 13.25)
    queue.decided(13.5, None, NO_HOLDS)
    assert queue.admitted("r", 13.5) == QueueWait(9.5, RequestQueueParts(2.0, 1.0, 0.5, 0.0, 0.5))
    assert queue.admitted("later", 13.5) == QueueWait(
        13.25, RequestQueueParts(0.0, 0.0, 0.0, 0.0, 0.25)
    )


def test_a_held_request_does_not_wait_for_a_slot() -> None:
    queue = Queue()
    queue.joined("held", 10.0)
    queue.joined("other", 10.0)
    queue.decided(10.0, Obstacle.SEATS, NO_HOLDS)
    queue.decided(11.0, Obstacle.SEATS, {"held": HoldReason.GRAMMAR})
    queue.decided(14.0, Obstacle.SEATS, NO_HOLDS)
    queue.decided(16.0, None, NO_HOLDS)
    assert queue.admitted("held", 16.0) == QueueWait(
        10.0, RequestQueueParts(3.0, 0.0, 0.0, 3.0, 0.0), HeldParts(0.0, 3.0, 0.0)
    )
    assert queue.admitted("other", 16.0) == QueueWait(
        10.0, RequestQueueParts(6.0, 0.0, 0.0, 0.0, 0.0)
    )


def test_an_aborted_request_waited_until_its_abort() -> None:
    queue = Queue()
    for name in ("gone", "held", "stays"):
        queue.joined(name, 9.5)
    queue.decided(10.0, Obstacle.KV, {"held": HoldReason.GRAMMAR})
    assert queue.left("gone", 10.25) == QueueWait(9.5, RequestQueueParts(0.0, 0.25, 0.0, 0.0, 0.5))
    assert queue.left("held", 10.5) == QueueWait(
        9.5, RequestQueueParts(0.0, 0.0, 0.0, 0.5, 0.5), HeldParts(0.0, 0.5, 0.0)
    )
    queue.joined("late", 10.5)
    assert queue.left("late", 10.75) == QueueWait(10.5, RequestQueueParts(0.0, 0.0, 0.0, 0.0, 0.25))
    queue.decided(11.0, None, NO_HOLDS)
    assert queue.admitted("stays", 11.0) == QueueWait(
        9.5, RequestQueueParts(0.0, 1.0, 0.0, 0.0, 0.5)
    )


def test_an_unseen_request_has_no_parts() -> None:
    queue = Queue()
    queue.joined("gone", 10.0)
    queue.decided(10.0, Obstacle.KV, NO_HOLDS)
    queue.left("gone", 10.5)
    queue.decided(11.0, None, NO_HOLDS)
    assert queue.admitted("gone", 11.0) is None
    assert queue.admitted("unseen", 11.0) is None
    assert queue.left("unseen", 11.0) is None
    assert not len(queue)


def test_the_reasons_of_a_held_request_follow_one_another() -> None:
    """A request may wait for its grammar, then its adapter, and then for its cache."""
    queue = Queue()
    queue.joined("r", 9.5)
    assert queue.decided(10.0, Obstacle.SEATS, {"r": HoldReason.GRAMMAR}) == {
        "r": HoldReason.GRAMMAR
    }
    assert queue.decided(12.0, Obstacle.SEATS, {"r": HoldReason.GRAMMAR}) == {}
    assert queue.decided(13.0, None, {"r": HoldReason.ADAPTER}) == {"r": HoldReason.ADAPTER}
    queue.decided(14.0, None, {"r": HoldReason.OTHER})
    queue.decided(14.5, Obstacle.BUDGET, NO_HOLDS)
    queue.decided(15.5, None, {"r": HoldReason.KV_LOAD})
    queue.decided(17.0, None, NO_HOLDS)
    over = queue.admitted("r", 17.0)
    assert over == QueueWait(
        9.5, RequestQueueParts(0.0, 0.0, 1.0, 6.0, 0.5), HeldParts(1.5, 3.0, 1.0)
    )


def test_without_reasons_the_held_time_is_not_divided() -> None:
    queue = Queue()
    queue.holds_known = False
    queue.joined("r", 10.0)
    queue.decided(10.0, None, {"r": HoldReason.OTHER})
    queue.decided(12.0, None, NO_HOLDS)
    assert queue.admitted("r", 12.0) == QueueWait(
        10.0, RequestQueueParts(0.0, 0.0, 0.0, 2.0, 0.0), None
    )


@dataclass(frozen=True)
class Decision:
    """A decision of the scheduler; `after` is the time since the previous one."""

    after: int
    coming: int
    leaving: int
    admitted: int
    obstacle: Obstacle | None
    held: int
    hold: HoldReason


DECISIONS = st.lists(
    st.builds(
        Decision,
        after=st.integers(1, 5),
        coming=st.integers(0, 2),
        leaving=st.integers(0, 1),
        admitted=st.integers(0, 2),
        obstacle=st.sampled_from([None, *Obstacle]),
        held=st.integers(0, 3),
        hold=st.sampled_from(HoldReason),
    ),
    max_size=30,
)


@given(DECISIONS)
def test_sums_agree_with_going_through_the_decisions(decisions: list[Decision]) -> None:
    queue, now = Queue(), 0.0
    waits: dict[str, list[float]] = {}  # seconds of each waiting request, by obstacle
    in_force: tuple[Obstacle | None, dict[str, HoldReason]] = (None, NO_HOLDS)
    holds: dict[str, list[float]] = {}  # seconds of each waiting request, by reason
    came: dict[str, float] = {}
    for number, each in enumerate(decisions):
        before, now = now, now + each.after
        for place in range(each.coming):
            queue.joined(f"{number}.{place}", now - 0.5)
        obstacle, held = in_force
        gave_up = list(waits)[-each.leaving :] if each.leaving else []
        for name, parts in waits.items():
            place = Obstacle.HELD if name in held else 4 if obstacle is None else obstacle
            passed_s = (now - before) / (2 if name in gave_up else 1)
            parts[place] += passed_s
            if name in held:
                holds[name][held[name]] += passed_s
        for name in gave_up:
            over = queue.left(name, (before + now) / 2)
            assert over is not None
            assert over.parts == pytest.approx(tuple(waits.pop(name)))
            assert over.held == pytest.approx(tuple(holds.pop(name)[:3]))
        for place in range(each.coming):
            waits[f"{number}.{place}"] = [0.0, 0.0, 0.0, 0.0, 0.5]
            came[f"{number}.{place}"] = now - 0.5
            holds[f"{number}.{place}"] = [0.0] * len(HoldReason)
        let_in = list(waits)[: each.admitted]
        held = dict.fromkeys(list(waits)[each.admitted :][: each.held], each.hold)
        queue.decided(now, each.obstacle, held)
        in_force = (each.obstacle, held)
        for name in let_in:
            over = queue.admitted(name, now)
            assert over is not None
            assert over.queued == came[name]
            assert over.parts == pytest.approx(tuple(waits.pop(name)))
            assert over.held == pytest.approx(tuple(holds.pop(name)[:3]))
            assert sum(over.held or ()) <= over.parts.held + 1e-9
            assert sum(over.parts) == pytest.approx(now - came[name])
