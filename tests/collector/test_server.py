"""The collector with real clients over both protocols, and with failing ones."""

import asyncio
import gzip
import json
import socket
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import grpc
import httpx
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
    OTLPMetricExporter as GrpcMetricExporter,
)
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcSpanExporter,
)
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
    OTLPMetricExporter as HttpMetricExporter,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
    OTLPSpanExporter as HttpSpanExporter,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from tailspan_vllm import names

from collector.counters import Counters
from collector.errors import IntakeBusyError, ListenError
from collector.gpus.otlp_message import message
from collector.intake import STORE_RETRY_S, Intake
from collector.limits.sender_limits import CollectorLimits
from collector.otlp.message_reader import LocalReader
from collector.server import Collector
from collector.signals import TRACES
from collector.testing import MemorySink, background_loop, running
from telemetry.gpus import GpuSample

Call = Callable[..., Any]


MAX_BODY_BYTES = 64 * 1024
PROTOBUF = {"Content-Type": "application/x-protobuf"}

Message = Callable[..., ExportTraceServiceRequest]
Make = Callable[..., Collector]
Stub: Any = TraceServiceStub  # the constructor has no type annotations


class _Listener:
    """A listener that records its calls, and can fail."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.samples: list[Any] = []
        self.gpus: list[Any] = []
        self.fails = False

    def on_stored(self, requests: Any, samples: Any) -> None:
        if self.fails:
            raise RuntimeError("a listener's bug")
        self.requests.extend(requests)
        self.samples.extend(samples)

    def on_gpus_stored(self, gpus: Any) -> None:
        if self.fails:
            raise RuntimeError("a listener's bug")
        self.gpus.extend(gpus)


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


@pytest.fixture
def listener() -> _Listener:
    return _Listener()


@pytest.fixture
def collector_of(now_unix_ns: int) -> Callable[..., Collector]:
    def make(sink: MemorySink, *listeners: _Listener, **options: Any) -> Collector:
        plain: dict[str, Any] = {
            "grpc_port": 0,
            "http_port": 0,
            "clock_unix_ns": lambda: now_unix_ns,
        }
        return Collector(sink, listeners, **{**plain, **options})

    return make


@pytest.fixture
def collector(sink: MemorySink, listener: _Listener, collector_of: Make) -> Iterator[Collector]:
    limits = CollectorLimits(max_body_bytes=MAX_BODY_BYTES)
    with running(collector_of(sink, listener, limits=limits, gpu_listeners=[listener])) as made:
        yield made


def _post(
    collector: Collector, body: bytes, headers: dict[str, str], path: str = "/v1/traces"
) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", collector.http_port, timeout=30)
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def _status(body: bytes) -> Any:
    return Status.FromString(body)


def _count(collector: Collector, *key: str) -> int:
    report = collector.counters.report()
    return {**report.items, **report.messages}[key[0], key[1], key[2]]


@pytest.fixture
def call(collector: Collector) -> Iterator[Callable[..., ExportTraceServiceResponse]]:
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        yield lambda message, **options: Stub(channel).Export(message, timeout=30, **options)


def test_samples_of_gpus_reach_sink_and_listener(
    collector: Collector, sink: MemorySink, listener: _Listener, now_unix_ns: int
) -> None:
    gpu = GpuSample(replica="r1", gpu="GPU-1", at_unix_ns=now_unix_ns, power_w=300.0)
    assert _post(collector, message([gpu]), PROTOBUF, "/v1/metrics")[0].status == 200
    assert sink.gpus == listener.gpus == [gpu]
    assert collector.counters.report().listener_failures == 0


def _span_exporter(kind: str, collector: Collector) -> Any:
    if kind == "grpc":
        return GrpcSpanExporter(endpoint=f"http://127.0.0.1:{collector.grpc_port}", insecure=True)
    if kind == "grpc-gzip":
        return GrpcSpanExporter(
            endpoint=f"http://127.0.0.1:{collector.grpc_port}",
            insecure=True,
            compression=grpc.Compression.Gzip,
        )
    compression = {"http": None, "http-gzip": Compression.Gzip, "http-deflate": Compression.Deflate}
    return HttpSpanExporter(
        endpoint=f"http://127.0.0.1:{collector.http_port}/v1/traces", compression=compression[kind]
    )


@pytest.mark.parametrize("kind", ["grpc", "grpc-gzip", "http", "http-gzip", "http-deflate"])
def test_the_sdks_spans_reach_sink_and_listener(
    collector: Collector,
    sink: MemorySink,
    listener: _Listener,
    span: Callable[..., ReadableSpan],
    kind: str,
) -> None:
    exporter = _span_exporter(kind, collector)
    spans = [span(request_id=f"chatcmpl-{n}") for n in range(20)]
    assert exporter.export(spans) is SpanExportResult.SUCCESS
    exporter.shutdown()
    assert [row.request_id for row in sink.requests] == [f"chatcmpl-{n}" for n in range(20)]
    assert listener.requests == sink.requests
    assert _count(collector, "traces", "stored", "") == 20
    assert _count(collector, kind[:4], "traces", "acknowledged") == 1


@pytest.mark.parametrize("kind", ["grpc", "http"])
def test_the_sdks_metrics_reach_sink_and_listener(
    collector: Collector,
    sink: MemorySink,
    listener: _Listener,
    metrics: Callable[..., MetricsData],
    kind: str,
) -> None:
    exporter: Any = (
        GrpcMetricExporter(endpoint=f"http://127.0.0.1:{collector.grpc_port}", insecure=True)
        if kind == "grpc"
        else HttpMetricExporter(endpoint=f"http://127.0.0.1:{collector.http_port}/v1/metrics")
    )
    assert exporter.export(metrics()) is MetricExportResult.SUCCESS
    exporter.shutdown()
    [sample] = sink.samples
    assert (sample.replica, sample.waiting, sample.steps_total) == ("replica-1", 3, 1000)
    assert listener.samples == [sample]
    assert _count(collector, "metrics", "stored", "") == 12


def test_no_message_is_acknowledged_before_the_commit(
    now_unix_ns: int, collector_of: Make, trace_message: Message
) -> None:
    sink, listener = MemorySink(held=True), _Listener()
    collector = collector_of(sink, listener)
    answered: list[int] = []
    with running(collector), grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        body = trace_message().SerializeToString()
        by_http = threading.Thread(
            target=lambda: answered.append(_post(collector, body, PROTOBUF)[0].status)
        )
        by_http.start()
        by_grpc = Stub(channel).Export.future(trace_message(), timeout=30)
        assert sink.submitted.acquire(timeout=30)
        assert sink.submitted.acquire(timeout=30)
        assert not answered
        assert not by_grpc.done()
        assert not listener.requests
        assert collector.counters.report().waiting_messages == 2
        sink.release()
        by_http.join(timeout=30)
        assert answered == [200]
        assert not by_grpc.result(timeout=30).HasField("partial_success")
        assert len(listener.requests) == len(sink.requests) == 2
        assert collector.counters.report().waiting_messages == 0
        assert collector.counters.report().last_commit_unix_ns == now_unix_ns


def test_a_sender_that_hangs_up_does_not_undo_the_commit(
    collector_of: Make, trace_message: Message
) -> None:
    sink, listener = MemorySink(held=True), _Listener()
    collector = collector_of(sink, listener)
    with running(collector), grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        pending = Stub(channel).Export.future(trace_message(), timeout=30)
        assert sink.submitted.acquire(timeout=30)
        pending.cancel()
        sink.release()
    # When the collector stops, it waits for exports that have begun.
    assert len(listener.requests) == len(sink.requests) == 1


@pytest.mark.parametrize(
    ("fails", "error", "status", "rpc", "reason"),
    [
        ("failure", OSError("disk full"), 503, grpc.StatusCode.UNAVAILABLE, "store_failed"),
        ("refusal", RuntimeError("full"), 503, grpc.StatusCode.RESOURCE_EXHAUSTED, "store_busy"),
        ("failure", ValueError("bad row"), 400, grpc.StatusCode.INVALID_ARGUMENT, "store_refused"),
    ],
)
def test_rows_that_are_not_stored_are_a_failure_that_can_be_retried_or_not(
    collector: Collector,
    sink: MemorySink,
    listener: _Listener,
    call: Call,
    trace_message: Message,
    fails: str,
    error: Exception,
    status: int,
    rpc: grpc.StatusCode,
    reason: str,
) -> None:
    """Without RetryInfo, RESOURCE_EXHAUSTED forbids the client to retry."""
    setattr(sink, fails, error)
    retried = status == 503
    body = trace_message().SerializeToString()
    response, answer = _post(collector, body, PROTOBUF)
    assert response.status == status
    assert response.headers["Retry-After"] == ("1" if retried else None)
    assert _status(answer).code == rpc.value[0]
    with pytest.raises(grpc.RpcError) as failed:
        call(trace_message())
    assert failed.value.code() is rpc
    metadata = dict(failed.value.trailing_metadata())
    assert ("google.rpc.retryinfo-bin" in metadata) is retried
    if retried:
        (detail,) = _status(metadata["grpc-status-details-bin"]).details
        assert detail.type_url == "type.googleapis.com/google.rpc.RetryInfo"
    assert not listener.requests
    assert _count(collector, "traces", "unstored", reason) == 2
    assert _count(collector, "traces", "stored", "") == 0
    setattr(sink, fails, None)
    assert _post(collector, body, PROTOBUF)[0].status == 200
    assert len(sink.requests) == 1


def test_a_failing_listener_does_not_prevent_the_acknowledgement(
    collector: Collector,
    sink: MemorySink,
    listener: _Listener,
    trace_message: Message,
    now_unix_ns: int,
) -> None:
    """The rows are already committed."""
    listener.fails = True
    gpu = GpuSample(replica="r1", gpu="GPU-1", at_unix_ns=now_unix_ns, power_w=300.0)
    assert _post(collector, trace_message().SerializeToString(), PROTOBUF)[0].status == 200
    assert _post(collector, message([gpu]), PROTOBUF, "/v1/metrics")[0].status == 200
    assert (len(sink.requests), sink.gpus, listener.gpus) == (1, [gpu], [])
    assert collector.counters.report().listener_failures == 3


def test_refused_items_are_reported_with_their_reasons(
    collector: Collector, sink: MemorySink, call: Call, trace_message: Message
) -> None:
    message = trace_message()
    spans = message.resource_spans[0].scope_spans[0].spans
    for _ in range(2):
        spans.append(trace_message().resource_spans[0].scope_spans[0].spans[0])
        spans[-1].trace_id = b""
    _, answer = _post(collector, message.SerializeToString(), PROTOBUF)
    for response in (ExportTraceServiceResponse.FromString(answer), call(message)):
        assert response.partial_success.rejected_spans == 2
        assert response.partial_success.error_message == "2 missing_id"
    assert len(sink.requests) == 2
    assert _count(collector, "traces", "refused", "missing_id") == 4


def test_old_rows_are_a_partial_success_and_fast_clocks_are_corrected(
    sink: MemorySink, now_unix_ns: int, collector_of: Make, trace_message: Message
) -> None:
    day_ns = 86_400 * 10**9
    message = trace_message()
    spans = message.resource_spans[0].scope_spans[0].spans
    for offset_ns in (-8 * day_ns, 3600 * 10**9):
        other = trace_message(wall_offset_ns=now_unix_ns + offset_ns)
        spans.append(other.resource_spans[0].scope_spans[0].spans[0])
    with running(collector_of(sink, keep_ns=7 * day_ns)) as made:
        _, answer = _post(made, message.SerializeToString(), PROTOBUF)
        partial = ExportTraceServiceResponse.FromString(answer).partial_success
        assert partial.rejected_spans == 1
        assert "older than 7 days are not kept" in partial.error_message
        assert _count(made, "traces", "refused", "too_old") == 1
        assert _count(made, "traces", "stored", "") == 2
        (source,) = made.clocks.report()
        assert source.name == "replica-1"
    assert all(row.received_unix_ns <= now_unix_ns for row in sink.requests)
    # The row whose time was not ahead is stored unchanged.
    assert sorted(row.clock_ahead_s or 0 for row in sink.requests) == [0, 3701.5]


def test_skipped_spans_are_no_complaint(
    collector: Collector, sink: MemorySink, call: Call, trace_message: Message
) -> None:
    """Other spans of the server are acknowledged, and not stored."""
    message = trace_message()
    message.resource_spans[0].scope_spans[0].scope.name = "another"
    # The test deletes the attributes, because they would make the span a router's span of a call to
    # a model.
    del message.resource_spans[0].scope_spans[0].spans[0].attributes[:]
    assert not call(message).HasField("partial_success")
    assert not sink.submitted.acquire(blocking=False)
    assert _count(collector, "traces", "skipped", "not_a_request") == 1


def test_an_empty_message_is_acknowledged(collector: Collector) -> None:
    response, answer = _post(collector, b"", PROTOBUF)
    assert (response.status, answer) == (200, b"")


GZIP = {**PROTOBUF, "Content-Encoding": "gzip"}
DEFLATE = {**PROTOBUF, "Content-Encoding": "deflate"}
HALVES = gzip.compress(bytes(MAX_BODY_BYTES)) * 2
BAD_BODIES: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "garbage": (b"\xff" * 100, PROTOBUF, 400, "malformed"),
    "not gzip": (b"not gzip", GZIP, 400, "malformed"),
    "truncated gzip": (gzip.compress(b"\x0a" * 100)[:-12], GZIP, 400, "malformed"),
    "empty gzip": (b"", GZIP, 400, "malformed"),
    "truncated message": (zlib.compress(b"\x0a"), DEFLATE, 400, "malformed"),
    "too large": (bytes(MAX_BODY_BYTES + 1), PROTOBUF, 413, "too_large"),
    "gzip bomb": (gzip.compress(bytes(50 * 2**20)), GZIP, 413, "too_large"),
    "two gzip streams too large together": (HALVES, GZIP, 413, "too_large"),
    "another content type": (b"{}", {"Content-Type": "text/json"}, 415, "unsupported"),
    "no content type": (b"", {}, 415, "unsupported"),
    "unknown encoding": (b"", {**PROTOBUF, "Content-Encoding": "br"}, 415, "unsupported"),
}


def test_a_bad_body_is_refused_and_the_next_one_served(
    collector: Collector, sink: MemorySink, trace_message: Message
) -> None:
    good = gzip.compress(trace_message().SerializeToString())
    results: Counter[str] = Counter()
    for name, (body, headers, status, result) in BAD_BODIES.items():
        response, answer = _post(collector, body, headers)
        assert (name, response.status) == (name, status)
        assert response.headers["Content-Type"] == "application/x-protobuf"
        assert response.headers["Retry-After"] is None
        assert _status(answer).message
        results[result] += 1
        assert _count(collector, "http", "traces", result) == results[result]
        assert _post(collector, good, GZIP)[0].status == 200
    assert len(sink.requests) == len(BAD_BODIES)


def test_a_truncated_message_is_malformed_wherever_it_is_cut(
    collector: Collector, trace_message: Message
) -> None:
    """A cut between two fields leaves a smaller valid message."""
    body = trace_message().SerializeToString()
    statuses = {_post(collector, body[:at], PROTOBUF)[0].status for at in range(1, len(body), 97)}
    assert statuses <= {200, 400}
    assert 400 in statuses


def test_a_body_of_undeclared_length_is_limited_too(collector: Collector) -> None:
    connection = HTTPConnection("127.0.0.1", collector.http_port, timeout=30)
    chunks = (bytes(1024) for _ in range(MAX_BODY_BYTES // 1024 + 1))
    connection.request("POST", "/v1/traces", chunks, PROTOBUF, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_after_a_sender_that_hangs_up_mid_body_the_next_one_is_served(
    collector: Collector, trace_message: Message
) -> None:
    with socket.create_connection(("127.0.0.1", collector.http_port)) as half:
        half.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
            b"Content-Length: 1000\r\n\r\nhalf"
        )
    assert _post(collector, trace_message().SerializeToString(), PROTOBUF)[0].status == 200


def test_an_unknown_path_is_answered_with_the_paths(collector: Collector) -> None:
    answer = httpx.get(f"http://127.0.0.1:{collector.http_port}/", trust_env=False)
    assert answer.status_code == 404
    assert answer.text == "Not found. POST OTLP/HTTP to /v1/traces, /v1/metrics, /v1/logs\n"
    assert _post(collector, b"", PROTOBUF, "/v1development/profiles")[0].status == 404


def test_a_start_is_kept_by_either_transport(
    collector: Collector, sink: MemorySink, events_message: Message
) -> None:
    body = events_message().SerializeToString()
    assert _post(collector, body, PROTOBUF, "/v1/logs")[0].status == 200
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
        assert export(body, timeout=30) == b""
    assert [start.config for start in sink.starts] == ["c0ffee00"] * 2


def test_bad_messages_over_grpc_are_refused_and_the_next_one_served(
    collector: Collector, sink: MemorySink, call: Call, trace_message: Message
) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        with pytest.raises(grpc.RpcError) as malformed:
            export(b"\xff" * 100, timeout=30)
        with pytest.raises(grpc.RpcError) as large:
            export(bytes(MAX_BODY_BYTES + 1), timeout=30)
        with pytest.raises(grpc.RpcError) as bomb:
            export(bytes(50 * 2**20), timeout=30, compression=grpc.Compression.Gzip)
    assert malformed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert large.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert bomb.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert _count(collector, "grpc", "traces", "malformed") == 1
    call(trace_message())
    assert len(sink.requests) == 1


def test_more_bytes_than_there_is_memory_for_must_be_sent_again(
    collector_of: Make, trace_message: Message
) -> None:
    """All bodies that wait for a slow store share one limit."""
    sink = MemorySink(held=True)
    body = trace_message().SerializeToString()
    with running(
        collector_of(sink, limits=CollectorLimits(max_waiting_bytes=len(body) + 1))
    ) as collector:
        first = threading.Thread(target=lambda: _post(collector, body, PROTOBUF))
        first.start()
        assert sink.submitted.acquire(timeout=30)
        response, _ = _post(collector, body, PROTOBUF)
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        sink.release()
        first.join(timeout=30)
        assert _post(collector, body, PROTOBUF)[0].status == 200
        assert collector.counters.report().waiting_bytes == 0


@pytest.mark.parametrize("option", ["grpc_port", "http_port"])
def test_a_taken_port_is_an_error_with_a_solution(option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, background_loop() as loop:
        port = taken.getsockname()[1]
        collector = Collector(MemorySink(), **{"grpc_port": 0, "http_port": 0, option: port})
        flag = "--" + option.replace("_", "-")
        with pytest.raises(ListenError, match=f"port {port}: the port is taken .*{flag}"):
            asyncio.run_coroutine_threadsafe(collector.start(), loop).result(timeout=30)
        assert not collector.ready


def test_a_port_out_of_range_is_refused() -> None:
    collector = Collector(MemorySink(), grpc_port=70_000, http_port=0)
    with pytest.raises(ListenError, match="--grpc-port must be a port from 0 to 65535, not 70000"):
        asyncio.run(collector.start())


def test_stopping_completes_current_responses(collector_of: Make, trace_message: Message) -> None:
    sink = MemorySink(held=True)
    collector = collector_of(sink)
    statuses: list[int] = []
    with background_loop() as loop:
        asyncio.run_coroutine_threadsafe(collector.start(), loop).result(timeout=30)
        body = trace_message().SerializeToString()
        sender = threading.Thread(
            target=lambda: statuses.append(_post(collector, body, PROTOBUF)[0].status)
        )
        sender.start()
        assert sink.submitted.acquire(timeout=30)
        stopping = asyncio.run_coroutine_threadsafe(collector.stop(), loop)
        sink.release()
        stopping.result(timeout=30)
        sender.join(timeout=30)
    assert statuses == [200]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", collector.http_port))


JSON = {"Content-Type": "application/json"}


def _span_json(trace_id: str) -> dict[str, Any]:
    return {
        "traceId": trace_id,
        "spanId": "00f067aa0ba902b7",
        "name": "chat llama",
        "kind": 2,
        "startTimeUnixNano": str(1_790_000_000 * 10**9 - 10**9),
        "endTimeUnixNano": str(1_790_000_000 * 10**9),
        "attributes": [
            {"key": names.OUTCOME, "value": {"stringValue": "stop"}},
            {"key": names.BASIS, "value": {"stringValue": "http"}},
            {"key": names.INPUT_TOKENS, "value": {"intValue": "12"}},
            {"key": names.OUTPUT_TOKENS, "value": {"intValue": 34}},
        ],
    }


def _json_body(*spans: dict[str, Any]) -> bytes:
    scoped = {"scope": {"name": names.SCOPE}, "spans": spans}
    return json.dumps({"resourceSpans": [{"scopeSpans": [scoped]}]}).encode()


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_json_is_taken_and_answered_in_json(
    collector: Collector, sink: MemorySink, encoding: str
) -> None:
    body = _json_body(_span_json("4bf92f3577b34da6a3ce929d0e0e4736"), _span_json("00" * 16))
    headers = JSON | ({"Content-Encoding": "gzip"} if encoding else {})
    response, answer = _post(collector, gzip.compress(body) if encoding else body, headers)
    assert (response.status, response.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(answer) == {
        "partialSuccess": {"rejectedSpans": "1", "errorMessage": "1 missing_id"}
    }
    [request] = sink.requests
    assert request.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert (request.e2e_s, request.prompt_tokens, request.output_tokens) == (1.0, 12, 34)


def test_bad_json_is_refused_in_json(collector: Collector) -> None:
    response, answer = _post(collector, b'{"resourceSpans": [', JSON)
    assert (response.status, response.headers["Content-Type"]) == (400, "application/json")
    status = json.loads(answer)
    assert status["code"] == 3
    assert "Expecting value at character 19" in status["message"]


def test_more_than_the_rate_gets_a_retry_time(collector_of: Make, trace_message: Message) -> None:
    sink = MemorySink()
    body = trace_message().SerializeToString()
    collector = collector_of(sink, limits=CollectorLimits(max_peer_bytes_per_s=len(body) / 60))
    with running(collector), grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        assert _post(collector, body, PROTOBUF)[0].status == 200
        response, answer = _post(collector, body, PROTOBUF)
        assert response.status == 429
        assert int(response.headers["Retry-After"]) > 50
        assert _status(answer).code == 8
        with pytest.raises(grpc.RpcError) as throttled:
            Stub(channel).Export(trace_message(), timeout=30)
    assert throttled.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "google.rpc.retryinfo-bin" in dict(throttled.value.trailing_metadata())
    assert _count(collector, "http", "traces", "throttled") == 1
    assert len(sink.requests) == 1


def test_a_refusing_store_is_not_ready_until_it_accepts_rows(
    collector: Collector, sink: MemorySink, trace_message: Message
) -> None:
    body = trace_message().SerializeToString()
    ready = [collector.ready]
    for sink.failure in (OSError("disk full"), None):
        _post(collector, body, PROTOBUF)
        ready.append(collector.ready)
    assert ready == [True, False, True]


def test_a_store_that_failed_is_given_another_try_in_time(
    now_unix_ns: int, trace_message: Message
) -> None:
    """A collector that is not ready receives no messages, so only time can end the failure."""
    sink, now = MemorySink(), [0.0]
    intake = Intake(
        sink, [], Counters(), lambda: now_unix_ns, CollectorLimits(), LocalReader(), lambda: now[0]
    )

    async def fail() -> None:
        sink.refusal = RuntimeError("full")
        with pytest.raises(IntakeBusyError):
            await intake.receive(TRACES, trace_message().SerializeToString(), peer="")
        await intake.stop(1)

    asyncio.run(fail())
    assert not intake.store_available
    now[0] += STORE_RETRY_S + 1
    assert intake.store_available


def test_accepted_messages_are_forwarded_unchanged(
    collector_of: Make, trace_message: Message
) -> None:
    sent: list[tuple[str, bytes, bool]] = []
    collector = collector_of(MemorySink(), forward=lambda *message: sent.append(message))
    message = trace_message()
    body = message.SerializeToString()
    with running(collector), grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        assert _post(collector, body, PROTOBUF)[0].status == 200
        assert _post(collector, b"no protobuf", PROTOBUF)[0].status == 400
        Stub(channel).Export(message, timeout=30)
    assert sent == [("/v1/traces", body, False)] * 2
