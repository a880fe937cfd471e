import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from server.supervision import FIRST_PAUSE_S, LONGEST_PAUSE_S, Supervisor
from telemetry.store_errors import StoreUnavailable
from telemetry.tasks import Task


class Enough(Exception):  # noqa: N818 -- named for the condition
    """An exception that ends a loop."""


def pauses_of(
    work: Callable[[], Awaitable[None]],
    times: int,
    task: Task,
    *,
    every_s: float | None = None,
    chance: float = 1.0,
) -> list[float]:
    """Return the first pauses between the attempts of a part."""
    paused: list[float] = []

    async def run() -> None:
        done = asyncio.Event()

        async def pause(seconds: float) -> None:
            paused.append(seconds)
            if len(paused) >= times:
                done.set()
                await asyncio.Event().wait()

        supervisor = Supervisor(pause=pause, chance=lambda: chance, clock_unix_s=lambda: 1000.0)
        supervisor.start(task, work, every_s=every_s)
        await asyncio.wait_for(done.wait(), 30)
        await supervisor.stop()

    asyncio.run(run())
    return paused


async def failing() -> None:
    raise KeyError("secret-of-a-tenant")


def test_pauses_double_up_to_a_minute_and_are_jittered() -> None:
    """A pause is at least half of its nominal length, and jitter spreads the retries."""
    assert pauses_of(failing, 9, Task("a")) == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert pauses_of(failing, 3, Task("a"), chance=0.0) == [0.5, 1, 2]
    assert (FIRST_PAUSE_S, LONGEST_PAUSE_S) == (1, 60)


def test_a_failure_is_counted_and_named_until_the_next_success() -> None:
    """The type is logged without the message, which may contain parts of a request."""
    task = Task("evaluator")
    seen: list[str | None] = []

    async def work() -> None:
        seen.append(task.problem)
        if len(seen) == 2:
            raise KeyError("secret-of-a-tenant")

    assert pauses_of(work, 4, task, every_s=15) == [15, 1, 15, 15]
    assert seen == [None, None, "KeyError", None]
    assert (task.failures, task.problem, task.last_success_unix_s) == (1, None, 1000.0)


def test_a_loop_that_returns_has_failed() -> None:
    async def ends() -> None:
        return

    async def is_cancelled() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    for work in (ends, is_cancelled):
        task = Task("loop")
        assert pauses_of(work, 2, task) == [1, 2]
        assert task.problem == "EndedByItself"


def test_outages_log_one_line_and_defects_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def away() -> None:
        raise StoreUnavailable("the database cannot be read: locked")

    for work, traced in ((away, False), (failing, True)):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            pauses_of(work, 1, Task("retention"))
        (record,) = caplog.records
        assert "retention failed (" in record.getMessage()
        assert "restarting in 1.0 s" in record.getMessage()
        assert bool(record.exc_info) is traced


def test_a_part_is_unhealthy_while_it_fails_has_ended_or_is_silent() -> None:
    now = [1000.0]
    supervisor = Supervisor(clock_unix_s=lambda: now[0])
    alive = [True]
    writer = Task("store writer", vital=True, alive=lambda: alive[0])
    evaluator = Task("evaluator", quiet_s=300)
    supervisor.add(writer, evaluator, Task("forwarder"))
    assert (supervisor.vital, supervisor.degraded) == ([], [])
    now[0] = 1301.0
    assert supervisor.degraded == ["evaluator (no success for 301 s)"]
    evaluator.succeeded(1300.0)
    assert supervisor.degraded == []
    evaluator.failed(ValueError("secret"))
    alive[0] = False
    assert supervisor.degraded == ["evaluator (ValueError)"]
    assert supervisor.vital == ["store writer (ended)"]
    assert [task.name for task, _ in supervisor.report()] == [
        "evaluator",
        "forwarder",
        "store writer",
    ]


def test_stopping_ends_running_parts() -> None:
    async def run() -> None:
        supervisor = Supervisor()
        supervisor.start(Task("a"), failing)
        supervisor.start(Task("b"), asyncio.Event().wait)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await asyncio.wait_for(supervisor.stop(), 30)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
