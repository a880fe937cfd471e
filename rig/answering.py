"""Servers on loopback that answer as a test wants: HTTP by a function, or bytes by a manner."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

JOIN_S = 20.0


class Asked(NamedTuple):
    """A request; names of headers are lower-case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Reply(NamedTuple):
    """An answer; its length is sent in addition to its headers."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


@dataclass
class HttpServer:
    """A running server, and what it was asked so far."""

    port: int
    asked: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def answering(
    reply: Callable[[Asked], Reply | None] = lambda _: Reply(), version: str = "HTTP/1.0"
) -> Iterator[HttpServer]:
    """Run an HTTP server on a free port; requests are answered on a thread each, None by hanging
    up."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = version

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, self.path, headers, body)
            here.asked.append(asked)
            if (said := reply(asked)) is None:
                return
            with contextlib.suppress(OSError):  # the client has left
                self.send_response(said.status)
                for name, value in {"Content-Length": len(said.body), **said.headers}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(said.body)

        do_GET = do_POST = do_PUT = _any  # noqa: N815 -- names of the standard library's

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


Manner = Callable[[socket.socket, bytes, threading.Event], None]
"""Handles a connection, given what it sent first; the event is set at the end."""


@contextmanager
def speaking() -> Iterator[Callable[[Manner], str]]:
    """Serve a manner to whoever connects, on a free port each; its address."""
    ending = threading.Event()
    threads: list[threading.Thread] = []

    def begin(target: Callable[..., None], *given: Any) -> None:
        threads.append(threading.Thread(target=target, args=given))
        threads[-1].start()

    def one(connection: socket.socket, manner: Manner) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(10)
            manner(connection, connection.recv(65_536), ending)

    def accept(listening: socket.socket, manner: Manner) -> None:
        with listening:
            while not ending.is_set():
                with contextlib.suppress(TimeoutError):
                    begin(one, listening.accept()[0], manner)

    def serve(manner: Manner) -> str:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.settimeout(0.05)
        begin(accept, listening, manner)
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    try:
        yield serve
    finally:
        ending.set()
        for thread in threads:
            thread.join(JOIN_S)
