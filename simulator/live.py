"""Send a simulation's telemetry to a collector in real time.

The first `backfill_s` simulated seconds are sent as fast as the collector accepts them. Each later
second is sent when it is over.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.request.record import RequestRecord

from simulator.fleet import ReplicaSecond, Second, simulate
from simulator.fleet_config import FleetConfig
from simulator.router_span import NAME as ROUTER
from simulator.router_span import router_span_of
from simulator.sending import PATIENCE_S, BatchSender, EndedRequests, OtlpExport, SampleBatch, Sent
from simulator.truth import truth_of
from telemetry.addresses import masked
from telemetry.gpus import GpuSample

SPANS_PER_BATCH = 512
SAMPLES_PER_BATCH = 240
CLOSE_S = 5.0
"""Time limit for the remaining data after a stop."""
PROGRESS_S = 5.0
"""Seconds between reports about undelivered data."""
_LOOK_S = 0.5
_BEHIND_S = 2.0
"""If the simulation is behind the clock by at least this many seconds, it sends only full batches.
If it is not, it sends a batch each second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationPlan:
    """The fleet to simulate, and the collector."""

    endpoint: str
    fleet: FleetConfig
    """The fleet to simulate. `run` computes its `started_unix_ns` and `duration_s` from this
    plan."""
    backfill_s: float = 3600.0
    duration_s: float | None = None
    """Seconds of live traffic. If None, live traffic continues until the run is stopped. If 0, only
    the backfill is sent."""
    service: str = "vllm"
    truth: Path | None = None
    """The file for the active causes, one JSON object per line."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.endpoint)
        bare = not ("@" in parts.netloc or parts.query or parts.fragment)
        if parts.scheme not in ("http", "https") or not parts.netloc or not bare:
            raise ValueError(
                f"endpoint: {masked(self.endpoint)!r}; allowed: http://HOST:PORT or"
                " https://HOST:PORT, without user, password and query"
            )
        if not self.backfill_s >= 0:
            raise ValueError(f"backfill_s: {self.backfill_s}; allowed: 0 or more")
        if self.duration_s is not None and not self.backfill_s + self.duration_s > 0:
            raise ValueError(
                f"duration_s: {self.duration_s}; allowed: more than 0, or None for no end"
            )


def run(
    plan: SimulationPlan,
    stop: threading.Event,
    log_line: Callable[[str], None],
    *,
    clock_ns: Callable[[], int] = time.time_ns,
    wait: Callable[[float], object] | None = None,
    patience_s: float = PATIENCE_S,
    progress_s: float = PROGRESS_S,
) -> Sent:
    """Simulate the fleet and send its data, until the plan's end or until `stop` is set.

    Args:
        stop: stops the run. It may be set from any thread. Queued data is still sent for a few
            seconds.
        wait: waits for some seconds, or until `stop` is set.
        patience_s: a run with an end stops if no data is accepted for this many seconds.
    """
    sent = Sent()
    export = OtlpExport(plan.endpoint, sent)
    sender = BatchSender(
        export.prepare, log_line, sent, patience_s=patience_s, receiver=plan.endpoint
    )
    batches = _Batches(sender, plan, stop, log_line, progress_s)
    try:
        _run(plan, batches, stop, log_line, clock_ns, wait or stop.wait)
        batches.drain()
    finally:
        if batches.given_up:
            log_line(f"giving up: {plan.endpoint} does not accept the data")
        batches.flush()
        sender.close(0.0 if batches.given_up else CLOSE_S, export.close)
        export.close()
        log_line(_summary(sent))
    return sent


def _run(
    plan: SimulationPlan,
    batches: "_Batches",
    stop: threading.Event,
    log_line: Callable[[str], None],
    clock_ns: Callable[[], int],
    wait: Callable[[float], object],
) -> None:
    began_ns = clock_ns()
    started_unix_ns = began_ns - round(plan.backfill_s * 1e9)
    fleet = replace(
        plan.fleet,
        started_unix_ns=started_unix_ns,
        duration_s=None if plan.duration_s is None else plan.backfill_s + plan.duration_s,
    )
    if plan.truth is not None:
        lines = "".join(f"{truth.line()}\n" for truth in truth_of(fleet))
        plan.truth.write_text(lines, encoding="utf-8")
    caught_up = plan.backfill_s == 0
    report_at_s = 600.0
    for second in simulate(fleet):
        if stop.is_set() or batches.given_up:
            return
        at_unix_ns = started_unix_ns + round(second.at_s * 1e9)
        if not caught_up and at_unix_ns > clock_ns():
            caught_up = True
            batches.drain()
            if stop.is_set() or batches.given_up:
                return
            took_s = (clock_ns() - began_ns) / 1e9
            log_line(f"backfill sent in {took_s:.1f} s; now live, a second at a time")
        if not caught_up and second.at_s >= report_at_s:
            report_at_s += 600.0
            log_line(
                f"backfill: simulated {second.at_s / 60:.0f} of {plan.backfill_s / 60:.0f} min"
            )
        behind_s = (clock_ns() - at_unix_ns) / 1e9
        if behind_s < 0:
            wait(-behind_s)
        batches.add(second, at_unix_ns)
        if behind_s < _BEHIND_S:
            batches.flush()


def _resource(service: str, replica: str, region: str) -> Resource:
    return Resource(
        {
            names.SERVICE_NAME: service,
            names.SERVICE_INSTANCE_ID: replica,
            names.CLOUD_REGION: region,
            names.PROCESS_PID: os.getpid(),
            names.SIMULATED: True,
        }
    )


class _Batches:
    def __init__(
        self,
        sender: BatchSender,
        plan: SimulationPlan,
        stop: threading.Event,
        log_line: Callable[[str], None],
        progress_s: float,
    ) -> None:
        self._sender = sender
        self._plan = plan
        self._stop = stop
        self._log_line = log_line
        self._progress_s = progress_s
        self._resources: dict[str, Resource] = {}
        self._router = Resource({names.SERVICE_NAME: ROUTER, names.SIMULATED: True})
        self._records: list[tuple[RequestRecord, Resource]] = []
        self._routed: list[ReadableSpan] = []
        self._states: list[tuple[EngineState, Resource, int]] = []
        self._gpus: list[tuple[GpuSample, Resource]] = []

    @property
    def given_up(self) -> bool:
        """Whether to stop waiting for the collector. It is always false for a run without an
        end."""
        return self._plan.duration_s is not None and self._sender.unavailable

    def add(self, second: Second, at_unix_ns: int) -> None:
        """Add a simulated second. Each full batch is put into the queue. If the queue is full,
        wait."""
        started_unix_ns = at_unix_ns - round(second.at_s * 1e9)
        self._routed += (
            router_span_of(each, self._router, started_unix_ns) for each in second.routed
        )
        ended = []
        for report in second.replicas:
            resource = self._resource(report)
            ended += [(record, resource) for record in report.records]
            if report.state is not None:
                self._states.append((report.state, resource, at_unix_ns))
            self._gpus += [(gpu, resource) for gpu in report.gpus]
        self._records += sorted(ended, key=lambda pair: pair[0].delivered)
        while len(self._records) >= SPANS_PER_BATCH:
            self._sender.put(self._requests(SPANS_PER_BATCH), self._stop)
        if len(self._states) + len(self._gpus) >= SAMPLES_PER_BATCH:
            self._sender.put(self._samples(), self._stop)

    def flush(self) -> None:
        """Queue the collected data. If the queue is full, drop and count the data."""
        if self._records or self._routed:
            self._sender.offer(self._requests())
        if self._states or self._gpus:
            self._sender.offer(self._samples())

    def drain(self) -> None:
        """Queue the collected data, and wait until all batches were sent or dropped."""
        if self._records or self._routed:
            self._sender.put(self._requests(), self._stop)
        if self._states or self._gpus:
            self._sender.put(self._samples(), self._stop)
        waited_s = 0.0
        while not self._sender.drain(self._stop, _LOOK_S):
            if self._stop.is_set() or self.given_up:
                return
            waited_s += _LOOK_S
            if waited_s >= self._progress_s:
                waited_s = 0.0
                left = self._sender.waiting_requests
                self._log_line(
                    f"waiting for the collector at {self._plan.endpoint}: {left:,} requests not"
                    " delivered yet"
                )

    def _requests(self, most: int | None = None) -> EndedRequests:
        requests = EndedRequests(self._records[:most], self._routed)
        self._records, self._routed = self._records[len(requests.records) :], []
        return requests

    def _samples(self) -> SampleBatch:
        samples = SampleBatch(self._states, self._gpus)
        self._states, self._gpus = [], []
        return samples

    def _resource(self, report: ReplicaSecond) -> Resource:
        if report.replica not in self._resources:
            self._resources[report.replica] = _resource(
                self._plan.service, report.replica, report.region
            )
        return self._resources[report.replica]


def _summary(sent: Sent) -> str:
    delivered = f"sent {sent.requests - sent.rejected_requests} requests and {sent.samples} samples"
    if sent.all_delivered:
        return f"{delivered}; all delivered"
    return (
        f"{delivered}; not delivered: {sent.dropped_requests} requests and "
        f"{sent.dropped_samples} samples; rejected by the collector: "
        f"{sent.rejected_requests} requests and {sent.rejected_points} data points"
    )
