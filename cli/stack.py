"""All of Tailspan in one event loop: the collector, the exporter, and the explorer beside them."""

import asyncio
import signal
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
from cli.children import Child
from cli.evaluating import evaluate_for_ever
from collector.counters import Counters
from collector.hosting import AsgiHost
from collector.server import Collector
from exporters.app import metrics_app
from exporters.prometheus import PrometheusExporter
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline
from ui.launch import launch

LOGS = Path("var")
EXPLORER_START_S = 60.0
GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Ports:
    """Where everything listens; 0 takes a free one (not for the explorer)."""

    grpc: int = 4317
    http: int = 4318
    metrics: int = 9464
    explorer: int = 8501


class Arrivals:
    """Notes who was heard of, so that a newcomer is told that it works."""

    def __init__(self) -> None:
        self.replicas: set[str] = set()
        self.requests = 0
        self.news = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def on_stored(
        self, requests: Sequence[RequestTimeline], samples: Sequence[EngineSample]
    ) -> None:
        """Take note; called from whichever thread stored them."""
        heard = {row.replica for row in requests if row.replica} | {row.replica for row in samples}
        self.requests += len(requests)
        if not heard <= self.replicas:
            self.replicas |= heard
            self._loop.call_soon_threadsafe(self.news.set)


class Stack:
    """The running parts. `async with` starts them, and stops them in the reverse order."""

    def __init__(
        self,
        engine: Engine,
        database_url: str,
        host: str,
        ports: Ports,
        explorer: bool,
        objectives: Sequence[Objective] = (),
    ) -> None:
        self._database_url = database_url
        self.database = engine.url.render_as_string(hide_password=True)
        self._host = host
        self._ports = ports
        self._with_explorer = explorer
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
        self.explorer: Child | None = None

    async def __aenter__(self) -> Self:
        try:
            await self.collector.start()
            await self.metrics.start()
            self._evaluating = asyncio.create_task(evaluate_for_ever(self._evaluator))
            if self._with_explorer:
                await self._start_explorer()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _start_explorer(self) -> None:
        start = launch(host=self._host, port=self._ports.explorer, database_url=self._database_url)
        self.explorer = await children.start(
            "explorer", start.command, start.environment, LOGS / "explorer.log"
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
        return f"http://{_reachable(self._host)}:{self._ports.explorer}"

    @property
    def metrics_url(self) -> str:
        """Where Prometheus scrapes."""
        return f"http://{_reachable(self._host)}:{self.metrics.port}/metrics"

    @property
    def http_endpoint(self) -> str:
        """Where OTLP over HTTP goes."""
        return f"http://{_reachable(self._host)}:{self.collector.http_port}"

    @property
    def grpc_endpoint(self) -> str:
        """Where OTLP over gRPC goes."""
        return f"http://{_reachable(self._host)}:{self.collector.grpc_port}"

    async def _stop(self) -> None:
        if self._evaluating is not None:
            self._evaluating.cancel()
            await asyncio.gather(self._evaluating, return_exceptions=True)
        if self.explorer is not None:
            await self.explorer.stop()
        await self.collector.stop(GRACE_S)
        await self.metrics.stop(GRACE_S)
        await asyncio.to_thread(self._writer.close)


def _reachable(host: str) -> str:
    """An address to print for one to listen on: 0.0.0.0 is no address to go to."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def stop_on_signals() -> asyncio.Event:
    """An event that Ctrl-C and SIGTERM set."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop
