"""The components of Tailspan in one event loop, and its child processes."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import click
from sqlalchemy import Engine
from starlette.types import ASGIApp

from alerts.evaluation.evaluator import Evaluator
from alerts.notify.configuration import Configuration
from alerts.objectives import Objective, counted
from analysis.sign_in_file import SignIn
from collector.counters import Counters
from collector.gpus.sampler import GpuSampler
from collector.limits.sender_limits import CollectorLimits
from collector.listen.asgi_server import AsgiHost, listen
from collector.listen.bearer_tokens import BearerGate
from collector.listen.connections import ConnectionLimits
from collector.listen.host_check import AllowedHosts, HostGate
from collector.otlp.message_reader import ProcessReader
from collector.scrape.scraper import Scraper
from collector.server import Collector
from collector.sink import Listener
from cost.prices import PriceList
from cost.pricing import Pricing
from exporters.format.exposition import Exposition
from exporters.format.text import Families
from exporters.forwarding.forwarder import Forwarder
from exporters.metrics_app import metrics_app
from exporters.prometheus import PrometheusExporter
from exporters.self_metrics.alerting import AlertingMetrics
from exporters.self_metrics.clocks import ClockMetrics
from exporters.self_metrics.gpu_readers import GpuReaderMetrics
from exporters.self_metrics.leases import LeaseMetrics
from exporters.self_metrics.scrapes import ScrapeMetrics
from exporters.self_metrics.tasks import TaskMetrics
from exporters.totals.latest_starts import LatestStarts
from exporters.totals.rooflines import RooflineMetrics
from server.api.app import BASE, OPENAPI, api_app, with_api_paths
from server.api.limits import PREFIX, ApiLimits
from server.api.problem import ProblemGate
from server.api.readers import Readers
from server.api.worker_pool import WorkerPool
from server.children import Child
from server.endpoint_access import EndpointAccess
from server.evaluation_task import EvaluationTask
from server.explorer_launch import Launch, launch, reading_environment
from server.gpu_setup import GpuSetup
from server.lease_keeper import LeaseKeeper
from server.likely_cause import IncidentAnswers
from server.notification_task import NotificationTask
from server.retention_task import EVERY_S as RETAIN_EVERY_S
from server.retention_task import RetentionPeriods, RetentionTask, begin
from server.scrape_setup import ScrapeSetup
from server.supervised_children import Ends, SupervisedExplorer, SupervisedSimulator, first_past_s
from server.supervision import Supervisor
from store import dialects
from store.database import folder, masked_url, urls
from store.joined.received_rows import ReceivedRows
from store.leases import EVALUATION, NOTIFICATION, RETENTION, Leases
from store.replicas.engine_starts import in_force
from store.rollups.label_storage import exported_tenants
from store.simulation_removal import delete_simulation
from store.state import separate_state
from store.writer import GATHER_S, Writer
from telemetry.addresses import authority
from telemetry.corroborated_time import CorroboratedClock
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.request_rows import RequestRows
from telemetry.requests import RequestTimeline, Source
from telemetry.tasks import Task

EVALUATION_QUIET_S = 300.0
"""The task counts as failed after this many seconds without an evaluation. It is twenty intervals,
because the first evaluation counts all stored requests."""
RETENTION_QUIET_S = 3_600.0
"""The retention task counts as failed after this many seconds without a run. The first run after an
upgrade may compute thousands of rollups."""
GRACE_S = 5.0
MAX_NAMED = 16
KUBERNETES_PROBE_PATHS = ("/healthz", "/readyz")
"""Paths for Kubernetes' probes. These paths require no token and allow any Host header."""
NO_LEASES_WARNING = (
    "ClickHouse has no transactions, so collectors cannot agree which of them evaluates objectives,"
    " sends notifications and computes rollups. Run only one `tailspan up` on this database, or set"
    " --state-url to a PostgreSQL database."
)
UNNAMED_SERVER = "a server without a name (service.instance.id)"


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports to listen on. Port 0 selects any free port."""

    grpc: int = 4317
    http: int = 4318
    metrics: int = 9464
    explorer: int = 8501


class KnownReplicas:
    """The replicas that have sent data."""

    def __init__(self) -> None:
        self.replicas: set[str] = set()
        """The first `MAX_NAMED` names. A sender can choose any number of names."""
        self.requests = 0
        self.news = asyncio.Event()

    def on_stored(
        self, requests: Sequence[RequestTimeline], samples: Sequence[EngineSample]
    ) -> None:
        """Record the replicas of stored rows. Called on the event loop."""
        rows = RequestRows.of(requests)
        self.requests += len(rows)
        sources = set(zip(rows.column("source"), rows.column("replica"), strict=True))
        if len(self.replicas) >= MAX_NAMED:
            return
        names = {replica for source, replica in sources if source != Source.CLIENT}
        names |= {row.replica for row in samples}
        for name in sorted({name or UNNAMED_SERVER for name in names} - self.replicas):
            if len(self.replicas) < MAX_NAMED:
                self.replicas.add(name)
                self.news.set()


class Stack:
    """The running components. `async with` starts them, and stops them in reverse order.

    Args:
        engine: the database. The caller closes it.
        database_url: the URL of the same database, for the explorer's process.
        objective_paths, price_file: the files of `objectives` and `prices`, for the explorer.
        peaks: values that override the built-in peaks of GPUs (`roofline.peakfile`).
        base_path: the URL path under which a proxy serves the explorer.
        api: the limits of the JSON API, or None if it is disabled.
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
        keep: RetentionPeriods = RetentionPeriods(),  # noqa: B008
        notify: Configuration | None = None,
        scrape: ScrapeSetup = ScrapeSetup(),  # noqa: B008
        access: EndpointAccess = EndpointAccess(),  # noqa: B008
        forward: Forwarder | None = None,
        gpus: GpuSetup = GpuSetup(),  # noqa: B008
        prices: PriceList = PriceList(),  # noqa: B008
        price_file: Path | None = None,
        peaks: Mapping[str, Any] = MappingProxyType({}),
        sign_in: tuple[Path, SignIn] | None = None,
        base_path: str = "",
        api: ApiLimits | None = ApiLimits(),  # noqa: B008
        clock: CorroboratedClock | None = None,
    ) -> None:
        state = separate_state(engine)
        self.database = masked_url(engine)
        self.state = None if state is None else masked_url(state)
        self.host = host
        self.access = access
        self.simulate = simulate
        self.forgotten_rows = 0
        self._engine = engine
        self._database_url = database_url
        self._objectives = objectives
        self._objective_paths = objective_paths
        self._price_file = price_file
        self._sign_in = sign_in
        self._notify = notify
        self._base_path = base_path
        self._ports = ports
        self._explorer_port = ports.explorer
        self._writer = Writer(engine, gather_s=GATHER_S)
        self.clock = clock or CorroboratedClock()
        self._pricing = Pricing(prices)
        counters = Counters()
        self.arrivals = KnownReplicas()
        wanted = (
            (EVALUATION, RETENTION) if notify is None else (EVALUATION, NOTIFICATION, RETENTION)
        )
        self._leases = Leases(engine, wanted)
        self._keeper = LeaseKeeper(self._leases, self._evaluate_soon, _print_if_read)
        self._evaluator = Evaluator(
            engine,
            objectives,
            keep_s=None if keep.rows_ns is None else keep.rows_ns // 10**9,
            alone=self._leases.exclusive,
        )
        self._answers = IncidentAnswers(
            engine,
            objectives,
            found=self._notify_again,
            evaluates=lambda: self._leases.term(EVALUATION) is not None,
            clock_s=lambda: self.clock() / 1e9,
        )
        self._notifying: NotificationTask | None = None
        if notify is not None:
            self._notifying = NotificationTask(
                engine,
                objectives,
                notify.channels,
                explorer_url=lambda: self.notification_url,
                print_line=_print_if_read,
                leases=self._leases,
                clock_unix_ns=self.clock,
                likely_cause=self._answers.sentence,
            )
        self._evaluating = EvaluationTask(
            self._evaluator, self.clock, self._leases, self._evaluated
        )
        starts = LatestStarts(lambda replicas: in_force(engine, replicas=replicas), self.clock).of
        self._exporter = exporter = PrometheusExporter(
            counters.report,
            clock_unix_ns=self.clock,
            objectives=counted(tuple(objectives)),
            targets={each.name: float(each.target) for each in objectives},
            separate=self._evaluator.slots.separate,
            notifications=self._notifying.counts if self._notifying else None,
            usd_per_s=self._pricing.usd_per_s,
            starts=starts,
            users=ReceivedRows(engine, self.clock),
        )
        rooflines = RooflineMetrics(starts, self.clock, peaks)
        self._keep = keep
        self._loop: asyncio.AbstractEventLoop | None = None
        self.supervisor = Supervisor()
        self.child_ends: Ends = asyncio.Queue()
        logs = folder(engine)
        self._explorer = (
            SupervisedExplorer(
                self._launch_explorer, lambda: self._explorer_here, logs, self.child_ends
            )
            if explorer
            else None
        )
        self._simulator = (
            SupervisedSimulator(lambda: self.http_endpoint, access.own_token, logs, self.child_ends)
            if simulate
            else None
        )
        self.scraper: Scraper | None = None
        self._forward = forward
        families: list[Families] = [
            *(exporter, rooflines, TaskMetrics(self.supervisor.report)),
            LeaseMetrics(self._keeper.held),
            AlertingMetrics(
                lambda: self._evaluating.evaluated_unix_s,
                self._notifying.oldest_pending_s if self._notifying else dict,
            ),
            *([forward] if forward else []),
        ]
        if scrape.places:
            self.scraper = Scraper(
                scrape.places,
                self._writer,
                [exporter, self.arrivals, self._evaluating],
                every_s=scrape.every_s,
                clock_unix_ns=self.clock,
            )
            families.append(ScrapeMetrics(self.scraper.report, self.scraper.discoveries))
        listeners: list[Listener] = [exporter, rooflines, self.arrivals, self._evaluating]
        if self.scraper is not None:
            listeners.append(self.scraper)
        self._gpu_readers = gpus.readers() if gpus.any else None
        self.gpu_sampler: GpuSampler | None = None
        if self._gpu_readers is not None:
            owners = gpus.owners()
            listeners.append(owners)
            self.gpu_sampler = GpuSampler(self._gpu_readers.all, owners, self._keep_gpus)
            families.append(GpuReaderMetrics(self.gpu_sampler.report))
        self.collector = Collector(
            self._writer,
            listeners,
            counters=counters,
            host=host,
            grpc_port=ports.grpc,
            http_port=ports.http,
            limits=access.limits or CollectorLimits(),
            tokens=access.tokens,
            hosts=access.hosts or AllowedHosts(),
            tls=access.tls,
            reading=ProcessReader(),
            forward=forward.offer if forward else None,
            gpu_listeners=[exporter],
            in_flight_listeners=[exporter],
            probe_listeners=[exporter],
            pricing=self._pricing,
            keep_ns=keep.rows_ns,
            clock=self.clock,
        )
        clocks = self.collector.clocks
        families.append(ClockMetrics(clocks.report, self.clock, lambda: clocks.overflows))
        scraped: ASGIApp = metrics_app(
            Exposition(families),
            lambda: self.collector.ready,
            lambda: (self.supervisor.vital, self.supervisor.degraded),
            () if api is None else (f"{BASE}/{OPENAPI}",),
        )
        self._api: WorkerPool | None = None
        if api is not None:
            environment = reading_environment(
                database_url,
                objective_paths,
                price_file,
                urls(engine)[1],
                access.roles.path if access.roles else None,
            )
            self._api = WorkerPool(environment, api)
            scraped = with_api_paths(scraped, api_app(self._api, Readers(access.roles)))
        if access.tokens is not None:
            scraped = BearerGate(scraped, access.tokens, KUBERNETES_PROBE_PATHS, role_paths=PREFIX)
        scraped = HostGate(
            scraped, access.hosts or AllowedHosts(), open_paths=KUBERNETES_PROBE_PATHS
        )
        scraped = ProblemGate(scraped, PREFIX)
        self.metrics = AsgiHost(
            scraped,
            host=host,
            port=ports.metrics,
            option="--metrics-port",
            tls=access.tls,
            limits=ConnectionLimits(connections=64, per_peer=16),
        )

    async def __aenter__(self) -> Self:
        """Start all components.

        Raises:
            ListenError: a port is not available. The database is unchanged.
            ChildError: a child cannot be started.
        """
        try:
            listen(self.host, 0, "--host").close()
            if self._explorer is not None:
                self._find_explorer_port()
            await asyncio.to_thread(begin, self._engine, self.clock)
            # An engine reports its device only at its start, and the device determines the engine's
            # price.
            self._pricing.update(await asyncio.to_thread(in_force, self._engine))
            await asyncio.to_thread(self._evaluator.slots.read, self._objectives)
            await self.collector.start()
            await self.metrics.start()
            columns = dialects.of(self._engine).tasks(self._engine)
            self.supervisor.add(self._writer.task, *columns, *self.collector.tasks)
            if self._forward is not None:
                self._forward.start()
                self.supervisor.add(self._forward.task)
            # Delete simulated data only after the ports are bound. If the ports are in use, the
            # data may belong to a different Tailspan.
            self.forgotten_rows = await asyncio.to_thread(delete_simulation, self._engine)
            self._loop = asyncio.get_running_loop()
            if not self._leases.exclusive:
                _print_if_read(NO_LEASES_WARNING, True)
            await asyncio.to_thread(self._keeper.start)
            self.supervisor.add(self._keeper.task)
            if self._notifying is not None:
                self._notifying.start()
                self.supervisor.add(*self._notifying.tasks.values())
            self._answers.start()
            self.supervisor.add(self._answers.task)
            evaluator = Task("evaluator", quiet_s=EVALUATION_QUIET_S)
            self.supervisor.start(evaluator, partial(self._evaluating.run, evaluator))
            self.supervisor.start(
                Task("retention", quiet_s=RETENTION_QUIET_S),
                RetentionTask(self._engine, self._keep, self.clock, self._leases).step,
                every_s=RETAIN_EVERY_S,
            )
            self.supervisor.start(
                Task("label names", quiet_s=RETENTION_QUIET_S),
                self._share_tenants,
                every_s=RETAIN_EVERY_S,
            )
            if self.scraper is not None:
                self.supervisor.start(self.scraper.task, self.scraper.run)
            if self.gpu_sampler is not None:
                self.supervisor.start(self.gpu_sampler.task, self.gpu_sampler.run)
            for child in self._supervised_children:
                await child.start()
                self.supervisor.start(child.task, child.step)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _share_tenants(self) -> None:
        """Export the same tenant names on /metrics as the other collectors of the database."""
        tenants = await asyncio.to_thread(exported_tenants, self._engine)
        await asyncio.to_thread(self._exporter.share_tenants, tenants)

    def _evaluated(self) -> None:
        self._answers.evaluated()
        self._notify_again()

    def _notify_again(self) -> None:
        if self._notifying is not None:
            self._notifying.evaluated()

    async def _keep_gpus(self, samples: Sequence[GpuSample]) -> None:
        if ahead_ns := self.clock.ahead_ns:  # the system clock is fast
            samples = [
                replace(each, at_unix_ns=each.at_unix_ns - ahead_ns, clock_ahead_s=ahead_ns / 1e9)
                for each in samples
            ]
        await asyncio.wrap_future(self._writer.submit([], [], (), samples))
        self._exporter.on_gpus_stored(samples)
        self._pricing.update(gpus=samples)

    def _evaluate_soon(self) -> None:
        """Trigger an evaluation. The thread that renews the leases calls this after it has taken a
        lease."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._evaluating.evaluate_soon)

    @property
    def _supervised_children(self) -> list[SupervisedExplorer | SupervisedSimulator]:
        return [child for child in (self._explorer, self._simulator) if child is not None]

    @property
    def children(self) -> list[Child]:
        """The child processes."""
        return [kept.child for kept in self._supervised_children if kept.child is not None]

    @property
    def explorer(self) -> Child | None:
        """The explorer's process, if it was started."""
        return None if self._explorer is None else self._explorer.child

    async def explorer_answers(self) -> bool:
        """Wait for the explorer. Return False if it ended or took too long."""
        return self._explorer is not None and await self._explorer.answers()

    def kill_children(self) -> None:
        """Kill the child processes."""
        for child in self.children:
            child.kill()

    @property
    def _explorer_host(self) -> str:
        return self.access.explorer_host or self.host

    def _find_explorer_port(self) -> None:
        # Streamlit's error message would not name Tailspan's option.
        with listen(self._explorer_host, self._ports.explorer, "--explorer-port") as found:
            self._explorer_port = found.getsockname()[1]

    def _launch_explorer(self) -> Launch:
        return launch(
            host=self._explorer_host,
            port=self._explorer_port,
            database_url=self._database_url,
            state_url=urls(self._engine)[1],
            objectives=self._objective_paths,
            prices=self._price_file,
            sign_in=self._sign_in,
            roles=self.access.roles.path if self.access.roles else None,
            base_path=self._base_path,
            allowed_hosts=sorted(self.access.hosts.names) if self.access.hosts else (),
            simulated_past_s=first_past_s(self.clock()) if self.simulate else None,
            otlp_ports=(self.collector.grpc_port, self.collector.http_port),
            otlp_scheme=self.access.scheme,
        )

    @property
    def explorer_url(self) -> str:
        """The explorer's address."""
        return self._explorer_here if self._sign_in is None else self._sign_in[1].url

    @property
    def notification_url(self) -> str | None:
        """The explorer's address in notifications, or None if they contain no links."""
        if self._notify is None:
            return None
        return self._notify.explorer_url or (None if self._explorer is None else self.explorer_url)

    @property
    def _explorer_here(self) -> str:
        under = f"/{self._base_path}" if self._base_path else ""
        return f"http://{authority(self._explorer_host, self._explorer_port)}{under}"

    @property
    def metrics_url(self) -> str:
        """The address that Prometheus scrapes."""
        return f"{self.access.scheme}://{authority(self.host, self.metrics.port)}/metrics"

    @property
    def http_endpoint(self) -> str:
        """The address for OTLP over HTTP."""
        return f"{self.access.scheme}://{authority(self.host, self.collector.http_port)}"

    @property
    def grpc_endpoint(self) -> str:
        """The address for OTLP over gRPC."""
        return f"{self.access.scheme}://{authority(self.host, self.collector.grpc_port)}"

    async def _stop(self) -> None:
        await self.supervisor.stop()
        if self._gpu_readers is not None:
            await self._gpu_readers.close()
        self._answers.stop()
        if self._notifying is not None:
            await asyncio.to_thread(self._notifying.stop)
        await asyncio.to_thread(self._keeper.stop)
        # Stop the simulator first, so that its last messages are stored.
        for child in reversed(self.children):
            await child.stop()
        await self.collector.stop(GRACE_S)
        if self._api is not None:
            await self._api.close()
        await self.metrics.stop(GRACE_S)
        if self._forward is not None:
            await asyncio.to_thread(self._forward.close, GRACE_S)
        await asyncio.to_thread(self._writer.close)


def _print_if_read(text: str, wrong: bool) -> None:
    with suppress(OSError):  # the terminal was closed. The messages are also in the outbox.
        click.echo(text, err=wrong)
