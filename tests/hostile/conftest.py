import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from starlette.types import ASGIApp

from collector.limits.sender_limits import CollectorLimits
from collector.listen import log_rate_limit
from collector.listen.asgi_server import AsgiHost
from collector.listen.connections import ConnectionLimits
from collector.listen.tls import Tls
from collector.otlp.message_reader import MessageReader
from collector.server import Collector
from collector.testing import MemorySink, background_loop, running
from rig.program import Tailspan
from tests.collector.conftest import record, resource, span, trace_message  # noqa: F401  # fixtures

_T = TypeVar("_T")

Connect = Callable[..., socket.socket]
Serve = Callable[..., AsgiHost]
Collect = Callable[..., Collector]


@pytest.fixture(autouse=True)
def logs_of_its_own() -> None:
    """Forget which messages other tests have logged."""
    log_rate_limit._LIMIT._seen.clear()


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Return a function that connects, by default from 127.0.0.1, with a timeout of 20 s."""
    with ExitStack() as stack:

        def make(port: int, data: bytes = b"", *, source: str = "127.0.0.1") -> socket.socket:
            connection = stack.enter_context(
                socket.create_connection(("127.0.0.1", port), 20, source_address=(source, 0))
            )
            connection.sendall(data)
            return connection

        yield make


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with background_loop() as loop:
        yield loop


def wait_for(loop: asyncio.AbstractEventLoop, step: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run_coroutine_threadsafe(step, loop).result(timeout=30)


@pytest.fixture
def serve(loop: asyncio.AbstractEventLoop) -> Iterator[Serve]:
    hosts: list[AsgiHost] = []

    def make(app: ASGIApp, limits: ConnectionLimits, tls: Tls | None = None) -> AsgiHost:
        host = AsgiHost(app, host="127.0.0.1", port=0, option="--port", tls=tls, limits=limits)
        wait_for(loop, host.start())
        hosts.append(host)
        return host

    yield make
    for host in hosts:
        wait_for(loop, host.stop(0))


@pytest.fixture
def collect() -> Iterator[Collect]:
    with ExitStack() as stack:

        def make(
            sink: MemorySink | None = None, reading: MessageReader | None = None, **limits: Any
        ) -> Collector:
            tokens = limits.pop("tokens", None)
            collector = Collector(
                sink or MemorySink(),
                grpc_port=0,
                http_port=0,
                limits=CollectorLimits(**limits),
                reading=reading,
                tokens=tokens,
            )
            return stack.enter_context(running(collector))

        yield make


def collecting(folder: Path, url: str, *words: str) -> Tailspan:
    """Return a real `tailspan collect`, which tests attack or kill."""
    return Tailspan(folder, "collect", "--database", url, "--gpus=off", *words)


def read_all(connection: socket.socket) -> bytes:
    found = b""
    while True:
        try:
            chunk = connection.recv(65_536)
        except ConnectionResetError:
            return found
        if not chunk:
            return found
        found += chunk


def read_head(connection: socket.socket) -> bytes:
    found = b""
    while b"\r\n\r\n" not in found:
        chunk = connection.recv(4096)
        if not chunk:
            break
        found += chunk
    return found


def post(length: int | None, *headers: str, path: str = "/v1/traces") -> bytes:
    """Return the header lines of a protobuf POST. If `length` is None, the body is chunked."""
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/x-protobuf",
        size,
        *headers,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n"
