"""All of Tailspan in one event loop: the collector, the exporter, and the explorer beside them."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import click
from sqlalchemy import Engine
from starlette.types import ASGIApp

from alerts.counting import EVALUATION_S
from alerts.evaluator import Evaluator
from alerts.notify.configuration import Configuration
from alerts.objectives import Objective, counted
from cli import children, probes
from cli.addresses import authority
from cli.children import Child
from cli.doors import Doors
from cli.evaluating import Evaluating
from cli.gpu_options import GpuSetup
from cli.notifying import Notifying
from cli.retaining import EVERY_S as RETAIN_EVERY_S
from cli.retaining import Keep, Retaining, begin
from cli.scrape_options import ScrapeSetup
from cli.supervision import ChildEnded, Supervisor
from collector.bearer import BearerGate
from collector.connections import ConnectionLimits
from collector.counters import Counters
from collector.gpus.sampler import GpuSampler
from collector.hosting import AsgiHost, listen
from collector.hosts import AllowedHosts, HostGate
from collector.limits import Limits
from collector.reading import ReadingApart
from collector.scrape.scraper import Scraper
from collector.server import Collector
from collector.sink import Listener
from cost.prices import PriceList
from cost.pricing import Pricing
from exporters.app import metrics_app
from exporters.clocks import ClockMetrics
from exporters.exposition import Exposition
from exporters.forwarding import Forwarder
from exporters.gpu_readers import GpuReaderMetrics
from exporters.prometheus import PrometheusExporter
from exporters.rooflines import RooflineMetrics
from exporters.scrapes import ScrapeMetrics
from exporters.tasks import TaskMetrics
from exporters.text import Families
from store import dialects
from store.database import folder, shown
from store.forgetting import forget_simulated
from store.starts import in_force
from store.writer import Writer
from telemetry.corroborated_time import CorroboratedClock
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.request_rows import RequestRows
from telemetry.requests import RequestTimeline, Source
from telemetry.tasks import Task
from ui.launch import launch
from ui.sign_in_file import SignIn

EXPLORER_START_S = 60.0
EVALUATION_QUIET_S = 300.0
"""Twenty evaluations. The first one counts all stored requests; a week of them takes minutes."""
RETENTION_QUIET_S = 3_600.0
"""The first run after an upgrade makes thousands of rollups."""
GRACE_S = 5.0
MOST_NAMED = 16
PROBES = ("/healthz", "/readyz")
"""Paths that an orchestrator probes. They need no token, and any Host header is allowed."""
FIRST_LOOK = {"incident": "tenant_flood", "incident-before": "12m"}
"""What `tailspan up --simulate` shows: a running incident that pages (tests/cli)."""
NAMELESS = "a server that gives no name (service.instance.id)"


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports to listen on; 0 takes a free one."""

    grpc: int = 4317
    http: int = 4318
    metrics: int = 9464
    explorer: int = 8501


class Arrivals:
    """Records which replicas have sent data, so that the first data of each is announced."""

    def __init__(self) -> None:
        self.replicas: set[str] = set()
        """Names of the first `MOST_NAMED` replicas; a sender could invent any number of names."""
        self.requests = 0
        self.simulated = False
        """Whether any of the data was simulated."""
        self.news = asyncio.Event()

    def on_stored(
        self, requests: Sequence[RequestTimeline], samples: Sequence[EngineSample]
    ) -> None:
        """Record the senders of stored rows; called on the event loop."""
        rows = RequestRows.of(requests)
        self.requests += len(rows)
        told = set(zip(rows.column("source"), rows.column("replica"), strict=True))
        self.simulated |= any(source == Source.SIMULATOR for source, _ in told)
        if len(self.replicas) >= MOST_NAMED:
            return
        heard = {replica for source, replica in told if source != Source.CLIENT}
        heard |= {row.replica for row in samples}
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
        objectives: what is counted and evaluated while it runs.
        objective_paths: where they are written, for the explorer; none for those that come along.
        keep: how long what is kept.
        notify: who is told of incidents; None for nobody.
        scrape: where servers are whose /metrics is asked for, and how often.
        doors: who may come in.
        forward: sends what is received on to another backend.
        gpus: which GPUs are sampled, and whose they are.
        prices: what engines cost, so that requests are told their cost.
        price_file: where they are written, for the explorer; None for the environment's.
        peaks: what GPUs can do at best, before what is known of them (`roofline.peakfile`).
        sign_in: how the explorer's readers sign in, and the file that says it; None for not at all.
        base_path: under which a proxy serves the explorer, without slashes around it.
        clock: the present, in place of the system clock as far as it is corroborated.
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
        objective_paths: Sequence[Path] = (),
        keep: Keep = Keep(),  # noqa: B008 -- it is frozen
        notify: Configuration | None = None,
        scrape: ScrapeSetup = ScrapeSetup(),  # noqa: B008 - frozen
        doors: Doors = Doors(),  # noqa: B008 - frozen
        forward: Forwarder | None = None,
        gpus: GpuSetup = GpuSetup(),  # noqa: B008 - frozen
        prices: PriceList = PriceList(),  # noqa: B008 - frozen
        price_file: Path | None = None,
        peaks: Mapping[str, Any] = MappingProxyType({}),
        sign_in: tuple[Path, SignIn] | None = None,
        base_path: str = "",
        clock: CorroboratedClock | None = None,
    ) -> None:
        self.database = shown(engine)
        self.host = host
        self.doors = doors
        self.simulate = simulate
        self.forgotten_rows = 0
        self.explorer: Child | None = None
        self.simulator: Child | None = None
        self._engine = engine
        self._database_url = database_url
        self._objectives = objectives
        self._objective_paths = objective_paths
        self._price_file = price_file
        self._sign_in = sign_in
        self._base_path = base_path
        self._ports = ports
        self._with_explorer = explorer
        self._explorer_port = ports.explorer
        self._logs = folder(engine)
        self._writer = Writer(engine)
        self.clock = clock or CorroboratedClock()
        self._pricing = Pricing(prices)
        counters = Counters()
        self.arrivals = Arrivals()
        self._evaluator = Evaluator(
            engine,
            objectives,
            keep_s=None if keep.rows_ns is None else keep.rows_ns // 10**9,
        )
        self._notifying: Notifying | None = None
        if notify is not None:
            self._notifying = Notifying(
                engine,
                objectives,
                notify.channels,
                explorer_url=lambda: (
                    notify.explorer_url or (self.explorer_url if explorer else None)
                ),
                simulated=lambda: self.arrivals.simulated,
                say=_say_if_read,
                clock_unix_ns=self.clock,
            )
        self._exporter = exporter = PrometheusExporter(
            counters.report,
            clock_unix_ns=self.clock,
            objectives=counted(tuple(objectives)),
            targets={each.name: float(each.target) for each in objectives},
            placed=self._evaluator.places.placed,
            notifications=self._notifying.counts if self._notifying else None,
            usd_per_s=self._pricing.usd_per_s,
        )
        rooflines = RooflineMetrics(
            lambda replicas: in_force(engine, replicas=replicas), self.clock, peaks
        )
        self._keep = keep
        self.supervisor = Supervisor()
        self.child_ends: asyncio.Queue[tuple[Child, int]] = asyncio.Queue()
        """Children that ended by themselves, with their status."""
        self.scraper: Scraper | None = None
        self._forward = forward
        told: list[Families] = [
            *(exporter, rooflines, TaskMetrics(self.supervisor.report)),
            *([forward] if forward else []),
        ]
        if scrape.places:
            self.scraper = Scraper(
                scrape.places,
                self._writer,
                [exporter, self.arrivals],
                every_s=scrape.every_s,
                clock_unix_ns=self.clock,
            )
            told.append(ScrapeMetrics(self.scraper.report, self.scraper.discoveries))
        listeners: list[Listener] = [exporter, rooflines, self.arrivals]
        if self.scraper is not None:
            listeners.append(self.scraper)
        self._gpu_readers = gpus.readers() if gpus.any else None
        self.gpu_sampler: GpuSampler | None = None
        if self._gpu_readers is not None:
            owners = gpus.owners()
            listeners.append(owners)
            self.gpu_sampler = GpuSampler(self._gpu_readers.all, owners, self._keep_gpus)
            told.append(GpuReaderMetrics(self.gpu_sampler.report))
        self.collector = Collector(
            self._writer,
            listeners,
            counters=counters,
            host=host,
            grpc_port=ports.grpc,
            http_port=ports.http,
            limits=doors.limits or Limits(),
            tokens=doors.tokens,
            hosts=doors.hosts or AllowedHosts(),
            tls=doors.tls,
            reading=ReadingApart(),
            forward=forward.offer if forward else None,
            gpu_listeners=[exporter],
            pricing=self._pricing,
            keep_ns=keep.rows_ns,
            clock=self.clock,
        )
        clocks = self.collector.clocks
        told.append(ClockMetrics(clocks.report, self.clock, lambda: clocks.overflows))
        scraped: ASGIApp = metrics_app(
            Exposition(told),
            lambda: self.collector.ready,
            lambda: (self.supervisor.vital, self.supervisor.degraded),
        )
        if doors.tokens is not None:
            scraped = BearerGate(scraped, doors.tokens, open_paths=PROBES)
        scraped = HostGate(scraped, doors.hosts or AllowedHosts(), open_paths=PROBES)
        self.metrics = AsgiHost(
            scraped,
            host=host,
            port=ports.metrics,
            option="--metrics-port",
            tls=doors.tls,
            limits=ConnectionLimits(connections=64, per_peer=16),
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
            await asyncio.to_thread(begin, self._engine, self.clock)
            # Engines that started before us do not say again what they run on.
            self._pricing.hear(await asyncio.to_thread(in_force, self._engine))
            await asyncio.to_thread(self._evaluator.places.read, self._objectives)
            await self.collector.start()
            await self.metrics.start()
            columns = dialects.of(self._engine).tasks(self._engine)
            self.supervisor.add(self._writer.task, *columns, *self.collector.tasks)
            if self._forward is not None:
                self._forward.start()
                self.supervisor.add(self._forward.task)
            # Only now: if the ports are another Tailspan's, the simulation is as well.
            self.forgotten_rows = await asyncio.to_thread(forget_simulated, self._engine)
            if self._notifying is not None:
                self._notifying.start()
                self.supervisor.add(*self._notifying.tasks.values())
            evaluated = self._notifying.evaluated if self._notifying else lambda: None
            self.supervisor.start(
                Task("evaluator", quiet_s=EVALUATION_QUIET_S),
                Evaluating(self._evaluator, self.clock, evaluated).step,
                every_s=EVALUATION_S,
            )
            self.supervisor.start(
                Task("retention", quiet_s=RETENTION_QUIET_S),
                Retaining(self._engine, self._keep, self.clock).step,
                every_s=RETAIN_EVERY_S,
            )
            if self.scraper is not None:
                self.supervisor.start(self.scraper.task, self.scraper.run)
            if self.gpu_sampler is not None:
                self.supervisor.start(self.gpu_sampler.task, self.gpu_sampler.run)
            if self._with_explorer:
                await self._start_explorer()
                self._explorer_task = Task("explorer")
                self.supervisor.start(self._explorer_task, self._keep_explorer)
            if self.simulate:
                await self._start_simulator(FIRST_LOOK)
                self._simulator_task = Task("simulator")
                self.supervisor.start(self._simulator_task, self._keep_simulator)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _keep_gpus(self, samples: Sequence[GpuSample]) -> None:
        if ahead_ns := self.clock.ahead_ns:  # they were dated by the system clock
            samples = [
                replace(each, at_unix_ns=each.at_unix_ns - ahead_ns, clock_ahead_s=ahead_ns / 1e9)
                for each in samples
            ]
        await asyncio.wrap_future(self._writer.submit([], [], (), samples))
        self._exporter.on_gpus_stored(samples)
        self._pricing.hear(gpus=samples)

    @property
    def children(self) -> list[Child]:
        """The processes beside this one."""
        return [child for child in (self.explorer, self.simulator) if child is not None]

    def kill_children(self) -> None:
        """End them at once."""
        for child in self.children:
            child.kill()

    @property
    def _explorer_host(self) -> str:
        return self.doors.explorer_host or self.host

    def _find_explorer_port(self) -> None:
        # Streamlit would say nothing of our options.
        with listen(self._explorer_host, self._ports.explorer, "--explorer-port") as found:
            self._explorer_port = found.getsockname()[1]

    async def _start_explorer(self) -> None:
        start = launch(
            host=self._explorer_host,
            port=self._explorer_port,
            database_url=self._database_url,
            objectives=self._objective_paths,
            prices=self._price_file,
            sign_in=self._sign_in,
            base_path=self._base_path,
            allowed_hosts=sorted(self.doors.hosts.names) if self.doors.hosts else (),
        )
        self.explorer = await children.start(
            "explorer", start.command, start.environment, self._logs / "explorer.log"
        )

    async def _keep_explorer(self) -> None:
        if self.explorer is None or not self.explorer.running:
            await self._start_explorer()
        if await self.explorer_answers():
            self._explorer_task.succeeded(time.time())
        await self._ended(self.explorer)

    async def _keep_simulator(self) -> None:
        if self.simulator is None or not self.simulator.running:
            # Without the past: the first one sent it.
            await self._start_simulator({**FIRST_LOOK, "backfill": "0"})
        self._simulator_task.succeeded(time.time())
        await self._ended(self.simulator)

    async def _ended(self, child: Child | None) -> None:
        """Wait until a child ends; raises when it does."""
        if child is not None:
            status = await child.wait()
            self.child_ends.put_nowait((child, status))
            raise ChildEnded(f"it ended with status {status}; see {child.log}")

    async def _start_simulator(self, options: Mapping[str, str]) -> None:
        # A process of its own: its backfill would starve the collector.
        token = self.doors.own_token
        self.simulator = await children.start(
            "simulator",
            children.ourselves(
                *("simulate", "--endpoint", self.http_endpoint),
                *(f"--{option}={value}" for option, value in options.items()),
            ),
            {}
            if token is None
            else {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{token}"},
            self._logs / "simulator.log",
        )

    async def explorer_answers(self) -> bool:
        """Wait until the explorer serves; False when it ended or took too long."""
        deadline = time.monotonic() + EXPLORER_START_S
        url = f"{self._explorer_here}/_stcore/health"
        while self.explorer and self.explorer.running and time.monotonic() < deadline:
            if (await asyncio.to_thread(probes.get, url)).ok:
                return True
            await asyncio.sleep(0.2)
        return False

    @property
    def explorer_url(self) -> str:
        """Where people find the explorer."""
        return self._explorer_here if self._sign_in is None else self._sign_in[1].url

    @property
    def _explorer_here(self) -> str:
        under = f"/{self._base_path}" if self._base_path else ""
        return f"http://{authority(self._explorer_host, self._explorer_port)}{under}"

    @property
    def metrics_url(self) -> str:
        """Where Prometheus scrapes."""
        return f"{self.doors.scheme}://{authority(self.host, self.metrics.port)}/metrics"

    @property
    def http_endpoint(self) -> str:
        """Where OTLP over HTTP goes."""
        return f"{self.doors.scheme}://{authority(self.host, self.collector.http_port)}"

    @property
    def grpc_endpoint(self) -> str:
        """Where OTLP over gRPC goes."""
        return f"{self.doors.scheme}://{authority(self.host, self.collector.grpc_port)}"

    async def _stop(self) -> None:
        await self.supervisor.stop()
        if self._gpu_readers is not None:
            await self._gpu_readers.close()
        if self._notifying is not None:
            await asyncio.to_thread(self._notifying.stop)
        # The simulator first: what it still has to tell is taken while we listen.
        for child in reversed(self.children):
            await child.stop()
        await self.collector.stop(GRACE_S)
        await self.metrics.stop(GRACE_S)
        if self._forward is not None:
            await asyncio.to_thread(self._forward.close, GRACE_S)
        await asyncio.to_thread(self._writer.close)


def _say_if_read(text: str, wrong: bool) -> None:
    with suppress(OSError):  # nobody reads; the outbox knows
        click.echo(text, err=wrong)
