"""Tests of when objectives are evaluated while Tailspan runs."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from server.evaluating import Evaluating
from telemetry.requests import RequestTimeline
from telemetry.tasks import Task

NS = 10**9


class Counting:
    """An evaluator that counts its evaluations."""

    def __init__(self) -> None:
        self.number = 0

    def evaluate(self, _now_s: int) -> list[Any]:
        """Return no incidents."""
        self.number += 1
        return []


def evaluations(*stored: list[RequestTimeline]) -> int:
    """Return the number of evaluations while these batches are stored, within less than 15 s."""
    evaluator = Counting()

    async def run() -> None:
        evaluating = Evaluating(evaluator, time.time_ns)  # type: ignore[arg-type]
        task = asyncio.create_task(evaluating.run(Task("evaluator")))
        while not evaluator.number:
            await asyncio.sleep(0.01)
        for batch in stored:
            evaluating.on_stored(batch, [])
            for _ in range(20):
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    return evaluator.number


def test_the_first_requests_that_have_just_ended_are_evaluated_at_once(
    request_row: Callable[..., RequestTimeline],
) -> None:
    """They complete a past that is sent at a start; later requests wait for the schedule."""
    now_ns = time.time_ns()
    old = request_row(received_unix_ns=now_ns - 600 * NS, e2e_s=1.0)
    new = request_row(received_unix_ns=now_ns - 5 * NS, e2e_s=1.0)
    assert evaluations([old]) == 1
    assert evaluations([old], [new]) == 2
    assert evaluations([old], [new], [new]) == 2
