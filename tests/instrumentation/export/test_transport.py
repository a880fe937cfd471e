import http.server
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import formatdate
from time import time
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from tailspan_vllm.export.destination import Destination
from tailspan_vllm.export.transport import (
    ANSWER_BYTES,
    REASON_CHARS,
    ExportResponse,
    ExportVerdict,
    post_to,
)

from rig.ports import free_port

PARTIAL = ExportTraceServiceResponse(
    partial_success=ExportTracePartialSuccess(rejected_spans=3, error_message="too\nold")
)
RETRY = RetryInfo(retry_delay=Duration(seconds=7))


class Answers(http.server.ThreadingHTTPServer):
    """A server that sends the same response to every message, and records the messages."""

    daemon_threads = True

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.headers, self.body = status, headers, body
        self.received: list[tuple[dict[str, str], bytes]] = []


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Answers
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.server.received.append((headers, content))
        self.send_response(self.server.status)
        for key, value in self.server.headers.items():
            self.send_header(key, value)
        self.send_header("content-length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def answering(
    status: int = 200, headers: dict[str, str] | None = None, body: bytes = b""
) -> Iterator[tuple[Answers, Callable[..., ExportResponse]]]:
    server = Answers(status, headers or {}, body)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()

    def post(message: bytes = b"spans", **given: Any) -> ExportResponse:
        endpoint = f"http://127.0.0.1:{server.server_port}/v1/traces"
        return post_to(
            Destination("traces", "http/protobuf", endpoint, **{"timeout_s": 20.0, **given})
        )(message)

    try:
        yield server, post
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        *((status, ExportVerdict.ACCEPTED) for status in (200, 202)),
        *((status, ExportVerdict.BUSY) for status in (429, 502, 503, 504)),
        *((status, ExportVerdict.REFUSED) for status in (400, 413, 415, 422, 500, 501)),
        *((status, ExportVerdict.DENIED) for status in (301, 307, 401, 403, 404, 405)),
    ],
)
def test_http_statuses(status: int, verdict: ExportVerdict) -> None:
    """Four statuses are retryable. A redirect is not followed, because the headers are secret."""
    with answering(status, {"location": "http://127.0.0.1:9/"}) as (server, post):
        outcome = post()
        assert (outcome.verdict, len(server.received)) == (verdict, 1)
        assert outcome.verdict is ExportVerdict.ACCEPTED or f"HTTP {status}" in outcome.reason


def test_http_retry_after_in_seconds_as_a_date_or_malformed() -> None:
    for given, least, most in (("7", 7, 7), (formatdate(time() + 60, usegmt=True), 30, 60)):
        with answering(503, {"retry-after": given}) as (_, post):
            assert least <= (post().wait_s or 0) <= most
    for given in ("soon", "nan", ""):
        with answering(429, {"retry-after": given}) as (_, post):
            assert post().wait_s is None
    with answering(429, {"retry-after": "-5"}) as (_, post):
        assert post().wait_s == 0


def test_http_headers_and_compression_are_sent() -> None:
    with answering() as (server, post):
        post(b"spans", headers=(("authorization", "Bearer x"),), compression="gzip")
        headers, content = server.received[0]
        assert headers["authorization"] == "Bearer x"
        assert headers["content-type"] == "application/x-protobuf"
        assert (headers["content-encoding"], content[:2]) == ("gzip", b"\x1f\x8b")


def test_a_partial_success_is_counted_and_its_words_are_one_short_line() -> None:
    """The text comes from another program and is written to this server's log."""
    body = PARTIAL.SerializeToString()
    with answering(200, {"content-type": "application/x-protobuf"}, body) as (_, post):
        assert post() == ExportResponse(
            ExportVerdict.ACCEPTED, "partial success: too old", rejected=3
        )
    endless = b"\xff" * (4 * ANSWER_BYTES)
    with answering(200, {"content-type": "application/x-protobuf"}, endless) as (_, post):
        assert post() == ExportResponse(ExportVerdict.ACCEPTED)


def test_http_without_an_answer() -> None:
    absent = Destination("traces", "http/protobuf", f"http://127.0.0.1:{free_port()}/v1/traces")
    outcome = post_to(absent)(b"x")
    assert outcome.verdict is ExportVerdict.UNREACHABLE
    assert len(outcome.reason) <= REASON_CHARS
    with answering() as (server, post):
        server.finish_request = lambda *_: threading.Event().wait(1.0)  # type: ignore[assignment, method-assign]  # it accepts, and is silent
        assert post(timeout_s=0.2).verdict is ExportVerdict.UNREACHABLE


@contextmanager
def grpc_answering(
    answer: Callable[[bytes, Any], bytes],
) -> Iterator[Callable[..., ExportResponse]]:
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        name = "opentelemetry.proto.collector.trace.v1.TraceService"
        handlers = {"Export": grpc.unary_unary_rpc_method_handler(answer)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield lambda **given: post_to(
            Destination("traces", "grpc", f"127.0.0.1:{port}", **{"timeout_s": 20.0, **given})
        )(b"\x0a\x00")
        server.stop(None).wait()


RETRYABLE = {
    "CANCELLED",
    "DEADLINE_EXCEEDED",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNAVAILABLE",
    "DATA_LOSS",
}


def test_grpc_codes() -> None:
    """Six codes are retryable; RESOURCE_EXHAUSTED is retryable only with a RetryInfo."""
    answers: list[tuple[Any, tuple[tuple[str, bytes], ...]]] = []

    def answer(_: bytes, context: Any) -> bytes:
        code, metadata = answers.pop()
        context.set_trailing_metadata(metadata)
        context.abort(code, "because")
        raise AssertionError

    packed = AnyMessage()
    packed.Pack(RETRY)
    status = Status(code=8, details=[packed]).SerializeToString()
    with grpc_answering(answer) as post:
        for code in grpc.StatusCode:
            if code is grpc.StatusCode.OK:
                continue
            answers.append((code, ()))
            outcome = post()
            assert outcome.retryable == (code.name in RETRYABLE), code
            assert outcome.reason == f"{code.name}: because"
        for key, value in (
            ("google.rpc.retryinfo-bin", RETRY.SerializeToString()),
            ("grpc-status-details-bin", status),
        ):
            answers.append((grpc.StatusCode.RESOURCE_EXHAUSTED, ((key, value),)))
            assert post()[0::2] == (ExportVerdict.BUSY, 7.0)
        malformed = (("grpc-status-details-bin", b"\xff"),)
        answers.append((grpc.StatusCode.RESOURCE_EXHAUSTED, malformed))
        assert post().verdict is ExportVerdict.REFUSED
        answers.append((grpc.StatusCode.UNAUTHENTICATED, ()))
        assert post().verdict is ExportVerdict.DENIED


def test_grpc_success_partial_success_and_headers() -> None:
    seen: list[Any] = []

    def answer(_: bytes, context: Any) -> bytes:
        seen.append(dict(context.invocation_metadata()))
        return PARTIAL.SerializeToString()

    with grpc_answering(answer) as post:
        outcome = post(headers=(("authorization", "Bearer x"),), compression="gzip")
    assert (outcome.verdict, outcome.rejected) == (ExportVerdict.ACCEPTED, 3)
    assert seen[0]["authorization"] == "Bearer x"


def test_grpc_without_an_answer() -> None:
    absent = Destination("traces", "grpc", f"127.0.0.1:{free_port()}")
    assert post_to(absent)(b"").verdict is ExportVerdict.UNREACHABLE
