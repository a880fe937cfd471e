"""Servers for tests on the loopback interface."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

JOIN_S = 20.0


class ReceivedRequest(NamedTuple):
    """A received request. The names of its headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class HttpReply(NamedTuple):
    """A response."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


@dataclass
class HttpServer:
    """A running server, and the requests that it has received."""

    port: int
    received: list[ReceivedRequest] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def running_http_server(
    reply: Callable[[ReceivedRequest], HttpReply | None] = lambda _: HttpReply(),
    version: str = "HTTP/1.0",
) -> Iterator[HttpServer]:
    """Run an HTTP server on a free port, with a thread per request.

    If `reply` returns None, the server closes the connection without a response.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = version

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = ReceivedRequest(self.command, self.path, headers, body)
            here.received.append(request)
            if (answer := reply(request)) is None:
                return
            with contextlib.suppress(OSError):  # the client has disconnected
                self.send_response(answer.status)
                for name, value in {"Content-Length": len(answer.body), **answer.headers}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(answer.body)

        do_GET = do_POST = do_PUT = _any  # noqa: N815 -- the standard library's names

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here = HttpServer(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


ConnectionHandler = Callable[[socket.socket, bytes, threading.Event], None]
"""Handles a connection.

The arguments are the socket, the client's first bytes, and an event that is set when the server
stops.
"""


@contextmanager
def raw_server() -> Iterator[Callable[[ConnectionHandler], str]]:
    """Yield a function that starts a server with this handler and returns its URL."""
    ending = threading.Event()
    threads: list[threading.Thread] = []

    def begin(target: Callable[..., None], *given: Any) -> None:
        threads.append(threading.Thread(target=target, args=given))
        threads[-1].start()

    def one(connection: socket.socket, handler: ConnectionHandler) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(10)
            handler(connection, connection.recv(65_536), ending)

    def accept(listening: socket.socket, handler: ConnectionHandler) -> None:
        with listening:
            while not ending.is_set():
                with contextlib.suppress(TimeoutError):
                    begin(one, listening.accept()[0], handler)

    def serve(handler: ConnectionHandler) -> str:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.settimeout(0.05)
        begin(accept, listening, handler)
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    try:
        yield serve
    finally:
        ending.set()
        for thread in threads:
            thread.join(JOIN_S)
