"""Send records and states in batches over OTLP/HTTP, from a separate thread.

A failed batch is retried until a time limit, and is then dropped and counted. A batch that the
collector refuses is dropped immediately. After a drop, each batch is tried only once until the
collector accepts a batch, so that the data from after the outage is not lost. Redirects are not
followed, because the headers may contain a credential.
"""

import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState, EngineStateSample
from tailspan_vllm.export.destination import Signal, destination_of
from tailspan_vllm.export.engine_starts import EngineStarts
from tailspan_vllm.export.retry import Backoff, deliver
from tailspan_vllm.export.transport import ExportResponse, ExportVerdict, post_to
from tailspan_vllm.otlp.encoder import encode_numbers, encode_span, export_of
from tailspan_vllm.otlp.engine_metrics import encode_samples
from tailspan_vllm.otlp.request_span import SCOPE, span_of
from tailspan_vllm.request.record import RequestRecord

from simulator.router_span import SCOPE as ROUTER_SCOPE
from simulator.start_parts import start_span_of
from telemetry.gpu_export import gpu_metrics_of
from telemetry.gpus import GpuSample

EXPORT_S = 5.0
PATIENCE_S = 60.0
"""A failed batch is sent again for at most this many seconds."""
QUEUED_BATCHES = 128
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0
LONGEST_REQUESTED_PAUSE_S = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EndedRequests:
    """Ended requests, each with its server's resource."""

    records: Sequence[tuple[RequestRecord, Resource]]
    routed: Sequence[ReadableSpan] = ()
    """The spans at the router, which are not counted as requests."""


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Engine states with resources and times, and GPU samples with resources."""

    states: Sequence[tuple[EngineState, Resource, int]]
    gpus: Sequence[tuple[GpuSample, Resource]] = ()

    def __len__(self) -> int:
        return len(self.states) + len(self.gpus)


Batch = EndedRequests | SampleBatch


@dataclass(slots=True)
class Sent:
    """Counts of sent, dropped and rejected data."""

    requests: int = 0
    """The number of requests in accepted batches, including rejected requests."""
    samples: int = 0
    dropped_requests: int = 0
    dropped_samples: int = 0
    rejected_requests: int = 0
    """The number of rejected requests in accepted batches (partial success)."""
    rejected_points: int = 0
    """The number of rejected metric data points in accepted batches. A sample has several data
    points."""

    @property
    def all_delivered(self) -> bool:
        """Whether no data was dropped or rejected."""
        return not (
            self.dropped_requests
            or self.dropped_samples
            or self.rejected_requests
            or self.rejected_points
        )


class OtlpExport:
    """Sends batches to one collector.

    Headers, certificates and compression come from the environment (OTEL_EXPORTER_OTLP_…).

    Args:
        endpoint: the base address, for example `http://127.0.0.1:4318`.
        sent: counts the rejected items. Its number of dropped items is sent with every sample.
    """

    def __init__(self, endpoint: str, sent: Sent) -> None:
        base = endpoint.rstrip("/")

        def post(signal: Signal) -> Callable[[bytes], ExportResponse]:
            given = destination_of(os.environ, signal, "http/protobuf", _log.warning)
            where = replace(given, endpoint=f"{base}/v1/{signal}", timeout_s=EXPORT_S)
            return post_to(where)

        self._traces, self._metrics, self._events = post("traces"), post("metrics"), post("logs")
        self._starts: dict[object, EngineStarts] = {}
        self._started: dict[object, tuple[int, int]] = {}
        """Per replica, the engine and time of the last start whose parts were sent."""
        self._sent = sent
        self._closed = False

    def prepare(self, batch: Batch) -> Callable[[], ExportResponse]:
        """Return a function that tries to send the batch once. Each call sends the same ids, so a
        repeated batch creates no duplicates. After a failure, a call begins with the message that
        failed."""
        if isinstance(batch, EndedRequests):
            spans: dict[Resource, list[bytes]] = {}
            for record, resource in batch.records:
                spans.setdefault(resource, []).append(encode_span(span_of(record, resource)))
            messages = [export_of(of, SCOPE, each) for of, each in spans.items()]
            if batch.routed:
                routed = [*map(encode_span, batch.routed)]
                messages.append(export_of(batch.routed[0].resource, ROUTER_SCOPE, routed))
            traces = b"".join(messages)  # joined protobuf messages are again a valid message
            return lambda: self._send_traces(traces)
        dropped = {names.SPANS_DROPPED: self._sent.dropped_requests}
        samples: dict[Resource, list[EngineStateSample]] = {}
        for state, resource, at_unix_ns in batch.states:
            snapshot = state.snapshot(dropped, {})
            samples.setdefault(resource, []).append(EngineStateSample(at_unix_ns, snapshot))
        gpus: dict[Resource, list[GpuSample]] = {}
        for gpu, resource in batch.gpus:
            gpus.setdefault(resource, []).append(gpu)
        metrics = b"".join(encode_samples(each, of) for of, each in samples.items())
        measured = b"".join(
            encode_numbers(MetricsData([gpu_metrics_of(each, of)])) for of, each in gpus.items()
        )
        unsent = [metrics, *([measured] if gpus else [])]

        def send() -> ExportResponse:
            outcome = self._send_metrics(unsent[0])
            while outcome.verdict is ExportVerdict.ACCEPTED and len(unsent) > 1:
                del unsent[0]  # if it was sent again, its rejected points would count twice
                outcome = self._send_metrics(unsent[0])
            if outcome.verdict is ExportVerdict.ACCEPTED:
                self._send_starts(batch.states)
            return outcome

        return send

    def _send_traces(self, message: bytes) -> ExportResponse:
        outcome = self._send(self._traces, message)
        self._sent.rejected_requests += outcome.rejected
        return outcome

    def _send_metrics(self, message: bytes) -> ExportResponse:
        outcome = self._send(self._metrics, message)
        self._sent.rejected_points += outcome.rejected
        return outcome

    def _send_starts(self, states: Sequence[tuple[EngineState, Resource, int]]) -> None:
        """Send the engine starts that were not sent before. If sending fails, samples are still
        sent."""
        for state, resource, _ in states:
            replica = resource.attributes.get(names.SERVICE_INSTANCE_ID)
            starts = self._starts.setdefault(
                replica,
                EngineStarts(lambda message: self._send(self._events, message.SerializeToString())),
            )
            starts.send([state], resource, time.monotonic())
            begun = (state.engine, state.started_unix_ns)
            if self._started.get(replica) == begun:
                continue
            span = encode_span(start_span_of(state, str(replica)))
            outcome = self._send(self._traces, export_of(resource, SCOPE, [span]))
            if not outcome.retryable:
                self._started[replica] = begun

    def _send(self, post: Callable[[bytes], ExportResponse], message: bytes) -> ExportResponse:
        return (
            ExportResponse(ExportVerdict.UNREACHABLE, "closed") if self._closed else post(message)
        )

    def close(self) -> None:
        """Stop sending after the current message. This function may be called from any thread."""
        self._closed = True


class BatchSender:
    """A bounded queue, and the thread that sends its batches in order.

    Args:
        prepare: returns a function that sends the batch once.
        log_line: called when the collector becomes unreachable, and when it is reachable again.
        capacity: the maximum number of batches in the queue.
        receiver: the name of the collector in log messages.
    """

    def __init__(
        self,
        prepare: Callable[[Batch], Callable[[], ExportResponse]],
        log_line: Callable[[str], None],
        sent: Sent,
        *,
        patience_s: float = PATIENCE_S,
        capacity: int = QUEUED_BATCHES,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
        receiver: str = "the collector",
    ) -> None:
        self.sent = sent
        self._prepare = prepare
        self._log_line = log_line
        self._patience_s = patience_s
        self._clock = clock
        self._receiver = receiver
        self._backoff = Backoff(
            first_s=FIRST_PAUSE_S,
            longest_s=LONGEST_PAUSE_S,
            longest_requested_s=LONGEST_REQUESTED_PAUSE_S,
        )
        self._queue: queue.Queue[Batch | None] = queue.Queue(capacity)
        self._hurry = threading.Event()
        self._pause = pause or self._hurry.wait
        self._unavailable = False
        self._failing = False
        self._queued_requests = 0
        self._done_requests = 0
        self._thread = threading.Thread(target=self._run, name="simulator-sender", daemon=True)
        self._thread.start()

    @property
    def unavailable(self) -> bool:
        """Whether a batch has been dropped, and no batch has been accepted since then."""
        return self._unavailable

    @property
    def waiting_requests(self) -> int:
        """The number of requests that are queued or being sent."""
        return self._queued_requests - self._done_requests

    def put(self, batch: Batch, stop: threading.Event) -> bool:
        """Queue a batch.

        Wait while the queue is full and `stop` is not set. Return whether the batch was queued.
        """
        while not stop.is_set():
            try:
                self._queue.put(batch, timeout=0.2)
            except queue.Full:
                continue
            self._queued_requests += _requests_in(batch)
            return True
        return self.offer(batch)

    def offer(self, batch: Batch) -> bool:
        """Queue a batch. If the queue is full, drop and count the batch, and return False."""
        try:
            self._queue.put_nowait(batch)
        except queue.Full:
            self._drop(batch)
            return False
        self._queued_requests += _requests_in(batch)
        return True

    def drain(self, stop: threading.Event, within_s: float = math.inf) -> bool:
        """Wait until all batches have been sent or dropped, or until `stop` is set.

        Return whether the queue is empty.
        """
        deadline = time.monotonic() + within_s
        with self._queue.all_tasks_done:
            while (
                self._queue.unfinished_tasks and not stop.is_set() and time.monotonic() < deadline
            ):
                self._queue.all_tasks_done.wait(0.2)
            return not self._queue.unfinished_tasks

    def close(self, within_s: float, abandon: Callable[[], None]) -> None:
        """Send queued batches for about `within_s` seconds.

        Then drop the remaining batches and end the thread. `abandon` interrupts a batch that is
        being sent at the time limit.
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
            elif isinstance(batch, EndedRequests):
                self.sent.requests += len(batch.records)
            else:
                self.sent.samples += len(batch)
            self._done_requests += _requests_in(batch)
            self._queue.task_done()

    def _deliver(self, batch: Batch) -> bool:
        send = self._prepare(batch)
        give_up = self._clock() + (0.0 if self._unavailable else self._patience_s)
        outcome = deliver(
            lambda: self._attempt(send),
            self._backoff,
            clock=self._clock,
            pause=self._pause,
            last_attempt=lambda: self._clock() >= give_up or self._hurry.is_set(),
        )
        if outcome.verdict is ExportVerdict.ACCEPTED:
            return True
        if outcome.verdict is not ExportVerdict.REFUSED and not self._unavailable:
            self._unavailable = True
            self._log_line(
                f"batches are now dropped after one attempt, until {self._receiver} accepts one"
            )
        return False

    def _attempt(self, send: Callable[[], ExportResponse]) -> ExportResponse:
        try:
            outcome = send()
        except Exception as error:  # must not end the thread
            outcome = ExportResponse(ExportVerdict.UNREACHABLE, f"{type(error).__name__}: {error}")
        if outcome.verdict is ExportVerdict.ACCEPTED:
            if self._failing:
                self._failing = self._unavailable = False
                self._log_line(f"{self._receiver} accepts batches again ({self._dropped_so_far()})")
        elif not self._failing:
            self._failing = True
            why = f" ({outcome.reason})" if outcome.reason else ""
            retry = f"; retrying for up to {self._patience_s:.0f} s" if outcome.retryable else ""
            self._log_line(f"an export to {self._receiver} failed{why}{retry}")
        return outcome

    def _drop(self, batch: Batch) -> None:
        if isinstance(batch, EndedRequests):
            self.sent.dropped_requests += len(batch.records)
        else:
            self.sent.dropped_samples += len(batch)

    def _dropped_so_far(self) -> str:
        return (
            f"{self.sent.dropped_requests} requests and "
            f"{self.sent.dropped_samples} samples dropped so far"
        )


def _requests_in(batch: Batch) -> int:
    return len(batch.records) if isinstance(batch, EndedRequests) else 0
