from functools import partial

import pytest

from collector.limits.fair_queue import FairQueue


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_expensive_sender_waits_for_a_cheap_one() -> None:
    clock, order = _Clock(), list[str]()
    queue = FairQueue(clock=clock)

    def work(peer: str, seconds: float) -> None:
        order.append(peer)
        clock.now += seconds

    for peer, seconds in (("dear", 2.0), ("cheap", 1.0)):
        for _ in range(6):
            queue.put(peer, partial(work, peer, seconds))
    for _ in range(9):
        queue._run_next()
    assert (order.count("dear"), order.count("cheap")) == (3, 6)
    assert order[:2] == ["dear", "cheap"]


def test_a_new_sender_starts_at_the_time_of_the_last_served_one() -> None:
    """If a new sender started at zero, it would be served alone for a long time."""
    clock, order = _Clock(), list[str]()
    queue = FairQueue(clock=clock)

    def work(peer: str) -> None:
        order.append(peer)
        clock.now += 1

    for _ in range(4):
        queue.put("old", lambda: work("old"))
    for _ in range(2):
        queue._run_next()
    for _ in range(4):
        queue.put("new", lambda: work("new"))
    for _ in range(6):
        queue._run_next()
    assert order == ["old", "old", "new", "old", "new", "old", "new", "new"]


def test_results_and_errors_reach_the_waiting_caller() -> None:
    queue = FairQueue()
    fine, none = queue.put("a", lambda: 1), queue.put("a", lambda: None)
    failed = queue.put("a", lambda: [][0])
    for _ in range(4):  # one more than the queue contains
        queue._run_next()
    assert fine.result(0) == 1
    assert none.result(0) is None
    with pytest.raises(IndexError):
        failed.result(0)
    assert not queue._senders


def test_refused_or_cancelled_work_is_not_done() -> None:
    queue, done = FairQueue(), list[int]()
    cancelled = queue.put("a", lambda: done.append(1))
    assert cancelled.cancel()
    queue._run_next()
    refused = queue.put("b", lambda: done.append(2))
    queue.refuse_all(lambda: RuntimeError("stopping"))
    queue._run_next()
    with pytest.raises(RuntimeError, match="stopping"):
        refused.result(0)
    assert done == []


def test_a_sender_with_too_much_load_is_passed_over() -> None:
    queue, order = FairQueue(max_load=10), list[str]()

    def work(peer: str, load: int) -> None:
        order.append(peer)
        queue.load(peer, load)

    for _ in range(2):
        queue.put("large", partial(work, "large", 12))
    for _ in range(3):
        queue.put("small", partial(work, "small", 1))
    queue.run()
    assert order == ["large", "small", "small", "small"]
    queue.load("large", -2)
    queue.run()
    assert len(order) == 4
    queue.load("large", -1)
    queue.run()
    assert order[4:] == ["large"]
    queue.load("large", -21)
    queue.load("small", -3)
    assert not queue._loads


def test_a_sender_has_room_below_the_limit() -> None:
    queue = FairQueue(max_load=10)
    assert queue.has_room("a")
    queue.load("a", 9)
    assert queue.has_room("a")
    queue.load("a", 1)
    assert not queue.has_room("a")
    assert queue.has_room("b")
    queue.load("a", -10)
    assert queue.has_room("a")


def test_the_queue_waits_until_its_work_is_done() -> None:
    queue = FairQueue(max_load=10)
    assert not queue.has_work()
    queue.load("a", 10)
    queue.put("a", lambda: None)
    queue.run()
    assert queue.has_work()
    queue.load("a", -10)
    queue.run()
    assert not queue.has_work()
