"""The explorer and the simulator: child processes that are started again when they end."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from server import children, probes
from server.children import Child
from server.explorer_launch import Launch
from server.supervision import ChildEnded
from telemetry.tasks import Task

EXPLORER_START_S: Final = 60.0
FIRST_LOOK: Final = {"incident": "tenant_flood", "incident-before": "12m"}
"""What `tailspan up --simulate` shows: a running incident that pages (tests/server)."""

Ends = asyncio.Queue[tuple[Child, int]]


class _KeptChild:
    """One child.

    Args:
        name: of the child and of its task.
        ends: where to put a child that ended by itself, with its status.
    """

    def __init__(self, name: str, ends: Ends) -> None:
        self.child: Child | None = None
        self.task = Task(name)
        self._ends = ends

    @property
    def running(self) -> bool:
        """Whether it has yet to end."""
        return self.child is not None and self.child.running

    async def start(self) -> None:
        """Start it.

        Raises:
            ChildError: it cannot be started.
        """
        raise NotImplementedError

    async def answers(self) -> bool:
        """Return whether it works, once that is known."""
        return True

    async def step(self) -> None:
        """Start it where it has ended, and wait for its end.

        Raises:
            ChildEnded: it ended.
            ChildError: it cannot be started.
        """
        if not self.running:
            await self.start()
        if await self.answers():
            self.task.succeeded(time.time())
        if self.child is not None:
            status = await self.child.wait()
            self._ends.put_nowait((self.child, status))
            raise ChildEnded(f"it ended with status {status}; see {self.child.log}")


class KeptExplorer(_KeptChild):
    """The explorer.

    Args:
        launch: returns its command line and environment.
        url: returns where it listens.
        logs: the folder of its log.
        ends: as of `_KeptChild`.
    """

    def __init__(
        self, launch: Callable[[], Launch], url: Callable[[], str], logs: Path, ends: Ends
    ) -> None:
        super().__init__("explorer", ends)
        self._launch = launch
        self._url = url
        self._log = logs / "explorer.log"

    async def start(self) -> None:
        """Start it."""
        start = self._launch()
        self.child = await children.start("explorer", start.command, start.environment, self._log)

    async def answers(self) -> bool:
        """Wait until it serves; False when it ended or took too long."""
        deadline = time.monotonic() + EXPLORER_START_S
        while self.running and time.monotonic() < deadline:
            if (await asyncio.to_thread(probes.get, f"{self._url()}/_stcore/health")).ok:
                return True
            await asyncio.sleep(0.2)
        return False


class KeptSimulator(_KeptChild):
    """A simulated fleet, in a process of its own: its backfill would starve the collector.

    Args:
        endpoint: returns where it sends.
        token: the bearer token that it shows.
        logs: the folder of its log.
        ends: as of `_KeptChild`.
    """

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
        """Start it; after its first start without the past, which the first one sent."""
        options = FIRST_LOOK if self.child is None else {**FIRST_LOOK, "backfill": "0"}
        self.child = await children.start(
            "simulator",
            children.ourselves(
                *("simulate", "--endpoint", self._endpoint()),
                *(f"--{option}={value}" for option, value in options.items()),
            ),
            self._environment,
            self._log,
        )
