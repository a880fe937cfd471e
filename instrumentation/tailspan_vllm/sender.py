"""Sends what was captured: one thread, a bounded queue, OTLP out.

The server's threads only append to the queue. While the collector is away the newest
records are kept up to the limit and the rest is counted as dropped; spans that were built
keep their ids through every retry, so that a repeat is recognised as one.
"""

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from tailspan_vllm import guard, names
from tailspan_vllm.join import EngineJoin
from tailspan_vllm.link import TOKEN_VARIABLE
from tailspan_vllm.metrics import EngineState, Number, metrics_of
from tailspan_vllm.otlp import Batch, quicken
from tailspan_vllm.record import RequestRecord
from tailspan_vllm.settings import Settings, resource_attributes
from tailspan_vllm.spans import span_of

logger = logging.getLogger("vllm.tailspan")

THREAD_NAME = "tailspan-sender"
FLUSH_S = 2.0
LOOKS, LOOK_S = 200, 0.05
"""How often to look out for the engine of a first request, and how long between looks. There
may be none: engines on another machine have no link."""

JOIN_S = 2.0
"""How long a record waits for the engine's account of it."""


class Sender:
    """Queue in front, OTLP behind. `submit` may be called from any thread and never blocks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._records: deque[tuple[float, RequestRecord]] = deque()
        self._join = EngineJoin(os.environ.get(TOKEN_VARIABLE))
        self._spans: deque[ReadableSpan] = deque()
        self._engines: dict[int, EngineState] = {}
        self._at_end: Callable[[], None] = _nothing
        self._port: int | None = None
        self._dropped = 0
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._looks_left = LOOKS
        self._unreachable = False

    def observe(self, engines: dict[int, EngineState], at_end: Callable[[], None]) -> None:
        """Say where the engines' states are to be read each second, and what to do at the end.

        Args:
            engines: read each second; engines that are heard of otherwise are added.
            at_end: called before the last round.
        """
        self._engines, self._at_end = engines, at_end

    def serves_port(self, port: int | None) -> None:
        """Note the port that names this replica; of use before the first export only."""
        self._port = port

    def start(self) -> None:
        """Start the thread, once."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def submit(self, record: RequestRecord) -> None:
        """Queue a record; dropped and counted when the queue is full."""
        if not self._settings.enabled or not self._settings.spans:
            return
        if len(self._records) + len(self._spans) >= self._settings.queue_limit:
            self._dropped += 1
            return
        self._records.append((time.monotonic(), record))
        if self._thread is None:
            self.start()

    def expect(self) -> None:
        """A request has set out for the engine: be there when it speaks."""
        if self._looks_left and not self._join.connected and self._settings.enabled:
            self.start()
            self._wake.set()

    def close(self) -> None:
        """Send what is left, within `FLUSH_S`, and stop."""
        self._say_goodbye()
        self._closing = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(FLUSH_S)

    @guard.harmless("at_end")
    def _say_goodbye(self) -> None:
        self._at_end()

    # --- the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        spans, metrics = _exporters(self._settings)
        _hush_exporters()
        # Its detectors use threads, which a program that is ending may no longer start.
        detected = Resource.create()
        # A server names its port when its application is built, some seconds after its
        # engine: until then there is nothing to tell that could not wait.
        self._pause(self._settings.interval_s)
        # vLLM sets its logging up after it has loaded its plugins: said here, it is seen.
        logger.info(
            "tailspan: capturing; spans and samples go to %s (%s)",
            _endpoint(),
            self._settings.protocol,
        )
        mine = Resource(resource_attributes(os.environ, self._port))
        resource = detected.merge(mine)
        while True:
            begun = time.monotonic()
            self._send_spans(spans, resource)
            self._send_metrics(metrics, resource)
            if self._closing:
                self._join.close()
                return
            self._pause(max(0.05, self._settings.interval_s - (time.monotonic() - begun)))

    def _pause(self, seconds: float) -> None:
        """Wait for the next round; meanwhile look out for an engine that is about to speak.

        An engine answers the door between its steps, and after a short burst there may be no
        further step for hours.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._closing:
            if self._wake.wait(left) and not self._closing:
                if self._join.connected or not self._looks_left:
                    self._wake.clear()
                    continue
                self._looks_left -= 1
                self._look()
                time.sleep(LOOK_S)

    @guard.harmless("look_for_engine")
    def _look(self) -> None:
        self._join.read()

    @guard.harmless("send_spans")
    def _send_spans(self, exporter: SpanExporter, resource: Resource) -> None:
        self._join.read()
        now = time.monotonic()
        while self._records:
            queued_at, record = self._records[0]
            if not self._join.apply(record) and not self._closing and now - queued_at < JOIN_S:
                break
            self._records.popleft()
            self._spans.append(span_of(record, resource))
        while self._spans:
            count = min(self._settings.batch_limit, len(self._spans))
            batch = Batch(self._spans[index] for index in range(count))
            result = exporter.export(batch)
            self._note(result is SpanExportResult.SUCCESS)
            if result is not SpanExportResult.SUCCESS:
                return
            for _ in range(count):
                self._spans.popleft()

    @guard.harmless("send_metrics")
    def _send_metrics(self, exporter: MetricExporter, resource: Resource) -> None:
        for state in self._join.unclaimed(self._engines):
            self._engines[state.engine] = state
        states = list(self._engines.values())
        for state in states:
            self._join.tell(state)
        if not states or not self._settings.metrics:
            return
        own: dict[str, Number] = {names.SPANS_DROPPED: self._dropped}
        data = metrics_of(states, resource, time.time_ns(), own, dict(guard.failures))
        self._note(exporter.export(data) is MetricExportResult.SUCCESS)

    def _note(self, reached: bool) -> None:
        """One line when the collector goes away, one when it is back."""
        if reached == self._unreachable:
            if reached:
                logger.warning("tailspan: the collector at %s is back", _endpoint())
            else:
                logger.warning(
                    "tailspan: no collector at %s (%s); keeping up to %d spans, trying again",
                    _endpoint(),
                    self._settings.protocol,
                    self._settings.queue_limit,
                )
            self._unreachable = not reached


def _nothing() -> None:
    """Nothing to do."""


class _NotOurs(logging.Filter):
    """Keeps OpenTelemetry's line-a-retry of our own thread out of the server's log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.threadName != THREAD_NAME


def _hush_exporters() -> None:
    """Filter every logger of the exporters: a filter is not handed down from parent to child."""
    for name, known in list(logging.root.manager.loggerDict.items()):
        if name.startswith("opentelemetry.exporter") and isinstance(known, logging.Logger):
            known.addFilter(_NotOurs())


def _endpoint() -> str:
    return os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317, by default")


def _exporters(settings: Settings) -> tuple[SpanExporter, MetricExporter]:
    if settings.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc import metric_exporter, trace_exporter

        quicken(trace_exporter)
        return trace_exporter.OTLPSpanExporter(), metric_exporter.OTLPMetricExporter()
    from opentelemetry.exporter.otlp.proto.http import metric_exporter as http_metrics
    from opentelemetry.exporter.otlp.proto.http import trace_exporter as http_traces

    quicken(http_traces)
    return http_traces.OTLPSpanExporter(), http_metrics.OTLPMetricExporter()
