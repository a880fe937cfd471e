"""An application with OpenTelemetry spans around a call to a model, and the model's server.

The server streams its responses, and reports each request as Tailspan's plugin does.
"""

import http.client
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Tracer
from tailspan_vllm import names
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.record import RequestRecord

QUEUE_S, PREFILL_S, DECODE_S = 0.004, 0.012, 0.008
VALIDATION_S, RETRIEVAL_S, TOOL_S, FORMATTING_S = 0.002, 0.01, 0.005, 0.004


class ModelServer(ThreadingHTTPServer):
    """Streams two tokens per request, and keeps the span of each request."""

    daemon_threads = True

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        received = time.monotonic()
        _, trace_id, parent_id, _ = self.headers["traceparent"].split("-")
        self.rfile.read(int(self.headers["content-length"]))
        queued = time.monotonic()
        time.sleep(QUEUE_S)
        scheduled = time.monotonic()
        time.sleep(PREFILL_S)
        first_token = time.monotonic()
        self.send_response(200)
        self.end_headers()
        # The time is read before the byte is sent, as in the plugin, because the client may receive
        # the byte at once.
        first_byte = time.monotonic()
        self.wfile.write(b"data: one\n\n")
        time.sleep(DECODE_S)
        last_token = time.monotonic()
        number = len(self.server.spans)
        record = RequestRecord(
            received=received,
            queued=queued,
            scheduled=scheduled,
            first_token=first_token,
            first_byte=first_byte,
            last_token=last_token,
            delivered=last_token,
            wall_offset_ns=time.time_ns() - time.monotonic_ns(),
            outcome="stop",
            basis="http",
            request_id=f"chatcmpl-{number}",
            streamed=True,
            output_tokens=2,
            trace_id=int(trace_id, 16),
            parent_span_id=int(parent_id, 16),
        )
        resource = Resource({names.SERVICE_NAME: "vllm", names.SERVICE_INSTANCE_ID: "r0"})
        self.server.spans.append(span_of(record, resource))
        self.wfile.write(b"data: two\n\n")


@dataclass(frozen=True, slots=True)
class Waited:
    """The times that the application measured for one request."""

    first_token_s: float
    whole_s: float


class Application:
    """Validates, retrieves, uses a tool, calls the model, and formats the response."""

    def __init__(self, model_port: int) -> None:
        self._port = model_port
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(resource=Resource({"service.name": "assistant"}))
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._tracer: Tracer = provider.get_tracer("assistant")

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def answer(self, before: Callable[[], None] = lambda: None) -> Waited:
        """Serve one user, with `before` as additional work before the call."""
        began = time.perf_counter()
        with self._operation("invoke_workflow"):
            self._sleep("validation", VALIDATION_S)
            self._sleep("retrieval", RETRIEVAL_S)
            self._sleep("execute_tool", TOOL_S)
            before()
            first_token = self._call()
            self._sleep("formatting", FORMATTING_S)
        return Waited(first_token - began, time.perf_counter() - began)

    def _call(self) -> float:
        with self._operation("chat", SpanKind.CLIENT) as span:
            called = time.perf_counter()
            context = span.get_span_context()
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
            header = f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
            connection.request("POST", "/v1/chat/completions", b"{}", {"traceparent": header})
            response = connection.getresponse()
            response.readline()
            first_token = time.perf_counter()
            span.set_attribute("gen_ai.response.time_to_first_chunk", first_token - called)
            response.read()
            connection.close()
        return first_token

    def _sleep(self, operation: str, seconds: float) -> None:
        with self._operation(operation):
            time.sleep(seconds)

    def _operation(self, name: str, kind: SpanKind = SpanKind.INTERNAL) -> Any:
        attributes = {"gen_ai.operation.name": name, "gen_ai.input.messages": "a secret prompt"}
        return self._tracer.start_as_current_span(name, kind=kind, attributes=attributes)


@contextmanager
def model_server() -> Any:
    """Run the model's server until the end of the `with` block."""
    with ModelServer() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def export(spans: list[ReadableSpan], port: int) -> None:
    exporter = OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces", timeout=30)
    exporter.export(spans)
    exporter.shutdown()  # type: ignore[no-untyped-call]
