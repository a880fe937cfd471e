import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from server.api import worker_pool
from server.api.limits import ApiLimits
from server.api.worker_pool import TooLongError, WorkerEndedError, WorkerPool, WorkersBusyError

# A process that responds like `cli.questions.worker`, without its imports.
STAND_IN = """
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if "sleep" in asked:
        time.sleep(asked["sleep"])
    if "log" in asked:
        print("asked", file=open(asked["log"], "a"), flush=True)
    if "end" in asked:
        os._exit(3)
    body = json.dumps({"pid": os.getpid(), **asked}).encode()
    head = {"status": 200, "type": "application/json", "bytes": len(body)}
    if "defect" in asked:
        head["defect"] = asked["defect"]
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\\n" + body)
    sys.stdout.flush()
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(worker_pool, "MODULE", "stand_in")


@asynccontextmanager
async def pool_of(**limits: Any) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool({}, ApiLimits(**limits))
    try:
        yield pool
    finally:
        await pool.close()


async def _pid(pool: WorkerPool, **about: Any) -> int:
    async with pool.reply_to(about) as reply:
        found: int = json.loads(reply.body)["pid"]
        return found


def _gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_process_answers_several_questions_and_is_replaced_after_its_end() -> None:
    async def ask() -> None:
        async with pool_of() as pool:
            (pid,) = {await _pid(pool) for _ in range(3)}
            os.kill(pid, signal.SIGKILL)
            assert _gone(pid)
            assert await _pid(pool) != pid
            with pytest.raises(WorkerEndedError, match="ended"):
                await _pid(pool, end=True)
            assert await _pid(pool)

    asyncio.run(ask())


def test_a_question_that_ends_its_process_is_asked_once(tmp_path: Path) -> None:
    """It would also end the next process, for example because it needs too much memory."""
    log = tmp_path / "log"

    async def ask() -> None:
        async with pool_of() as pool:
            await _pid(pool)
            with pytest.raises(WorkerEndedError, match="ended"):
                await _pid(pool, log=str(log), end=True)

    asyncio.run(ask())
    assert log.read_text().splitlines() == ["asked"]


def test_questions_at_the_same_time_have_separate_processes() -> None:
    async def ask() -> set[int]:
        async with pool_of(questions=2) as pool:
            return set(await asyncio.gather(*(_pid(pool, sleep=0.3) for _ in range(4))))

    assert len(asyncio.run(ask())) == 2


def test_more_questions_than_allowed_are_refused_at_once() -> None:
    async def ask() -> list[int | BaseException]:
        async with pool_of(questions=1, waiting=2) as pool:
            asking = (_pid(pool, sleep=0.2) for _ in range(10))
            return await asyncio.gather(*asking, return_exceptions=True)

    found = asyncio.run(ask())
    refused = [each for each in found if isinstance(each, WorkersBusyError)]
    assert len(refused) == 7
    assert "more than 3 questions at a time; allowed: 3;" in str(refused[0])


def test_a_question_that_takes_too_long_is_ended_with_its_process() -> None:
    """A question that only waited for it gets a retryable response."""

    async def ask() -> int:
        async with pool_of(questions=1, seconds=1.0) as pool:
            pid = await _pid(pool)
            asking = (_pid(pool, sleep=60) for _ in range(2))
            first, second = await asyncio.gather(*asking, return_exceptions=True)
            assert isinstance(first, TooLongError)
            assert "more than 1 s; ask about a shorter range" in str(first)
            assert isinstance(second, WorkersBusyError)
            assert await _pid(pool) != pid
            return pid

    assert _gone(asyncio.run(ask()))


def test_a_cancelled_question_ends_its_process() -> None:
    async def ask() -> int:
        async with pool_of(questions=1) as pool:
            pid = await _pid(pool)
            asking = asyncio.create_task(_pid(pool, sleep=60))
            await asyncio.sleep(0.1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await _pid(pool)
            return pid

    assert _gone(asyncio.run(ask()))


def test_no_process_starts_after_the_end() -> None:
    async def ask() -> tuple[list[int | BaseException], int]:
        pool = WorkerPool({}, ApiLimits(questions=1))
        asking = [asyncio.create_task(_pid(pool, sleep=60)) for _ in range(3)]
        await asyncio.sleep(0.2)
        await pool.close()
        return await asyncio.gather(*asking, return_exceptions=True), len(pool._all)

    found, left = asyncio.run(ask())
    assert [type(each) for each in found] == [WorkerEndedError] * 3
    assert left == 0


def test_an_idle_process_ends() -> None:
    async def ask() -> None:
        async with pool_of(idle_s=0.1) as pool:
            pid = await _pid(pool)
            assert await asyncio.to_thread(_gone, pid)
            assert await _pid(pool) != pid

    asyncio.run(ask())


def test_the_place_of_a_defect_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> None:
        async with pool_of() as pool:
            await _pid(pool, defect="KeyError in stats.py, line 3")

    with caplog.at_level(logging.ERROR):
        asyncio.run(ask())
    assert "KeyError in stats.py, line 3" in caplog.text
