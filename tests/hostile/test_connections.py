import contextlib
import errno
import logging
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
import trustme
from starlette.types import Receive, Scope, Send

from collector.listen import connections
from collector.listen.connections import ConnectionLimits, within_descriptors
from collector.listen.tls import Tls
from tests.hostile.conftest import Connect, Serve, post, read_all, read_head

GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
SHORT = ConnectionLimits(handshake_s=0.3, head_s=0.3, idle_s=1, write_s=0.3)
LARGE = 32 * 2**20
"""More bytes than the buffers on both sides of a connection."""


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    while scope["method"] == "POST" and (await receive()).get("more_body"):
        pass
    body = bytes(LARGE) if scope["path"] == "/large" else b"fine"
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", str(len(body)).encode())],
        }
    )
    await send({"type": "http.response.body", "body": body})


def send_until_closed(connection: socket.socket) -> bytes:
    """Send single bytes until the other side closes, and return the bytes received."""
    connection.settimeout(0.05)
    received = b""
    for _ in range(400):
        with contextlib.suppress(TimeoutError):
            try:
                connection.send(b"a")
                while chunk := connection.recv(4096):
                    received += chunk
            except ConnectionError:
                pass
            return received
    pytest.fail("the connection stays open")


@pytest.mark.parametrize(
    "data",
    [b"", b"GET / HTTP/1.1\r\nHost", GET + GET[:20]],
    ids=["nothing", "half a head", "half a second head"],
)
def test_an_incomplete_request_is_closed(serve: Serve, connect: Connect, data: bytes) -> None:
    """Without the limit, uvicorn would wait for ever."""
    answer = read_all(connect(serve(app, SHORT).port, data))
    assert answer.count(b"fine") == data.count(GET)


def test_a_head_that_arrives_slowly_gets_no_more_time(serve: Serve, connect: Connect) -> None:
    connection = connect(serve(app, SHORT).port, b"GET / HTTP/1.1\r\n")
    assert send_until_closed(connection) == b""


def test_an_idle_connection_is_closed(serve: Serve, connect: Connect) -> None:
    assert read_all(connect(serve(app, SHORT).port, GET)).endswith(b"fine")


def test_a_body_that_continues_after_the_response_is_closed(serve: Serve, connect: Connect) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    connection = connect(serve(refuse, SHORT).port, post(LARGE))
    send_until_closed(connection)


@pytest.mark.parametrize("more", ["", "Connection: close\r\n"])
def test_a_response_that_is_not_read_times_out(serve: Serve, connect: Connect, more: str) -> None:
    request = f"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}\r\n".encode()
    host = serve(app, SHORT)
    connection = connect(host.port, request)
    assert host._server is not None
    open_now = host._server.server_state.connections
    while not open_now:
        connection.recv(1)
    while open_now:  # the client reads nothing
        time.sleep(0.01)
    assert len(read_all(connection)) < LARGE


def test_a_body_in_tiny_chunks_times_out(serve: Serve, connect: Connect) -> None:
    """Each chunk takes 20 µs of the event loop, whatever its size."""
    connection = connect(serve(app, ConnectionLimits()).port, post(None))
    try:
        connection.sendall(b"1\r\na\r\n" * 3000 + b"0\r\n\r\n")
    except OSError:
        return
    assert b"fine" not in read_all(connection)


def test_a_body_in_ordinary_chunks_is_taken(serve: Serve, connect: Connect) -> None:
    connection = connect(serve(app, ConnectionLimits()).port, post(None))
    connection.sendall(b"400\r\n" + bytes(1024) + b"\r\n" + b"0\r\n\r\n")
    connection.sendall(post(None) + (b"400\r\n" + bytes(1024) + b"\r\n") * 3000 + b"0\r\n\r\n")
    answers = b""
    while answers.count(b"fine") < 2:
        answers += connection.recv(4096)


def test_at_the_limit_the_longest_idle_connection_gives_way(serve: Serve, connect: Connect) -> None:
    host = serve(app, ConnectionLimits(connections=6, per_peer=4))
    hostile = [connect(host.port, source="127.0.0.2") for _ in range(8)]
    for connection in hostile[:4]:
        assert read_all(connection) == b""
    innocent = [connect(host.port, GET) for _ in range(3)]
    for connection in innocent:
        assert read_head(connection).startswith(b"HTTP/1.1 200")
    # The sender with the most connections loses one.
    assert read_all(hostile[4]) == b""
    hostile[5].sendall(GET)
    assert read_head(hostile[5]).startswith(b"HTTP/1.1 200")


def test_a_connection_with_a_running_request_is_not_closed_for_another(
    serve: Serve, connect: Connect
) -> None:
    host = serve(app, ConnectionLimits(connections=2, per_peer=2))
    busy = [connect(host.port, post(4) + b"ab") for _ in range(2)]
    assert host._server is not None
    while len(host._server.server_state.tasks) < 2:
        time.sleep(0.01)
    assert read_all(connect(host.port, GET)) == b""
    for connection in busy:
        connection.sendall(b"cd")
        assert read_head(connection).startswith(b"HTTP/1.1 200")


def test_a_stalled_tls_handshake_is_closed(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    issued = trustme.CA().issue_cert("127.0.0.1")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    limits = ConnectionLimits(connections=2, per_peer=2, handshake_s=0.3)
    host = serve(app, limits, Tls(certificate, key))
    assert read_all(connect(host.port)) == b""
    stalled = [connect(host.port) for _ in range(3)]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(connect(host.port)) as connection:
        connection.sendall(GET)
        assert read_head(connection).startswith(b"HTTP/1.1 200")
    for each in stalled:
        assert read_all(each) == b""


def test_at_the_limit_of_descriptors_it_pauses_and_logs_once(
    serve: Serve,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """asyncio's own server would log 2,000 lines per second."""
    left = [3]

    class Exhausted(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:
            if left[0]:
                left[0] -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    monkeypatch.setattr(connections, "PAUSE_S", 0.05)
    monkeypatch.setattr("collector.listen.asgi_server.listen", lambda *_: _listening(Exhausted))
    with caplog.at_level(logging.WARNING):
        host = serve(app, ConnectionLimits())
        assert read_head(connect(host.port, GET)).startswith(b"HTTP/1.1 200")
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 3
    assert all("cannot accept connections: Too many open files" in line for line in lines)


def _listening(kind: type[socket.socket]) -> socket.socket:
    listening = kind(socket.AF_INET, socket.SOCK_STREAM)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    return listening


def test_connections_fit_into_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1024, 2048]
    monkeypatch.setattr("resource.getrlimit", lambda _: tuple(now))
    monkeypatch.setattr("resource.setrlimit", lambda _, limits: now.__setitem__(0, limits[0]))
    assert within_descriptors(1024, ports=2) == (2048 - connections.KEPT_DESCRIPTORS) // 2
    assert now == [2048, 2048]
    now[:] = [100_000, 100_000]
    assert within_descriptors(1024, ports=2) == 1024
    assert now == [100_000, 100_000]


def test_upgrades_and_garbage_do_not_fill_the_log(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    host = serve(app, ConnectionLimits())
    upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    for _ in range(20):
        assert read_head(connect(host.port, upgrade)).startswith(b"HTTP/1.1 200")
        assert read_head(connect(host.port, b"\x00\r\n\r\n")).startswith(b"HTTP/1.1 400")
    # At the level INFO, uvicorn also logs that it has started.
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) <= 5
