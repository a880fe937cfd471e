"""From records and states to a collector: batches over OTLP/HTTP, from a thread of its own.

The SDK's exporters retry what a collector asks to retry, for some seconds. What they give
up on is tried again until it has had its time; then it is dropped and counted. While the
collector is away each further batch gets one try, so that an outage costs what happened
in it and no more. The queue is bounded: whoever fills it waits, or drops and counts.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult
from tailspan_vllm import names
from tailspan_vllm.destination import Destination
from tailspan_vllm.metrics import EngineState, Sample, metrics_of
from tailspan_vllm.record import RequestRecord
from tailspan_vllm.spans import span_of
from tailspan_vllm.starts import Starts
from tailspan_vllm.transport import post_to

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
    samples: int = 0
    dropped_requests: int = 0
    dropped_samples: int = 0


class OtlpExport:
    """One batch to one collector, by the SDK's exporters.

    Args:
        endpoint: the collector's base address, as in `http://127.0.0.1:4318`.
        sent: what has been dropped so far is told with every sample.
    """

    def __init__(self, endpoint: str, sent: Sent) -> None:
        base = endpoint.rstrip("/")
        self._spans = OTLPSpanExporter(endpoint=f"{base}/v1/traces", timeout=EXPORT_S)
        self._metrics = OTLPMetricExporter(endpoint=f"{base}/v1/metrics", timeout=EXPORT_S)
        self._post_events = post_to(
            Destination("logs", "http/protobuf", f"{base}/v1/logs", timeout_s=EXPORT_S)
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
            starts = self._starts.setdefault(
                replica, Starts(lambda message: self._post_events(message.SerializeToString()))
            )
            starts.send([state], resource, time.monotonic())
        return True

    def close(self) -> None:
        """Cut a retry short, from any thread; nothing is sent afterwards."""
        if not self._closed:
            self._closed = True
            self._spans.shutdown()  # type: ignore[no-untyped-call]  # the SDK's own lapse
            self._metrics.shutdown()


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
        self._thread = threading.Thread(target=self._run, name="simulator-sender", daemon=True)
        self._thread.start()

    def put(self, batch: Batch, stop: threading.Event) -> bool:
        """Queue a batch, waiting for room; False, with the batch dropped, once `stop` is set."""
        while not stop.is_set():
            try:
                self._queue.put(batch, timeout=0.2)
            except queue.Full:
                continue
            return True
        return self.offer(batch)

    def offer(self, batch: Batch) -> bool:
        """Queue a batch if there is room; else drop and count it."""
        try:
            self._queue.put_nowait(batch)
        except queue.Full:
            self._drop(batch)
            return False
        return True

    def drain(self, stop: threading.Event) -> None:
        """Wait until all that was queued has been sent or dropped, or `stop` is set."""
        with self._queue.all_tasks_done:
            while self._queue.unfinished_tasks and not stop.is_set():
                self._queue.all_tasks_done.wait(0.2)

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
