"""Supervise components.

Each failure is reported, and components are restarted with a back-off. `start` runs a component on
the event loop. `add` adds a thread or process that restarts itself.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from telemetry.store_errors import StoreError
from telemetry.tasks import Task

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
"""Maximum pause before a restart. The pause doubles after each failure."""

_log = logging.getLogger(__name__)


class Supervisor:
    """Runs components on the event loop, and reports the state of all components.

    Args:
        chance: returns random numbers in [0, 1). They vary the pauses, so that components do not
            restart at the same time.
    """

    def __init__(
        self,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
        clock_unix_s: Callable[[], float] = time.time,
    ) -> None:
        self._pause = pause
        self._chance = chance
        self._clock_unix_s = clock_unix_s
        self._tasks: dict[str, Task] = {}
        self._running: list[asyncio.Task[None]] = []

    def add(self, *tasks: Task) -> None:
        """Include components that this supervisor does not run."""
        for task in tasks:
            task.begun_unix_s = task.begun_unix_s or self._clock_unix_s()
            self._tasks[task.name] = task

    def start(
        self,
        task: Task,
        work: Callable[[], Awaitable[None]],
        *,
        every_s: float | None = None,
    ) -> None:
        """Run a component until `stop` is called.

        Args:
            work: the component's work. If `every_s` is set, the work is one step. If it is not set,
                the work is an endless loop.
            every_s: the pause in seconds after a successful step.
        """
        self.add(task)
        self._running.append(asyncio.create_task(self._run(task, work, every_s), name=task.name))

    async def stop(self) -> None:
        """Cancel the components on the event loop, and wait until they have ended."""
        for each in self._running:
            each.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running.clear()

    def report(self) -> list[tuple[Task, str | None]]:
        """Maps each component's name to its failure. The value is None if the component works."""
        now = self._clock_unix_s()
        return [
            (self._tasks[name], self._tasks[name].failure_reason(now))
            for name in sorted(self._tasks)
        ]

    @property
    def vital(self) -> list[str]:
        """The failures of components that are needed to receive or store telemetry."""
        return list(_words((task, why) for task, why in self.report() if task.vital))

    @property
    def degraded(self) -> list[str]:
        """The failures of the components that are not vital."""
        return list(_words((task, why) for task, why in self.report() if not task.vital))

    async def _run(
        self, task: Task, work: Callable[[], Awaitable[None]], every_s: float | None
    ) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            successes, begun_s = task.last_success_unix_s, time.monotonic()
            try:
                await work()
                if every_s is not None:
                    task.succeeded(self._clock_unix_s())
                    pause_s = FIRST_PAUSE_S
                    await self._pause(every_s)
                    continue
                raise EndedByItself("it returned")
            except asyncio.CancelledError as error:
                current = asyncio.current_task()
                if current is None or current.cancelling():
                    raise
                failure: Exception = EndedByItself("the operation that it waited for was cancelled")
                failure.__cause__ = error
            except Exception as error:
                failure = error
            task.failed(failure)
            lasted = time.monotonic() - begun_s > LONGEST_PAUSE_S
            if lasted or task.last_success_unix_s != successes:
                pause_s = FIRST_PAUSE_S
            wait_s = pause_s * (0.5 + self._chance() / 2)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            # Only defects are logged with a traceback.
            _log.warning(
                "%s failed (%s: %s); restarting in %.1f s",
                *(task.name, type(failure).__name__, failure, wait_s),
                exc_info=None if isinstance(failure, (StoreError, ChildEnded)) else failure,
            )
            await self._pause(wait_s)


class ChildEnded(Exception):  # noqa: N818
    """A child process ended. Its log contains the reason."""


class EndedByItself(Exception):  # noqa: N818
    """A component that should run until it is stopped has ended."""


def _words(found: Iterable[tuple[Task, str | None]]) -> Iterable[str]:
    return (f"{task.name} ({why})" for task, why in found if why is not None)
