import asyncio
import socket
from pathlib import Path

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from collector.listen.host_check import AllowedHosts, HostGate, checked, names_in
from server.stack import Ports, Stack
from store.database import open_database
from tests.hostile.conftest import read_all

LOOPBACK = AllowedHosts.of([], loopback=True, protected=False)
OPEN = AllowedHosts.of([], loopback=False, protected=False)
PROTECTED = AllowedHosts.of([], loopback=False, protected=True)
NAMED = AllowedHosts.of(["spans.example.org", "*.apps.test"], loopback=True, protected=False)


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"everything"})


def _status(hosts: AllowedHosts, path: str = "/metrics", **headers: str) -> int:
    transport = httpx.ASGITransport(HostGate(_answer, hosts, open_paths=("/healthz",)))

    async def post() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post(path, headers=headers)

    response = asyncio.run(post())
    assert (response.text == "everything") == (response.status_code == 200)
    return response.status_code


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:4318", "localhost", "LOCALHOST.:9464", "a.localhost", "[::1]:4318", "10.0.0.7:1"],
)
@pytest.mark.parametrize("hosts", [LOOPBACK, OPEN, PROTECTED, NAMED])
def test_ip_literals_and_localhost_are_always_allowed(hosts: AllowedHosts, host: str) -> None:
    """Prometheus scrapes pods by IP address. DNS rebinding needs a name, not an address."""
    assert hosts.allow(host)


@pytest.mark.parametrize(
    "host",
    ["evil.example:4318", "127.0.0.1.evil.example", "localhost.evil.example", "", "a b", "[::1"],
)
@pytest.mark.parametrize("hosts", [LOOPBACK, OPEN, NAMED])
def test_a_public_name_is_refused(hosts: AllowedHosts, host: str) -> None:
    assert not hosts.allow(host)


@pytest.mark.parametrize(
    "host", ["tailspan:4317", "tailspan.ns.svc", "tailspan.ns.svc.cluster.local:9464", "box.local"]
)
def test_names_that_public_dns_cannot_resolve_are_allowed_off_loopback(host: str) -> None:
    """Names of services in Kubernetes and Compose also work with --insecure-bind."""
    assert OPEN.allow(host)
    assert not LOOPBACK.allow(host)


def test_with_tokens_and_tls_every_host_name_is_allowed() -> None:
    """A page that uses DNS rebinding has no token, and the certificate lacks its host name."""
    assert PROTECTED.allow("tailspan.example.org")
    assert not PROTECTED.allow("not a host")


def test_given_names_are_allowed() -> None:
    assert NAMED.allow("Spans.Example.org:4318")
    assert NAMED.allow("a.b.apps.test")
    assert not NAMED.allow("apps.test")
    assert not NAMED.allow("spans.example.org.evil.example")


def test_the_address_and_the_machines_name_are_allowed() -> None:
    hosts = AllowedHosts.of([], loopback=False, protected=False, own=("::", "Gpu-1.example.org"))
    assert hosts.allow("gpu-1.example.org:4318")
    assert hosts.names == {"gpu-1.example.org"}


@pytest.mark.parametrize("name", ["", "a:80", "http://a", "*", "*.", "a b", "-a"])
def test_a_name_that_is_no_host_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match=r"is not a host name; allowed: .*tailspan.example.org"):
        checked(name)


def test_the_environment_adds_names() -> None:
    assert names_in(["a"], {"TAILSPAN_ALLOWED_HOSTS": "b.c, d"}) == ["a", "b.c", "d"]
    assert names_in([], {}) == []


def test_a_rebound_page_reads_nothing() -> None:
    assert _status(LOOPBACK, host="evil.example") == 403
    assert _status(LOOPBACK, host="127.0.0.1:9464") == 200
    assert _status(LOOPBACK, path="/healthz", host="evil.example") == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:4318", 200),
        ("http://127.0.0.1:3000", 403),
        ("http://localhost:4318", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("http://[", 403),
        ("https://spans.example.org", 200),
    ],
)
def test_a_page_of_another_origin_cannot_post(origin: str, status: int) -> None:
    assert _status(NAMED, host="127.0.0.1:4318", origin=origin) == status


def test_the_origin_is_checked_even_with_tokens_and_tls() -> None:
    """A browser sends client certificates automatically."""
    headers = {"host": "tailspan.example.org", "origin": "https://evil.example"}
    assert _status(PROTECTED, **headers) == 403


def test_a_websocket_of_another_origin_is_closed() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "websocket",
        "path": "/_stcore/stream",
        "headers": [(b"host", b"localhost:8501"), (b"origin", b"https://evil.example")],
    }
    asyncio.run(HostGate(_answer, LOOPBACK)(scope, receive, send))
    assert [message["type"] for message in sent] == ["websocket.close"]


def _get(port: int, request: str, *headers: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        lines = (f"{request} HTTP/1.1", "Connection: close", "Content-Length: 0", *headers)
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        return read_all(connection)


def test_a_rebound_page_reaches_neither_otlp_nor_metrics(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'tailspan.db'}")

    async def ask() -> None:
        stack = Stack(engine, str(engine.url), "127.0.0.1", Ports(0, 0, 0, 0), explorer=False)
        async with stack:
            for port, request in (
                (stack.collector.http_port, "POST /v1/traces"),
                (stack.metrics.port, "GET /metrics"),
            ):
                kind = "Content-Type: application/x-protobuf"
                own = await asyncio.to_thread(_get, port, request, "Host: localhost", kind)
                evil = await asyncio.to_thread(_get, port, request, "Host: evil.example", kind)
                page = await asyncio.to_thread(
                    _get, port, request, "Host: localhost", kind, "Origin: https://evil.example"
                )
                assert own.startswith(b"HTTP/1.1 200")
                assert evil.startswith(b"HTTP/1.1 403")
                assert b"--allowed-host NAME" in evil
                assert page.startswith(b"HTTP/1.1 403")
            messages = stack.collector.counters.report().messages
            assert messages["http", "traces", "forbidden"] == 2
            health = await asyncio.to_thread(
                _get, stack.metrics.port, "GET /healthz", "Host: evil.example"
            )
            assert health.startswith(b"HTTP/1.1 200")

    asyncio.run(ask())
    engine.dispose()
