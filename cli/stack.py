"""All of Tailspan in one event loop: the collector, the exporter, and the explorer beside them."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sqlalchemy import Engine

from alerts.evaluator import Evaluator
from alerts.objectives import Objective, counted
from alerts.policy import load_policy
from cli import children, probes
from cli.addresses import authority
from cli.children import Child
from cli.evaluating import evaluate_for_ever
from collector.counters import Counters
from collector.hosting import AsgiHost, listen
from collector.server import Collector
from exporters.app import metrics_app
from exporters.prometheus import PrometheusExporter
from store.forgetting import forget_simulated
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline
from ui.launch import launch

EXPLORER_START_S = 60.0
GRACE_S = 5.0
MOST_NAMED = 16
NAMELESS = "a server that gives no name (service.instance.id)"


@dataclass(frozen=True, slots=True)
class Ports:
    """Where everything listens; 0 takes a free one."""

    grpc: int = 4317
    http: int = 4318
    metrics: int = 9464
    explorer: int = 8501


class Arrivals:
    """Notes who was heard of, so that a newcomer is told that it works."""

    def __init__(self) -> None:
        self.replicas: set[str] = set()
        """Their names: the first `MOST_NAMED`, for a sender may make them up without end."""
        self.requests = 0
        self.news = asyncio.Event()

    def on_stored(
        self, requests: Sequence[RequestTimeline], samples: Sequence[EngineSample]
    ) -> None:
        """Take note; called on the event loop."""
        self.requests += len(requests)
        if len(self.replicas) >= MOST_NAMED:
            return
        heard = {row.replica for row in requests} | {row.replica for row in samples}
        for name in sorted({name or NAMELESS for name in heard} - self.replicas):
            if len(self.replicas) < MOST_NAMED:
                self.replicas.add(name)
                self.news.set()


class Stack:
    """The running parts. `async with` starts them, and stops them in the reverse order.

    Args:
        engine: the database; it stays the caller's to dispose of.
        database_url: the same, for the explorer's process.
        host: the address to listen on.
        ports: where on it.
        explorer: whether to start the explorer.
        simulate: whether to start a simulated fleet.
    """

    def __init__(
        self,
        engine: Engine,
        database_url: str,
        host: str,
        ports: Ports,
        *,
        explorer: bool = True,
        simulate: bool = False,
        objectives: Sequence[Objective] = (),
    ) -> None:
        self.database = engine.url.render_as_string(hide_password=True)
        self.host = host
        self.simulate = simulate
        self.forgotten_rows = 0
        self.explorer: Child | None = None
        self.simulator: Child | None = None
        self._engine = engine
        self._database_url = database_url
        self._ports = ports
        self._with_explorer = explorer
        self._explorer_port = ports.explorer
        # Beside the database, which is a folder that we may write to.
        self._logs = Path(engine.url.database or "").parent
        self._writer = Writer(engine)
        counters = Counters()
        exporter = PrometheusExporter(counters.report, objectives=counted(tuple(objectives)))
        self.arrivals = Arrivals()
        self._evaluator = Evaluator(engine, objectives, load_policy())
        self._evaluating: asyncio.Task[None] | None = None
        self.collector = Collector(
            self._writer,
            [exporter, self.arrivals, self._evaluator],
            counters=counters,
            host=host,
            grpc_port=ports.grpc,
            http_port=ports.http,
        )
        self.metrics = AsgiHost(
            metrics_app(exporter.registry, lambda: self.collector.ready),
            host=host,
            port=ports.metrics,
            option="--metrics-port",
        )

    async def __aenter__(self) -> Self:
        """Start.

        Raises:
            ListenError: a port cannot be had; the database is as it was.
            ChildError: a child cannot be started.
        """
        try:
            listen(self.host, 0, "--host").close()
            if self._with_explorer:
                self._find_explorer_port()
            await self.collector.start()
            await self.metrics.start()
            # Only now: if the ports are another Tailspan's, the simulation is as well.
            self.forgotten_rows = await asyncio.to_thread(forget_simulated, self._engine)
            self._evaluating = asyncio.create_task(evaluate_for_ever(self._evaluator))
            if self._with_explorer:
                await self._start_explorer()
            if self.simulate:
                await self._start_simulator()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    @property
    def children(self) -> list[Child]:
        """The processes beside this one."""
        return [child for child in (self.explorer, self.simulator) if child is not None]

    def kill_children(self) -> None:
        """End them at once."""
        for child in self.children:
            child.kill()

    def _find_explorer_port(self) -> None:
        # Streamlit would say nothing of our options.
        with listen(self.host, self._ports.explorer, "--explorer-port") as found:
            self._explorer_port = found.getsockname()[1]

    async def _start_explorer(self) -> None:
        start = launch(host=self.host, port=self._explorer_port, database_url=self._database_url)
        self.explorer = await children.start(
            "explorer", start.command, start.environment, self._logs / "explorer.log"
        )

    async def _start_simulator(self) -> None:
        # A process of its own: its backfill would starve the collector.
        self.simulator = await children.start(
            "simulator",
            children.ourselves("simulate", "--endpoint", self.http_endpoint),
            {},
            self._logs / "simulator.log",
        )

    async def explorer_answers(self) -> bool:
        """Wait until the explorer serves; False when it ended or took too long."""
        deadline = time.monotonic() + EXPLORER_START_S
        url = f"{self.explorer_url}/_stcore/health"
        while self.explorer and self.explorer.running and time.monotonic() < deadline:
            if (await asyncio.to_thread(probes.get, url)).ok:
                return True
            await asyncio.sleep(0.2)
        return False

    @property
    def explorer_url(self) -> str:
        """Where a browser finds the explorer."""
        return f"http://{authority(self.host, self._explorer_port)}"

    @property
    def metrics_url(self) -> str:
        """Where Prometheus scrapes."""
        return f"http://{authority(self.host, self.metrics.port)}/metrics"

    @property
    def http_endpoint(self) -> str:
        """Where OTLP over HTTP goes."""
        return f"http://{authority(self.host, self.collector.http_port)}"

    @property
    def grpc_endpoint(self) -> str:
        """Where OTLP over gRPC goes."""
        return f"http://{authority(self.host, self.collector.grpc_port)}"

    async def _stop(self) -> None:
        if self._evaluating is not None:
            self._evaluating.cancel()
            await asyncio.gather(self._evaluating, return_exceptions=True)
        # The simulator first: what it still has to tell is taken while we listen.
        for child in reversed(self.children):
            await child.stop()
        await self.collector.stop(GRACE_S)
        await self.metrics.stop(GRACE_S)
        await asyncio.to_thread(self._writer.close)
