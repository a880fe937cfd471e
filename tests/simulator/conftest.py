"""A collector small enough to look through: it parses what comes and answers as told."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class TinyCollector:
    """What has arrived, in order; `refusals` are the statuses to answer first."""

    def __init__(self) -> None:
        self.url = ""
        self.refusals: list[int] = []
        self.refused = 0
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.events: list[ExportLogsServiceRequest] = []

    def take(self, path: str, body: bytes) -> int:
        """The status for one export; what gets a 200 is kept."""
        if self.refusals:
            self.refused += 1
            return self.refusals.pop(0)
        if path == "/v1/traces":
            self.traces.append(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        elif path == "/v1/logs":
            self.events.append(ExportLogsServiceRequest.FromString(body))
        else:
            return 404
        return 200


@pytest.fixture
def collector() -> Iterator[TinyCollector]:
    """A collector on a free port of this machine."""
    tiny = TinyCollector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(tiny.take(self.path, body))
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    tiny.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield tiny
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
