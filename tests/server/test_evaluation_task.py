import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from server.evaluation_task import EvaluationTask
from store.leases import EVALUATION, LeaseTerm
from telemetry.requests import RequestTimeline
from telemetry.tasks import Task

NS = 10**9


class Counting:
    def __init__(self) -> None:
        self.number = self.followed = self.taken_over = 0

    def take_over(self) -> None:
        self.taken_over += 1

    def follow(self) -> None:
        self.followed += 1

    def evaluate(self, _now_s: int) -> list[Any]:
        self.number += 1
        return []


class Held:
    def __init__(self, term: LeaseTerm | None = LeaseTerm(EVALUATION, 1)) -> None:  # noqa: B008 -- frozen
        self.term = term

    @contextmanager
    def acting(self, _name: str) -> Iterator[LeaseTerm | None]:
        yield self.term


def test_the_first_requests_that_have_just_ended_are_evaluated_at_once(
    request_row: Callable[..., RequestTimeline],
) -> None:
    """Requests of a simulated past, and later new requests, wait for the schedule of 15 s."""
    now_ns = time.time_ns()
    old = request_row(received_unix_ns=now_ns - 600 * NS, e2e_s=1.0)
    new = request_row(received_unix_ns=now_ns - 5 * NS, e2e_s=1.0)
    evaluator, evaluations = Counting(), []

    async def run() -> None:
        evaluating = EvaluationTask(evaluator, time.time_ns, Held())  # type: ignore[arg-type]
        task = asyncio.create_task(evaluating.run(Task("evaluator")))
        while not evaluator.number:
            await asyncio.sleep(0.01)
        for row in (old, new, new):
            evaluating.on_stored([row], [])
            for _ in range(20):
                await asyncio.sleep(0.01)
            evaluations.append(evaluator.number)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert evaluations == [1, 2, 2]


def test_only_the_holder_of_the_lease_evaluates() -> None:
    evaluator, held, evaluated = Counting(), Held(None), []
    evaluating = EvaluationTask(
        evaluator,  # type: ignore[arg-type]
        time.time_ns,
        held,  # type: ignore[arg-type]
        lambda: evaluated.append(True),
    )
    for term in (
        None,
        LeaseTerm(EVALUATION, 3),
        LeaseTerm(EVALUATION, 3),
        None,
        LeaseTerm(EVALUATION, 5),
    ):
        held.term = term
        asyncio.run(evaluating.step())
        # Only an evaluation by this process sets `evaluated_unix_s`.
        assert (evaluating.evaluated_unix_s is None) == (evaluator.number == 0)
    assert (evaluator.number, evaluator.followed) == (3, 2)
    assert evaluator.taken_over == 2  # once per term
    assert len(evaluated) == 5  # the holder of another lease may send notifications


def test_a_taken_lease_is_used_at_once() -> None:
    evaluator, held = Counting(), Held(None)

    async def run() -> None:
        evaluating = EvaluationTask(evaluator, time.time_ns, held)  # type: ignore[arg-type]
        task = asyncio.create_task(evaluating.run(Task("evaluator")))
        while not evaluator.followed:
            await asyncio.sleep(0.01)
        held.term = LeaseTerm(EVALUATION, 2)
        evaluating.evaluate_soon()
        async with asyncio.timeout(5):
            while not evaluator.number:
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
