"""Restart the explorer and the simulator when they end."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from server import children, http_check
from server.children import Child
from server.explorer_launch import Launch
from server.supervision import ChildEnded
from telemetry.durations import parse_s
from telemetry.tasks import Task

EXPLORER_START_S: Final = 60.0
FIRST_LOOK: Final = {
    "incident": "tenant_flood",
    "incident-before": "5m",
    "backfill": "20m",
    "rate": "2",
}
"""Options of `tailspan up --simulate`. They simulate 15 minutes of normal traffic, and then an open
incident of severity "page". With more traffic, the first page of the explorer would appear too late
(benchmarks/first_minute.py)."""


def first_past_s(now_unix_ns: int) -> tuple[int, int]:
    """Return the start and the end of the backfill, in unix seconds, for a simulator that starts
    now."""
    now_s = now_unix_ns // 10**9
    return now_s - round(parse_s(FIRST_LOOK["backfill"])), now_s


Ends = asyncio.Queue[tuple[Child, int]]


class _SupervisedChild:
    """A child process that is restarted when it ends.

    Args:
        ends: receives the child and its exit status when it ends.
    """

    def __init__(self, name: str, ends: Ends) -> None:
        self.child: Child | None = None
        self.task = Task(name)
        self._ends = ends

    @property
    def running(self) -> bool:
        return self.child is not None and self.child.running

    async def start(self) -> None:
        """Start the process, or raise ChildError."""
        raise NotImplementedError

    async def answers(self) -> bool:
        return True

    async def step(self) -> None:
        """Start the process if it does not run, and wait until it ends.

        Raises:
            ChildEnded, ChildError: the process ended, or cannot be started.
        """
        if not self.running:
            await self.start()
        if await self.answers():
            self.task.succeeded(time.time())
        if self.child is not None:
            status = await self.child.wait()
            self._ends.put_nowait((self.child, status))
            raise ChildEnded(f"it ended with status {status}; see {self.child.log}")


class SupervisedExplorer(_SupervisedChild):
    """The explorer's process."""

    def __init__(
        self, launch: Callable[[], Launch], url: Callable[[], str], logs: Path, ends: Ends
    ) -> None:
        super().__init__("explorer", ends)
        self._launch = launch
        self._url = url
        self._log = logs / "explorer.log"

    async def start(self) -> None:
        """Start the process."""
        start = self._launch()
        self.child = await children.start("explorer", start.command, start.environment, self._log)

    async def answers(self) -> bool:
        """Wait for a response. Return False if the process ended or took too long."""
        deadline = time.monotonic() + EXPLORER_START_S
        while self.running and time.monotonic() < deadline:
            if (await asyncio.to_thread(http_check.get, f"{self._url()}/_stcore/health")).ok:
                return True
            await asyncio.sleep(0.2)
        return False


class SupervisedSimulator(_SupervisedChild):
    """A simulated fleet, in its own process because the backfill would delay the collector."""

    def __init__(
        self, endpoint: Callable[[], str], token: str | None, logs: Path, ends: Ends
    ) -> None:
        super().__init__("simulator", ends)
        self._endpoint = endpoint
        self._environment: dict[str, str] = {}
        if token is not None:
            self._environment["OTEL_EXPORTER_OTLP_HEADERS"] = f"authorization=Bearer%20{token}"
        self._log = logs / "simulator.log"

    async def start(self) -> None:
        """Start the process. Only the first start sends the backfill."""
        options = FIRST_LOOK if self.child is None else {**FIRST_LOOK, "backfill": "0"}
        self.child = await children.start(
            "simulator",
            children.own_command(
                # The address belongs to this machine, so the token does not cross the network.
                *("simulate", "--endpoint", self._endpoint(), "--insecure-credentials"),
                *(f"--{option}={value}" for option, value in options.items()),
            ),
            self._environment,
            self._log,
        )
