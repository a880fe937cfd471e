"""Processes that compute the answers of the API.

These processes are separate from the process that receives telemetry. A worker has low priority and
answers one question at a time. It is killed when a question exceeds its time limit, when its client
disconnects, or after some idle time.
"""

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from server.api.limits import ApiLimits
from telemetry import child_process

MODULE: Final = "cli.questions.worker"
"""The name of the module that a worker runs. It is not imported, because `server` must not import
`cli`."""
HEAD_BYTES: Final = 2**20
"""Maximum length of the line that a worker sends before an answer."""

_END_WITH_PARENT: Final = Path(__file__).parents[1] / "end_with_parent.py"

_log = logging.getLogger(__name__)


class WorkersBusyError(Exception):
    """Too many questions wait, or no worker was free in time."""


class TooLongError(Exception):
    """The question took too long."""


class WorkerEndedError(Exception):
    """The worker ended while it computed the answer."""


class _NotReceivedError(WorkerEndedError):
    """The worker ended before it received the question."""


@dataclass(frozen=True, slots=True)
class WorkerReply:
    """The answer of a worker."""

    head: Mapping[str, Any]
    """The reply's `status`, `type` and `bytes` (`cli.questions.worker`)."""
    body: bytes


class WorkerPool:
    """Starts the workers, sends them questions and ends them. `environment` is added to the
    environment of the workers."""

    def __init__(self, environment: Mapping[str, str], limits: ApiLimits) -> None:
        self.limits = limits
        self._environment = {**environment, "TAILSPAN_CONFIG": os.devnull}
        self._turn = asyncio.Semaphore(limits.questions)
        self._open = 0
        self._closed = False
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def reply_to(self, message: Mapping[str, Any]) -> AsyncIterator[WorkerReply]:
        """Send a question to a worker, and yield the answer.

        The question counts towards the limit until the context ends.

        Raises:
            WorkersBusyError, TooLongError, WorkerEndedError: the question was not answered.
        """
        most = self.limits.questions + self.limits.waiting
        if self._open >= most:
            raise WorkersBusyError(
                f"more than {most} questions at a time; allowed: {most}; send the question again"
                " later"
            )
        self._open += 1
        try:
            yield await self._in_time(message)
        finally:
            self._open -= 1

    def kill(self) -> None:
        """Kill all workers."""
        self._idle.clear()
        for worker in list(self._all):
            self._end(worker)

    async def close(self) -> None:
        """Kill all workers, and wait for their end. Start no new workers."""
        self._closed = True
        self.kill()
        await asyncio.gather(*self._ending)

    async def _in_time(self, message: Mapping[str, Any]) -> WorkerReply:
        seconds, began_s = self.limits.seconds, None
        try:
            async with asyncio.timeout(seconds), self._turn:
                began_s = time.monotonic()
                return await self._answer(message)
        except TimeoutError as error:
            if began_s is None or time.monotonic() - began_s < seconds / 2:
                raise WorkersBusyError(
                    f"no answer within {seconds:g} s, because other questions were answered first;"
                    " send the question again later"
                ) from error
            raise TooLongError(
                f"the answer took more than {seconds:g} s; ask about a shorter range,"
                " or start Tailspan with a higher --api-timeout"
            ) from error

    async def _answer(self, message: Mapping[str, Any]) -> WorkerReply:
        if self._idle:
            with suppress(_NotReceivedError):  # the idle worker has ended, so start a new worker
                return await self._ask(self._idle.pop(), message)
        worker = await self._started()
        return await self._ask(worker, message)

    async def _ask(self, worker: "_Worker", message: Mapping[str, Any]) -> WorkerReply:
        worker.keep()
        try:
            reply = await worker.ask(message)
        except BaseException:
            self._end(worker)
            raise
        self._idle.append(worker)
        worker.end_later(self.limits.idle_s, self._retire)
        return reply

    def _retire(self, worker: "_Worker") -> None:
        self._idle.remove(worker)
        self._end(worker)

    def _end(self, worker: "_Worker") -> None:
        if worker in self._all:
            self._all.remove(worker)
            ending = asyncio.get_running_loop().create_task(worker.end())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def _started(self) -> "_Worker":
        if self._closed:
            raise WorkerEndedError("Tailspan is stopping; send the question again later")
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(_END_WITH_PARENT), str(os.getpid())),
                *child_process.command(MODULE),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=child_process.environment(self._environment),
                limit=HEAD_BYTES,
                start_new_session=True,
            )
        except OSError as error:  # too little memory or too many processes, perhaps temporarily
            raise WorkerEndedError(f"a process cannot be started: {error.strerror}") from error
        worker = _Worker(process)
        self._all.add(worker)
        return worker


class _Worker:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._timer: asyncio.TimerHandle | None = None

    def end_later(self, after_s: float, end: Any) -> None:
        """Call `end` in `after_s` seconds, unless `keep` is called earlier."""
        self._timer = asyncio.get_running_loop().call_later(after_s, end, self)

    def keep(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def ask(self, message: Mapping[str, Any]) -> WorkerReply:
        """Send a question to the worker. Raise WorkerEndedError if the worker's process ends.

        If the worker has received the question, the question is not sent again: it may have been
        the reason for the end, for example by needing too much memory.
        """
        to, back = self._process.stdin, self._process.stdout
        assert to is not None
        assert back is not None
        try:
            to.write(json.dumps(message).encode() + b"\n")
            if to.is_closing():
                raise _NotReceivedError("the process that computes the answer ended")
            await to.drain()
            head = json.loads(await back.readuntil())
            body = await back.readexactly(head["bytes"])
        except (OSError, EOFError, ValueError) as error:
            raise WorkerEndedError("the process that computes the answer ended") from error
        if defect := head.get("defect"):
            _log.error("a question failed: %s", defect)
        return WorkerReply(head, body)

    async def end(self) -> None:
        self.keep()
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
