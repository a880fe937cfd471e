from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rig.http_servers import HttpReply, ReceivedRequest, running_http_server


class TinyCollector:
    """A collector that stores exports in order. It first refuses exports, once with each status in
    `refusals`."""

    def __init__(self) -> None:
        self.url = ""
        self.refusals: list[int] = []
        self.refused = 0
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.events: list[ExportLogsServiceRequest] = []

    def take(self, path: str, body: bytes) -> int:
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
    tiny = TinyCollector()

    def answer(request: ReceivedRequest) -> HttpReply:
        return HttpReply(tiny.take(request.path, request.body), headers={"Retry-After": "0"})

    with running_http_server(answer) as server:
        tiny.url = server.url
        yield tiny
