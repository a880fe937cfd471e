"""From records and states to a collector: batches over OTLP/HTTP, from a thread of its own.

The SDK's exporters retry what a collector asks to retry, for some seconds. What they give
up on is tried again until it has had its time; then it is dropped and counted. While the
collector is away each further batch gets one try, so that an outage costs what happened
in it and no more. The queue is bounded: whoever fills it waits, or drops and counts.
What the collector answers is read as well: items that it rejects are counted, and a redirect is a
failure, because nothing was stored and headers may hold a credential for this address alone.
"""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http import _log_exporter as log_exporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult
from tailspan_vllm import names
from tailspan_vllm.events import exporting
from tailspan_vllm.metrics import EngineState, Sample, metrics_of
from tailspan_vllm.record import RequestRecord
from tailspan_vllm.spans import span_of
from tailspan_vllm.starts import Starts

from telemetry.gpu_export import gpu_metrics_of
from telemetry.gpus import GpuSample

EXPORT_S = 5.0
"""How long the SDK's exporter tries one batch."""
PATIENCE_S = 60.0
"""How long a batch is tried again before it is dropped."""
QUEUED_BATCHES = 128
_SHORTEST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 8.0

_SDK_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.proto.http._log_exporter",
)


@dataclass(frozen=True, slots=True)
class Requests:
    """Ended requests, each with the resource that served it."""

    records: Sequence[tuple[RequestRecord, Resource]]


@dataclass(frozen=True, slots=True)
class Samples:
    """States of engines, each with its resource and instant; samples of GPUs, each with its
    replica's resource."""

    states: Sequence[tuple[EngineState, Resource, int]]
    gpus: Sequence[tuple[GpuSample, Resource]] = ()

    def __len__(self) -> int:
        return len(self.states) + len(self.gpus)


Batch = Requests | Samples


@dataclass(slots=True)
class Sent:
    """What has become of what was handed over."""

    requests: int = 0
    """In batches that the collector accepted, the rejected ones among them."""
    samples: int = 0
    dropped_requests: int = 0
    dropped_samples: int = 0
    rejected_requests: int = 0
    """The collector accepted their batch and rejected them (OTLP's partial success)."""
    rejected_points: int = 0
    """The same for data points of metrics, of which a sample has several."""

    @property
    def all_delivered(self) -> bool:
        """Whether the collector has stored everything."""
        return not (
            self.dropped_requests
            or self.dropped_samples
            or self.rejected_requests
            or self.rejected_points
        )


class OtlpExport:
    """One batch to one collector, by the SDK's exporters.

    Args:
        endpoint: the collector's base address, as in `http://127.0.0.1:4318`.
        sent: counts what the collector rejects; what was dropped so far goes with every sample.
    """

    def __init__(self, endpoint: str, sent: Sent) -> None:
        base = endpoint.rstrip("/")
        self._spans = OTLPSpanExporter(
            endpoint=f"{base}/v1/traces", timeout=EXPORT_S, session=_session(self._traces_answer)
        )
        self._metrics = OTLPMetricExporter(
            endpoint=f"{base}/v1/metrics", timeout=EXPORT_S, session=_session(self._metrics_answer)
        )
        self._for_events = _session(lambda _: None)
        self._events = exporting(
            log_exporter,
            endpoint=f"{base}/v1/logs",
            timeout=EXPORT_S,
            session=self._for_events,
        )
        self._starts: dict[object, Starts] = {}
        self._sent = sent
        self._closed = False
        # The sender tells of failures, once; the SDK would do so for every try.
        for name in _SDK_LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def prepare(self, batch: Batch) -> Callable[[], bool]:
        """What sends the batch and tells whether it arrived; a repeat sends the same ids."""
        if isinstance(batch, Requests):
            spans = [span_of(record, resource) for record, resource in batch.records]
            return lambda: self._spans.export(spans) is SpanExportResult.SUCCESS
        dropped = {names.SPANS_DROPPED: self._sent.dropped_requests}
        # Each resource once: of several entries for one the SDK's encoder keeps only the last.
        of: dict[Resource, list[Sample]] = {}
        for state, resource, at_unix_ns in batch.states:
            of.setdefault(resource, []).append(Sample(at_unix_ns, state.standing(dropped, {})))
        data = MetricsData(
            [
                entry
                for resource, samples in of.items()
                for entry in metrics_of(samples, resource).resource_metrics
            ]
        )
        gpus: dict[Resource, list[GpuSample]] = {}
        for gpu, resource in batch.gpus:
            gpus.setdefault(resource, []).append(gpu)
        measured = MetricsData([gpu_metrics_of(each, resource) for resource, each in gpus.items()])
        return lambda: (
            self._metrics.export(data) is MetricExportResult.SUCCESS
            and (not gpus or self._metrics.export(measured) is MetricExportResult.SUCCESS)
            and self._tell_starts(batch.states)
        )

    def _tell_starts(self, states: Sequence[tuple[EngineState, Resource, int]]) -> bool:
        """Tell of the engines that have not been told of; True, for samples do not wait for it."""
        for state, resource, _ in states:
            replica = resource.attributes.get(names.SERVICE_INSTANCE_ID)
            starts = self._starts.setdefault(replica, Starts(self._events))
            starts.send([state], resource, time.monotonic())
        return True

    def _traces_answer(self, body: bytes) -> None:
        answer = ExportTraceServiceResponse.FromString(body)
        self._sent.rejected_requests += answer.partial_success.rejected_spans

    def _metrics_answer(self, body: bytes) -> None:
        answer = ExportMetricsServiceResponse.FromString(body)
        self._sent.rejected_points += answer.partial_success.rejected_data_points

    def close(self) -> None:
        """Cut a retry short, from any thread; nothing is sent afterwards."""
        if not self._closed:
            self._closed = True
            self._spans.shutdown()  # type: ignore[no-untyped-call]  # the SDK's own lapse
            self._metrics.shutdown()
            self._for_events.close()


def _session(read: Callable[[bytes], None]) -> requests.Session:
    """A session for one exporter, which takes no notice of what an answer says.

    Args:
        read: takes the body of each answer of a batch that was accepted.
    """

    def look(answer: requests.Response, *_: object, **__: object) -> None:
        if 300 <= answer.status_code < 400:  # the exporter takes it for a success
            answer.close()
            raise requests.exceptions.TooManyRedirects("the collector redirects; not followed")
        if answer.ok:
            with suppress(DecodeError):  # it was accepted; how it says so is not our concern
                read(answer.content)

    session = requests.Session()
    session.hooks["response"].append(look)
    return session


class Sender:
    """A bounded queue and the thread that empties it, in order.

    Args:
        prepare: turns a batch into what sends it once (`OtlpExport.prepare`).
        say: told when the collector goes away, and when it is back.
        sent: where to count.
        patience_s: how long one batch is tried.
        capacity: batches in the queue.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        prepare: Callable[[Batch], Callable[[], bool]],
        say: Callable[[str], None],
        sent: Sent,
        *,
        patience_s: float = PATIENCE_S,
        capacity: int = QUEUED_BATCHES,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        self.sent = sent
        self._prepare = prepare
        self._say = say
        self._patience_s = patience_s
        self._clock = clock
        self._queue: queue.Queue[Batch | None] = queue.Queue(capacity)
        self._hurry = threading.Event()
        self._pause = pause or self._hurry.wait
        self._away = False
        """A batch has been dropped, and none has arrived since."""
        self._failing = False
        """The last export failed."""
        self._queued_requests = 0
        self._done_requests = 0
        self._thread = threading.Thread(target=self._run, name="simulator-sender", daemon=True)
        self._thread.start()

    @property
    def away(self) -> bool:
        """Whether a batch has had its time in vain, and none has arrived since."""
        return self._away

    @property
    def waiting_requests(self) -> int:
        """Requests that are queued or being sent."""
        return self._queued_requests - self._done_requests

    def put(self, batch: Batch, stop: threading.Event) -> bool:
        """Queue a batch, waiting for room; False, with the batch dropped, once `stop` is set."""
        while not stop.is_set():
            try:
                self._queue.put(batch, timeout=0.2)
            except queue.Full:
                continue
            self._queued_requests += _requests_in(batch)
            return True
        return self.offer(batch)

    def offer(self, batch: Batch) -> bool:
        """Queue a batch if there is room; else drop and count it."""
        try:
            self._queue.put_nowait(batch)
        except queue.Full:
            self._drop(batch)
            return False
        self._queued_requests += _requests_in(batch)
        return True

    def drain(self, stop: threading.Event, within_s: float = math.inf) -> bool:
        """Wait until all that was queued has been sent or dropped, or `stop` is set.

        Args:
            stop: ends the wait.
            within_s: how long to wait.

        Returns: whether nothing is queued any more.
        """
        deadline = time.monotonic() + within_s
        with self._queue.all_tasks_done:
            while (
                self._queue.unfinished_tasks and not stop.is_set() and time.monotonic() < deadline
            ):
                self._queue.all_tasks_done.wait(0.2)
            return not self._queue.unfinished_tasks

    def close(self, within_s: float, abandon: Callable[[], None]) -> None:
        """Send what is queued, for at most about `within_s`, drop the rest, and end the thread.

        Args:
            within_s: how long to go on.
            abandon: called when the time is up, to cut short an export under way.
        """
        deadline = self._clock() + within_s
        ending = threading.Thread(target=self._queue.put, args=(None,), daemon=True)
        ending.start()
        self._thread.join(max(deadline - self._clock(), 0.0))
        self._hurry.set()
        if self._thread.is_alive():
            abandon()
        self._thread.join()
        ending.join()

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            if self._hurry.is_set() or not self._deliver(batch):
                self._drop(batch)
            elif isinstance(batch, Requests):
                self.sent.requests += len(batch.records)
            else:
                self.sent.samples += len(batch)
            self._done_requests += _requests_in(batch)
            self._queue.task_done()

    def _deliver(self, batch: Batch) -> bool:
        send = self._prepare(batch)
        give_up = self._clock() + (0.0 if self._away else self._patience_s)
        pause_s = _SHORTEST_PAUSE_S
        while True:
            try:
                arrived = send()
            except Exception as error:  # whatever a transport raises must not end the sender
                self._say(f"export failed: {type(error).__name__}: {error}")
                arrived = False
            if arrived:
                if self._failing:
                    self._failing = self._away = False
                    self._say(f"the collector takes it again ({self._tell_drops()})")
                return True
            if not self._failing:
                self._failing = True
                self._say(f"an export failed; trying again for up to {self._patience_s:.0f} s")
            if self._clock() >= give_up or self._hurry.is_set():
                if not self._away:
                    self._away = True
                    self._say("dropping what the collector does not take at once, until it does")
                return False
            self._pause(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _drop(self, batch: Batch) -> None:
        if isinstance(batch, Requests):
            self.sent.dropped_requests += len(batch.records)
        else:
            self.sent.dropped_samples += len(batch)

    def _tell_drops(self) -> str:
        return (
            f"{self.sent.dropped_requests} requests and "
            f"{self.sent.dropped_samples} samples dropped so far"
        )


def _requests_in(batch: Batch) -> int:
    return len(batch.records) if isinstance(batch, Requests) else 0
