"""Sends what was captured: one thread, bounded queues, OTLP out.

The server's threads only append to the queue. Each second this thread completes what has
ended and looks at the engines; every few seconds, or when a batch is full, it sends both: an
export costs more than all that is in it. While the collector is away the newest records are
kept up to the limit and the rest is counted as dropped; spans that were built keep their ids
through every retry, so that a repeat is recognised as one.
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
from tailspan_vllm.events import exporting
from tailspan_vllm.join import EngineJoin
from tailspan_vllm.link import TOKEN_VARIABLE
from tailspan_vllm.metrics import EngineState, Number, Sample, metrics_of
from tailspan_vllm.otlp import Batch, quicken
from tailspan_vllm.processors import Processors
from tailspan_vllm.record import RequestRecord
from tailspan_vllm.settings import Settings, resource_attributes
from tailspan_vllm.spans import span_of
from tailspan_vllm.starts import Export, Starts
from tailspan_vllm.telling import Tell

logger = logging.getLogger("vllm.tailspan")

THREAD_NAME = "tailspan-sender"
FLUSH_S = 2.0
SAMPLE_S = 1.0
"""Between two looks at the engines."""

SAMPLES_KEPT = 600
"""Samples kept while the collector is away; the oldest give way, for totals go on."""

LOOKS, LOOK_S = 200, 0.05
"""How often to look out for the engine of a first request, and how long between looks. There
may be none: engines on another machine have no link."""

JOIN_S = 2.0
"""How long a record waits for the engine's account of it."""


class Sender:
    """Queue in front, OTLP behind. `submit` may be called from any thread and never blocks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ended: deque[tuple[float, Tell]] = deque()
        self._records: list[tuple[float, RequestRecord]] = []
        """Made, and waiting for the engine's account."""
        self._processors = Processors()
        self._join = EngineJoin(os.environ.get(TOKEN_VARIABLE))
        self._spans: deque[ReadableSpan] = deque()
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_KEPT)
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
            engines: looked at each second; engines that are heard of otherwise are added.
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

    def submit(self, tell: Tell) -> None:
        """Queue a request that is over; dropped and counted when the queue is full.

        Args:
            tell: makes its record; called on the sending thread.
        """
        if not self._settings.enabled or not self._settings.spans:
            return
        if len(self._ended) + len(self._records) + len(self._spans) >= self._settings.queue_limit:
            self._dropped += 1
            return
        self._ended.append((time.monotonic(), tell))
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
        starts = Starts(_event_export(self._settings))
        _hush_exporters()
        # Its detectors use threads, which a program that is ending may no longer start.
        detected = Resource.create()
        # A server names its port when its application is built, some seconds after its
        # engine: until then there is nothing to tell that could not wait.
        self._pause(SAMPLE_S)
        # vLLM sets its logging up after it has loaded its plugins: said here, it is seen.
        logger.info(
            "tailspan: capturing; spans and samples go to %s (%s)",
            _endpoint(),
            self._settings.protocol,
        )
        mine = Resource(resource_attributes(os.environ, self._port))
        resource = detected.merge(mine)
        tick_s = min(SAMPLE_S, self._settings.interval_s)
        due = 0.0
        while True:
            begun = time.monotonic()
            closing = self._closing  # what is said after this is for the next round
            self._read_link()
            self._look_at_engines()
            if closing or begun >= due or len(self._ended) >= self._settings.batch_limit:
                due = begun + self._settings.interval_s - tick_s / 2
                self._complete(resource)
                self._send_spans(spans)
                self._send_samples(metrics, resource)
                self._send_starts(starts, resource)
            if closing:
                self._join.close()
                return
            self._pause(max(0.05, tick_s - (time.monotonic() - begun)))

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
                self._read_link()
                time.sleep(LOOK_S)

    @guard.harmless("read_link")
    def _read_link(self) -> None:
        self._join.read()

    @guard.harmless("complete")
    def _complete(self, resource: Resource) -> None:
        """Make spans of the requests of which all is known that will be."""
        while self._ended:
            self._make(*self._ended.popleft())
        now, waiting = time.monotonic(), []
        for ended_at, record in self._records:
            if self._join.apply(record) or self._closing or now - ended_at >= JOIN_S:
                self._build(record, resource)
            else:
                waiting.append((ended_at, record))
        self._records = waiting

    @guard.harmless("tell")
    def _make(self, ended_at: float, tell: Tell) -> None:
        self._records.append((ended_at, tell()))

    @guard.harmless("span")
    def _build(self, record: RequestRecord, resource: Resource) -> None:
        self._spans.append(span_of(record, resource))

    @guard.harmless("look_at_engines")
    def _look_at_engines(self) -> None:
        for state in self._join.unclaimed(self._engines):
            self._engines[state.engine] = state
        now_unix_ns = time.time_ns()
        own: dict[str, Number] = {names.SPANS_DROPPED: self._dropped, **self._processors.host()}
        failures = dict(guard.failures)
        for state in list(self._engines.values()):
            state.catch_up()
            self._join.tell(state)
            state.totals |= self._processors.core(self._join.process_of(state.engine))
            if (cpus := os.cpu_count()) is not None:
                state.gauges[names.HOST_CPUS] = cpus
            if self._settings.metrics:
                self._samples.append(Sample(now_unix_ns, state.standing(own, failures)))

    @guard.harmless("send_spans")
    def _send_spans(self, exporter: SpanExporter) -> None:
        while self._spans:
            count = min(self._settings.batch_limit, len(self._spans))
            batch = Batch(self._spans[index] for index in range(count))
            result = exporter.export(batch)
            self._note(result is SpanExportResult.SUCCESS)
            if result is not SpanExportResult.SUCCESS:
                return
            for _ in range(count):
                self._spans.popleft()

    @guard.harmless("send_samples")
    def _send_samples(self, exporter: MetricExporter, resource: Resource) -> None:
        if not self._samples:
            return
        result = exporter.export(metrics_of(self._samples, resource))
        self._note(result is MetricExportResult.SUCCESS)
        if result is MetricExportResult.SUCCESS:
            self._samples.clear()

    @guard.harmless("send_starts")
    def _send_starts(self, starts: Starts, resource: Resource) -> None:
        if self._unreachable:
            starts.tell_again()
        elif self._settings.events:
            starts.send(list(self._engines.values()), resource, time.monotonic())

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
        quicken(metric_exporter)
        return (
            trace_exporter.OTLPSpanExporter(endpoint=settings.traces_endpoint),
            metric_exporter.OTLPMetricExporter(),
        )
    from opentelemetry.exporter.otlp.proto.http import metric_exporter as http_metrics
    from opentelemetry.exporter.otlp.proto.http import trace_exporter as http_traces

    quicken(http_traces)
    quicken(http_metrics)
    return (
        http_traces.OTLPSpanExporter(endpoint=settings.traces_endpoint),
        http_metrics.OTLPMetricExporter(),
    )


def _event_export(settings: Settings) -> Export:
    try:
        if settings.protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc import _log_exporter as grpc_logs

            return exporting(grpc_logs)
        from opentelemetry.exporter.otlp.proto.http import _log_exporter as http_logs

        return exporting(http_logs)
    except (ImportError, AttributeError) as error:
        # OpenTelemetry does not promise this module yet; spans and samples go without it.
        logger.warning("tailspan: engine starts are not told: %s", error)
        return lambda _: True
