import asyncio
import socket
import ssl
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcSpanExporter,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
    OTLPSpanExporter as HttpSpanExporter,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from collector.errors import ForbiddenError, SecurityError, UnauthenticatedError
from collector.listen.asgi_server import AsgiHost
from collector.listen.bearer_tokens import (
    HOLDER,
    SHORTEST,
    BearerGate,
    BearerTokens,
    Holder,
    read_tokens,
    sending_token,
)
from collector.listen.tls import Tls
from collector.server import Collector
from collector.testing import MemorySink, running
from tests.collector.conftest import Party

TOKEN, ANOTHER = "a-good-token-of-ours", "another/good+token=="
METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PROTOBUF = {"Content-Type": "application/x-protobuf"}

Message = Callable[..., ExportTraceServiceRequest]
Issue = Callable[..., Party]
Exported = Callable[[Collector], list[bool]]
Standard = Callable[..., None]


@contextmanager
def _collector(now_unix_ns: int, **security: Any) -> Iterator[tuple[Collector, MemorySink]]:
    sink = MemorySink()
    made = Collector(sink, grpc_port=0, http_port=0, clock_unix_ns=lambda: now_unix_ns, **security)
    with running(made):
        yield made, sink


def _post(collector: Collector, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", collector.http_port, timeout=30)
    try:
        connection.request("POST", "/v1/traces", body, {**PROTOBUF, **headers})
        response = connection.getresponse()
        response.read()
        return response.status, response.headers
    finally:
        connection.close()


def test_each_valid_token_and_no_other_is_accepted_by_both_transports(
    now_unix_ns: int, trace_message: Message
) -> None:
    """While a token is being replaced, the old and the new token are valid."""
    body = trace_message().SerializeToString()
    invalid = [
        *(None, "", TOKEN, "Bearer", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x"),
        "Bearer ü" * 50,
    ]
    with (
        _collector(now_unix_ns, tokens=BearerTokens([TOKEN, ANOTHER], "test")) as (collector, sink),
        grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel,
    ):
        export = channel.unary_unary(METHOD)
        for shown in invalid:
            status, headers = _post(collector, body, {"Authorization": shown} if shown else {})
            assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="tailspan"')
            assert headers["Retry-After"] is None
            metadata = [("authorization", shown)] if shown and shown.isascii() else None
            with pytest.raises(grpc.RpcError) as refused:
                export(body, timeout=30, metadata=metadata)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert TOKEN not in str(refused.value)
        assert not sink.requests
        messages = collector.counters.report().messages
        assert messages["http", "traces", "unauthenticated"] == len(invalid)
        assert messages["grpc", "traces", "unauthenticated"] == len(invalid)
        for token in (TOKEN, ANOTHER):
            assert _post(collector, body, {"Authorization": f"bearer {token}"})[0] == 200
            export(body, timeout=30, metadata=[("authorization", f"Bearer {token}")])
        assert len(sink.requests) == 4


def test_tokens_come_from_a_file_or_from_the_variables(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# ours\n\n{TOKEN}  # the old one\n{ANOTHER}\n")
    other = tmp_path / "other"
    other.write_text("the-token-of-another-file\n")
    variables = {"TAILSPAN_TOKEN_FILE": str(file), "TAILSPAN_TOKENS": "of-the-variable-itself"}
    for given, good, bad in (
        (read_tokens(file, {}), ANOTHER, "of-the-variable-itself"),
        (read_tokens(other, variables), "the-token-of-another-file", TOKEN),
        (read_tokens(None, variables), TOKEN, "of-the-variable-itself"),
        (read_tokens(None, {"TAILSPAN_TOKENS": f"{TOKEN}, {ANOTHER}"}), ANOTHER, "# ours"),
    ):
        assert given is not None
        found = BearerTokens(*given)
        found.check(f"Bearer {good}")
        with pytest.raises(UnauthenticatedError):
            found.check(f"Bearer {bad}")
    assert read_tokens(None, {}) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no token"),
        (b"# nothing\n", "holds no token"),
        (f"{TOKEN}\n{TOKEN}:acme\n".encode(), "the same token twice"),
        (b"short\n", f"token 1 of 1 is malformed; allowed: at least {SHORTEST}"),
        (TOKEN.encode() + b"\nwith a blank in the middle\n", "token 2 of 2 is malformed"),
        (b"\xff\xfe" * 20, "not UTF-8"),
    ],
)
def test_a_malformed_token_is_refused_without_being_shown(
    tmp_path: Path, content: bytes, words: str
) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(content)
    with pytest.raises(SecurityError, match=words) as refused:
        sending_token(file, {})
    assert str(file) in str(refused.value)
    assert "blank in" not in str(refused.value)
    assert "short" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match=r"cannot read the tokens in .*none: No such file"):
        read_tokens(tmp_path / "none", {})


def test_health_needs_no_token() -> None:
    """An orchestrator checks health without a token."""

    async def ok(request: object) -> PlainTextResponse:
        return PlainTextResponse("ok")

    app = Starlette(routes=[Route("/healthz", ok), Route("/metrics", ok)])

    async def ask() -> list[int]:
        host = AsgiHost(
            BearerGate(app, BearerTokens([TOKEN], "test"), ["/healthz"]),
            host="127.0.0.1",
            port=0,
            option="--x",
        )
        await host.start()

        def get(path: str, **headers: str) -> int:
            connection = HTTPConnection("127.0.0.1", host.port, timeout=30)
            connection.request("GET", path, headers=headers)
            status = connection.getresponse().status
            connection.close()
            return status

        statuses = [
            await asyncio.to_thread(get, "/healthz"),
            await asyncio.to_thread(get, "/metrics"),
            await asyncio.to_thread(get, "/metrics", Authorization=f"Bearer {TOKEN}"),
        ]
        await host.stop(0)
        return statuses

    assert asyncio.run(ask()) == [200, 401, 200]


def _exporters(collector: Collector) -> list[Any]:
    return [
        GrpcSpanExporter(endpoint=f"https://127.0.0.1:{collector.grpc_port}", timeout=1),
        HttpSpanExporter(endpoint=f"https://127.0.0.1:{collector.http_port}/v1/traces", timeout=1),
    ]


@pytest.fixture
def exported(span: Callable[..., ReadableSpan]) -> Callable[[Collector], list[bool]]:
    def export(collector: Collector) -> list[bool]:
        results = []
        for exporter in _exporters(collector):
            results.append(exporter.export([span()]) is SpanExportResult.SUCCESS)
            exporter.shutdown()
        return results

    return export


@pytest.fixture
def standard(monkeypatch: pytest.MonkeyPatch, ca: Path) -> Callable[..., None]:
    """Set OpenTelemetry's standard variables, as in a server's environment."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # `requests` prefers these variables
        monkeypatch.delenv(name, raising=False)

    def set_them(**variables: object) -> None:
        for name, value in {"CERTIFICATE": ca, **variables}.items():
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", str(value))

    return set_them


@pytest.mark.parametrize(("token", "good"), [(TOKEN, True), ("not-that-token-at-all", False)])
def test_the_standard_variables_are_enough_for_a_good_token(
    now_unix_ns: int, exported: Exported, issue: Issue, standard: Standard, token: str, good: bool
) -> None:
    standard(HEADERS=f"authorization=Bearer%20{token}")
    security = {"tls": Tls(*issue()), "tokens": BearerTokens([TOKEN], "test")}
    with _collector(now_unix_ns, **security) as (collector, sink):
        assert exported(collector) == [good, good]
        assert len(sink.requests) == 2 * good


def test_an_expired_certificate_is_not_trusted(
    now_unix_ns: int, exported: Exported, issue: Issue, ca: Path, standard: Standard
) -> None:
    standard()
    yesterday = datetime.now(UTC) - timedelta(days=1)
    expired = issue(not_before=yesterday - timedelta(days=9), not_after=yesterday)
    with _collector(now_unix_ns, tls=Tls(*expired)) as (collector, sink):
        assert exported(collector) == [False, False]
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            _handshake(collector.http_port, ssl.create_default_context(cafile=ca))
        assert not sink.requests


def test_mutual_tls_requires_a_client_certificate(
    now_unix_ns: int, exported: Exported, issue: Issue, ca: Path, standard: Standard
) -> None:
    standard()
    with _collector(now_unix_ns, tls=Tls(*issue(), client_ca=ca)) as (collector, sink):
        assert exported(collector) == [False, False]
        stranger = issue("stranger", by=trustme.CA())
        standard(CLIENT_CERTIFICATE=stranger.certificate, CLIENT_KEY=stranger.key)
        assert exported(collector) == [False, False]
        assert not sink.requests
        client = issue("client")
        standard(CLIENT_CERTIFICATE=client.certificate, CLIENT_KEY=client.key)
        assert exported(collector) == [True, True]
        assert len(sink.requests) == 2


def _handshake(port: int, context: ssl.SSLContext) -> str | None:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
    ):
        return wrapped.version()


def test_plaintext_against_tls_is_refused_and_the_next_one_served(
    now_unix_ns: int, trace_message: Message, issue: Issue, ca: Path
) -> None:
    body = trace_message().SerializeToString()
    with _collector(now_unix_ns, tls=Tls(*issue())) as (collector, sink):
        with pytest.raises((OSError, HTTPException)):
            _post(collector, body, {})
        with (
            grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel,
            pytest.raises(grpc.RpcError) as refused,
        ):
            channel.unary_unary(METHOD)(body, timeout=5)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert not sink.requests
        context = ssl.create_default_context(cafile=ca)
        connection = HTTPSConnection("127.0.0.1", collector.http_port, timeout=30, context=context)
        connection.request("POST", "/v1/traces", body, PROTOBUF)
        assert connection.getresponse().status == 200
        connection.close()


def test_old_tls_versions_are_refused(now_unix_ns: int, issue: Issue, ca: Path) -> None:
    with _collector(now_unix_ns, tls=Tls(*issue())) as (collector, _):
        old = ssl.create_default_context(cafile=ca)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # TLS 1.0 and 1.1 are deprecated
            old.minimum_version = ssl.TLSVersion.TLSv1
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        for port in (collector.http_port, collector.grpc_port):
            assert _handshake(port, ssl.create_default_context(cafile=ca)) == "TLSv1.3"
            with pytest.raises(ssl.SSLError):
                _handshake(port, old)


def test_a_certificate_with_another_key_is_refused_before_listening(
    issue: Issue, tmp_path: Path
) -> None:
    one, other = issue("one"), issue("other")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("garbage")
    with pytest.raises(SecurityError, match=r"one\.pem with the key .*other\.key: KEY_VALUES"):
        Tls(one.certificate, other.key)
    with pytest.raises(SecurityError, match=r"garbage\.pem"):
        Tls(garbage, one.key)
    with pytest.raises(SecurityError, match=r"garbage\.pem contains no certificate"):
        Tls(*one, client_ca=garbage)
    with pytest.raises(SecurityError, match=r"cannot read .*nowhere: No such file"):
        Tls(tmp_path / "nowhere", one.key)


def test_a_token_with_a_role_cannot_send_telemetry() -> None:
    given = [f"{ANOTHER}:acme", TOKEN], "test"
    assert sending_token(None, {"TAILSPAN_TOKENS": " ".join(given[0])}) == TOKEN
    with pytest.raises(SecurityError, match="only tokens with a role"):
        sending_token(None, {"TAILSPAN_TOKENS": given[0][0]})
    tokens = BearerTokens(*given)
    tokens.check(f"Bearer {TOKEN}")
    with pytest.raises(ForbiddenError, match="the role acme"):
        tokens.check(f"Bearer {ANOTHER}")
    with pytest.raises(UnauthenticatedError):
        tokens.check(f"Bearer {ANOTHER}:acme")
    assert tokens.holder(f"Bearer {ANOTHER}") == Holder(1, "acme")
    assert tokens.roles == {"acme"}


@pytest.mark.parametrize(
    ("path", "role_paths", "status"),
    [
        ("/api/v1/stats", "/api/", 200),
        ("/metrics", "/api/", 403),
        ("/", "/api/", 403),
        ("/API/v1/stats", "/api/", 403),
        ("/api/v1/stats", None, 403),
    ],
)
def test_a_token_with_a_role_reads_only_some_paths(
    path: str, role_paths: str | None, status: int
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse(str(scope[HOLDER].role))(scope, receive, send)

    gate = BearerGate(app, BearerTokens([f"{TOKEN}:acme"], "test"), role_paths=role_paths)
    answer = TestClient(gate).get(path, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == status
    if status == 200:
        assert answer.text == "acme"
