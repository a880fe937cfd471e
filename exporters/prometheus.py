"""Export stored telemetry as Prometheus metrics.

`PrometheusExporter` is a listener of the collector. It counts requests in batches, about once per
second and before a scrape. A scrape copies the totals under a lock. It writes the copy after it has
released the lock.
"""

import platform
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client.registry import CollectorRegistry

from alerts.groups import Group
from alerts.objectives import GoodEvents, Goodput
from exporters.definitions import series
from exporters.families import (
    counter,
    engine_families,
    gauge,
    recent_families,
    report_families,
    request_families,
    slo_families,
    tenant_families,
)
from exporters.format.text import Families, Family
from exporters.self_metrics.health import CollectorReport
from exporters.totals.engine_bills import EngineBills
from exporters.totals.engines import EngineKey, EngineTotals
from exporters.totals.gpus import GpuTotals, gpu_families
from exporters.totals.label_limits import ExporterLabels
from exporters.totals.probes import ProbeTotals
from exporters.totals.recent_latencies import RecentLatencies
from exporters.totals.recent_requests import RecentIds, RecentSources
from exporters.totals.request_batch import RequestBatch, by_value
from exporters.totals.request_costs import CostTotals, cost_families
from exporters.totals.requests import RequestTotals, TenantTotals
from exporters.totals.slo import SloCounts, UserRows
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.in_flight import InFlightRequest
from telemetry.probes import PROBE_TENANT, Probe
from telemetry.request_rows import RequestRows
from telemetry.requests import RequestTimeline, Source
from telemetry.starts import EngineStart

BULK: Final = 4_096
"""If at least this number of requests is uncounted, they are counted immediately. Counting takes
about 20 ms."""
WAIT_NS: Final = 10**9


class PrometheusExporter(Families):
    """Counts stored rows, and exports the totals.

    Args:
        report: returns the collector's own counters, or None if there is no collector.
        recent: the ids of counted requests, so that repeats are not counted.
        objectives: the objectives by name.
        separate: returns the groups of an objective that are counted separately.
        notifications: returns the number of attempts to notify, by channel and result.
        usd_per_s: returns the price per second of a replica's engine, or None if it is unknown.
        starts: returns the latest start of each engine of the given replicas (`LatestStarts.of`).
        users: joins the rows of prefill and decode servers for objectives, or None to count each
            row.
    """

    def __init__(
        self,
        report: Callable[[], CollectorReport] | None = None,
        *,
        clock_unix_ns: Callable[[], int] = time.time_ns,
        labels: ExporterLabels | None = None,
        recent: RecentIds | None = None,
        objectives: Mapping[str, GoodEvents] | None = None,
        targets: Mapping[str, float] | None = None,
        separate: Callable[[GoodEvents], tuple[Group, ...]] = lambda goodput: goodput.reserved,
        notifications: Callable[[], Mapping[tuple[str, str], int]] | None = None,
        usd_per_s: Callable[[str | None, int | None], float | None] = lambda replica, engine: None,
        starts: Callable[[Collection[str]], Mapping[EngineKey, EngineStart]] = lambda replicas: {},
        users: UserRows | None = None,
    ) -> None:
        self._report = report
        self._starts = starts
        self._notifications = notifications
        self._clock_unix_ns = clock_unix_ns
        self._created_unix_s = clock_unix_ns() / 1e9
        self._labels = labels or ExporterLabels()
        self._recent = recent or RecentIds()
        self._recent_reports = RecentIds()
        self._sources = RecentSources()
        self._histograms = series.histograms(
            each for each in (objectives or {}).values() if isinstance(each, Goodput)
        )
        self._requests = RequestTotals(self._histograms)
        self._tenants = TenantTotals()
        self._latencies = RecentLatencies()
        self._engines = EngineTotals(clock_unix_ns)
        self._usd_per_s = usd_per_s
        self._costs = CostTotals()
        self._tenant_costs = CostTotals()
        self._bills = EngineBills(clock_unix_ns, usd_per_s)
        self._gpus = GpuTotals(clock_unix_ns)
        self._probes = ProbeTotals()
        self._objectives = objectives or {}
        self._slos = SloCounts(self._objectives, separate, users)
        self._targets = targets or {}
        self._waiting: list[RequestRows] = []
        self._waiting_since_unix_ns = 0
        self._repeated_requests = 0
        self._late_requests = 0
        self._simulated = False
        self._lock = threading.Lock()
        self._build = (_version(), platform.python_version())
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def on_stored(
        self, requests: Sequence[RequestTimeline], samples: Sequence[EngineSample]
    ) -> None:
        """Count stored rows."""
        now_unix_ns = self._clock_unix_ns()
        with self._lock:
            for sample in samples:
                self._add_sample(sample, now_unix_ns)
            if not 0 <= now_unix_ns - self._waiting_since_unix_ns < WAIT_NS:
                self._count_waiting(now_unix_ns)
                self._waiting_since_unix_ns = now_unix_ns
            if requests:
                self._waiting.append(RequestRows.of(requests))
            if sum(map(len, self._waiting)) >= BULK:
                self._count(now_unix_ns)

    def on_gpus_stored(self, gpus: Sequence[GpuSample]) -> None:
        """Add GPU samples."""
        now_unix_ns = self._clock_unix_ns()
        with self._lock:
            for sample in gpus:
                self._simulated |= sample.simulated
                if self._labels.gpu(sample.replica, sample.gpu, now_unix_ns):
                    self._gpus.add(sample)

    def on_in_flight_stored(self, reports: Sequence[InFlightRequest]) -> None:
        """Count reports of requests in flight."""
        now_unix_ns = self._clock_unix_ns()
        reports = [each for each in reports if each.tenant != PROBE_TENANT]
        with self._lock:
            ids = [each.trace_id + each.span_id for each in reports]
            at = [f"{each.seen_unix_ns:016x}" for each in reports]
            new = [reports[place] for place in self._recent_reports.new_among(ids, at)]
            self._simulated |= any(each.source == Source.SIMULATOR for each in new)
            if new:
                self._slos.add_in_flight(new, now_unix_ns)

    def on_probes_stored(self, probes: Sequence[Probe]) -> None:
        """Add results of probes."""
        now_unix_ns = self._clock_unix_ns()
        with self._lock:
            self._slos.add_probes(self._probes.add(probes, now_unix_ns), now_unix_ns)

    def share_tenants(self, tenants: Collection[str]) -> None:
        """Export these tenants by name, up to `LIMIT` tenants. All collectors of a database call
        this, so that they export the same tenants by name."""
        now_unix_ns = self._clock_unix_ns()
        with self._lock:
            # These requests arrived before the tenants were exported by name.
            self._count_waiting(now_unix_ns)
            self._labels.share_tenants(tenants, now_unix_ns)

    def families(self) -> Iterator[Family]:
        """Yield every family with the current values."""
        now_unix_ns = self._clock_unix_ns()
        with self._lock:
            self._count_waiting(now_unix_ns)
            due = self._slos.due(now_unix_ns)
        joined = self._slos.joined(due)
        self._slos.read_roles()
        with self._lock:
            self._slos.add_joined(joined)
            self._forget_removed_labels()
            requests = self._requests.copy()
            tenants = self._tenants.copy()
            engines = {
                (self._labels.held_model(view.model), replica, str(engine)): view
                for (replica, engine), view in self._engines.view().items()
            }
            costs, tenant_costs = self._costs.copy(), self._tenant_costs.copy()
            bills = {
                (self._labels.held_model(bill.model), replica, str(engine)): bill
                for (replica, engine), bill in self._bills.view().items()
            }
            gpus = self._gpus.view(self._labels)
            recent = self._latencies.counts(now_unix_ns)
            slos = self._slos.copy()
            probes = self._probes.families(now_unix_ns)
            overflows, use = self._labels.overflows(), self._labels.use()
            since = self._labels.tenants_since_unix_ns()
            partial = self._labels.partial_replicas()
            repeated, simulated = self._repeated_requests, self._simulated
            late = self._late_requests
        yield from request_families(requests, self._histograms, self._created_unix_s)
        yield from tenant_families(tenants)
        yield from recent_families(recent)
        yield from engine_families(engines, self._versions(engines))
        yield from cost_families(costs, tenant_costs, bills)
        yield from gpu_families(gpus)
        yield from slo_families(slos, self._objectives, self._targets)
        yield from probes
        yield counter(
            series.LABEL_OVERFLOWS, {(label,): count for label, count in overflows.items()}
        )
        if since:
            yield gauge(
                series.TENANT_NAMED_SINCE, {(tenant,): at / 1e9 for tenant, at in since.items()}
            )
        if partial:
            yield gauge(series.REPLICA_PARTIAL, {(replica,): 1 for replica in partial})
        yield gauge(series.LABEL_VALUES, {(label,): names for label, (names, _) in use.items()})
        yield gauge(series.LABEL_VALUES_LIMIT, {(label,): cap for label, (_, cap) in use.items()})
        yield counter(series.REPEATED_REQUESTS, {(): repeated})
        yield counter(series.LATE_REQUESTS, {(): late})
        yield gauge(series.SIMULATED, {(): int(simulated)})
        yield gauge(series.BUILD, {self._build: 1})
        if self._notifications is not None:
            yield counter(series.NOTIFICATIONS, self._notifications())
        if self._report is not None:
            yield from report_families(self._report())

    def _count_waiting(self, now_unix_ns: int) -> None:
        """Count the waiting requests with the time of their arrival. If the clock was set back
        since then, use the current time instead, because otherwise every request would count as
        late."""
        self._count(min(self._waiting_since_unix_ns, now_unix_ns))

    def _count(self, now_unix_ns: int) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        rows = self._new(RequestRows.joined(waiting))
        if not rows:
            return
        self._simulated |= Source.SIMULATOR in rows.column("source")
        bulk = RequestBatch.under(rows, self._labels, now_unix_ns)
        self._late_requests += int((bulk.ended_unix_ns < now_unix_ns - series.LATE_S * 10**9).sum())
        self._requests.add(bulk)
        self._tenants.add(bulk)
        self._latencies.add(bulk)
        self._slos.add(bulk)
        if bulk.rows.is_known("cost_usd"):
            engines = zip(*map(bulk.rows.column, ("replica", "engine")), strict=True)
            usd_per_s = by_value(list(engines), lambda engine: self._usd_per_s(*engine))
            self._costs.add(bulk.pairs, bulk, usd_per_s)
            self._tenant_costs.add(bulk.tenant_pairs, bulk, usd_per_s)

    def _new(self, rows: RequestRows) -> RequestRows:
        """The rows to count. Rows of the prober, rows of clients and rows that were already counted
        are left out."""
        if PROBE_TENANT in rows.column("tenant"):
            tenants = rows.column("tenant")
            rows = rows.taken([at for at, each in enumerate(tenants) if each != PROBE_TENANT])
        # The client may have called a server that Tailspan does not monitor.
        if Source.CLIENT in rows.column("source"):
            sources = rows.column("source")
            rows = rows.taken([at for at, each in enumerate(sources) if each != Source.CLIENT])
        new = self._recent.new_among(rows.column("trace_id"), rows.column("span_id"))
        ids, sources = rows.column("request_id"), rows.column("source")
        kept = [at for at in new if not self._sources.from_another(ids[at], sources[at])]
        self._repeated_requests += len(rows) - len(kept)
        return rows.taken(kept)

    def _add_sample(self, sample: EngineSample, now_unix_ns: int) -> None:
        self._simulated |= sample.simulated
        if self._labels.engine(sample.replica, sample.engine, now_unix_ns):
            self._engines.add(sample)
            self._bills.add(sample)
        if sample.model is not None:
            pair = self._labels.pair(sample.model, sample.replica, now_unix_ns)
            self._requests.expect(pair)
            if self._usd_per_s(sample.replica, sample.engine) is not None:
                self._costs.expect(pair)

    def _versions(self, engines: Collection[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
        """The known vLLM versions of engines that send samples. Other engines are left out, because
        any sender can invent starts."""
        starts = self._starts({replica for _, replica, _ in engines})
        found = {labels: starts.get((labels[1], int(labels[2]))) for labels in engines}
        return {labels: start.version for labels, start in found.items() if start and start.version}

    def _forget_removed_labels(self) -> None:
        for totals in (self._requests, self._costs):
            totals.forget({pair for pair in totals.pairs if not self._labels.holds_pair(pair)})
        for tenant_pairs in (self._tenants, self._tenant_costs):
            tenant_pairs.forget(
                {pair for pair in tenant_pairs.pairs if not self._labels.holds_tenant_pair(pair)}
            )
        for engines in (self._engines, self._bills):
            engines.forget({key for key in engines.keys if not self._labels.holds_engine(key)})


def _version() -> str:
    try:
        return version("tailspan")
    except PackageNotFoundError:
        return "unknown"
