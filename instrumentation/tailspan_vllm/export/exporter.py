"""Exports spans, samples, engine starts and requests in flight, on the sending thread."""

import os
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk.resources import Resource

from tailspan_vllm import guard
from tailspan_vllm.engine_state.state import EngineState, EngineStateSample
from tailspan_vllm.export.engine_starts import EngineStarts
from tailspan_vllm.export.export_log import ExportLog
from tailspan_vllm.export.in_flight_reports import BuildInFlight, InFlightReports
from tailspan_vllm.export.outbox import Outbox
from tailspan_vllm.export.reader import SAMPLES_LIMIT
from tailspan_vllm.export.retry import Backoff
from tailspan_vllm.export.span_queue import Drops, SpanQueue
from tailspan_vllm.export.transport import ExportResponse, post_to
from tailspan_vllm.otlp.encoder import export_of
from tailspan_vllm.otlp.engine_metrics import encode_samples
from tailspan_vllm.otlp.request_span import SCOPE
from tailspan_vllm.request.in_flight import InFlight
from tailspan_vllm.settings import Settings, resource_attributes

SAMPLES_PER_EXPORT: Final = 120
"""A sample has about 6 kB, and many collectors accept at most 4 MiB."""


class Exporter:
    """Sends the queued data of each signal, and counts dropped requests."""

    def __init__(self, settings: Settings, drops: Drops, reports: ExportLog) -> None:
        self._settings = settings
        self._reports = reports
        self._post = {signal: post_to(where) for signal, where in settings.destinations.items()}
        # Create the resource now. OpenTelemetry's detectors start threads, which fails while a
        # program ends.
        self._detected = _detected()
        self._port: int | None = None
        self._resource = self._named_resource()
        self._spans: dict[SpanQueue, Outbox[bytes]] = {}
        self._spans_backoff = Backoff()
        self._drops = drops
        self._metrics = Outbox[EngineStateSample](
            self._post["metrics"],
            lambda samples: encode_samples(samples, self._resource),
            SAMPLES_PER_EXPORT,
            lambda _count, _reason: None,  # totals are cumulative: lost samples lose no counts
            partial(reports.note, "metrics"),
        )
        self._samples: deque[EngineStateSample] = deque(maxlen=SAMPLES_LIMIT)
        self._starts = EngineStarts(self._send_events)
        self._in_flight = InFlightReports(self._send_events)

    def name(self, port: int | None) -> None:
        """Set the port in the replica's name. If the port is new, send engine starts again."""
        if port != self._port:
            self._port = port
            self._resource = self._named_resource()
            self._starts.resend()

    @guard.catch_exceptions("send_spans")
    def send_spans(self, queue: SpanQueue) -> None:
        """Send the encoded spans of a queue."""
        if queue not in self._spans:
            self._spans[queue] = Outbox(
                self._post["traces"],
                lambda spans: export_of(self._resource, SCOPE, spans),
                self._settings.batch_limit,
                self._drops.add,
                partial(self._reports.note, "traces"),
                backoff=self._spans_backoff,  # one collector, so one retry pause
            )
        self._spans[queue].send(queue.spans, queue.taken)

    @guard.catch_exceptions("send_samples")
    def send_samples(self, samples: deque[EngineStateSample]) -> None:
        """Send samples. While the collector is unreachable, keep the latest `SAMPLES_LIMIT`
        samples."""
        while samples:
            self._samples.append(samples.popleft())
        self._metrics.send(self._samples)

    @guard.catch_exceptions("send_starts")
    def send_starts(self, engines: Mapping[int, EngineState]) -> None:
        """Send engine starts that the collector has not accepted yet."""
        if self._reports.unavailable - {"logs"}:
            self._starts.resend()
        elif self._settings.events:
            self._starts.send(list(engines.values()), self._resource, time.monotonic())

    @guard.catch_exceptions("send_in_flight")
    def send_in_flight(self, in_flight: InFlight, build: BuildInFlight) -> None:
        """Report requests in flight, unless spans are waiting. Reports must not delay spans."""
        if (
            self._settings.events
            and self._settings.spans
            and not self._reports.unavailable - {"logs"}
        ):
            self._in_flight.send(in_flight, build, self._resource)

    def _send_events(self, message: ExportLogsServiceRequest) -> ExportResponse:
        outcome = self._post["logs"](message.SerializeToString())
        self._reports.note("logs", outcome)
        return outcome

    def _named_resource(self) -> Resource:
        return self._detected.merge(Resource(resource_attributes(os.environ, self._port)))


def _detected() -> Resource:
    try:
        return Resource.create()
    except Exception:  # a detector failed, or an OTEL_* variable is malformed
        guard.note_failure("resource")
        return Resource({})
