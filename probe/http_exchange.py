"""Send one HTTP request over a new connection, and measure each step at the socket.

No HTTP client library is used, because it does not report the steps exactly (docs/decisions/084).
h11 is used only as a parser. Instants are on the event loop's clock.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import h11

from probe.connection import Timings, connect, reason_of
from probe.errors import ProbeFailure

MAX_ANSWER_BYTES: Final = 64 * 2**20
MAX_REFUSAL_BYTES: Final = 16_384
"""Maximum number of bytes that are kept of the body of an error response."""
USER_AGENT: Final = "tailspan-probe"


class HttpRequest(NamedTuple):
    """An HTTP request."""

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    method: str = "POST"


@dataclass(slots=True)
class Response:
    """The head of a response, and the start of an error response's body."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    refusal: bytes = b""

    @property
    def retry_after_s(self) -> float | None:
        """The seconds that the server asks the client to wait. Source: RFC 9110, "Retry-After"."""
        written = self.headers.get("retry-after", "")
        if written.isdecimal() and len(written) < 10:
            return float(written)
        try:
            return max(parsedate_to_datetime(written).timestamp() - time.time(), 0.0)
        except (TypeError, ValueError, OverflowError):
            return None


OnBody = Callable[[bytes, float], None]


async def exchange(
    request: HttpRequest,
    timings: Timings,
    response: Response,
    context: ssl.SSLContext | None,
    on_body: OnBody,
) -> None:
    """Send a request, and read the response to its end.

    Args:
        timings: receives the measurements. After a failure, it has the measurements until the
            failure.
        response: receives the status and the headers.
        on_body: called with each part of the body and the part's arrival, if the status is below
            300.

    Raises:
        ProbeFailure: the exchange failed, or `on_body` raised it.
    """
    parts = urlsplit(request.url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    loop = asyncio.get_running_loop()
    connected = await connect(host, port, timings)
    protocol = _Exchange(loop, request, timings, response, on_body)
    start = loop.time()
    try:
        try:
            transport, _ = await loop.create_connection(
                lambda: protocol,
                sock=connected,
                ssl=context if secure else None,
                server_hostname=host if secure else None,
            )
        finally:
            if not protocol.made:
                connected.close()
    except ssl.SSLError as error:
        raise ProbeFailure("tls", f"TLS to {host} failed: {_tls_reason(error)}") from error
    except OSError as error:
        raise ProbeFailure("tls", f"TLS to {host}:{port} failed: {reason_of(error)}") from error
    try:
        if secure:
            timings.tls_s = loop.time() - start
            timings.certificate_ends_unix_s = _certificate_end(transport)
        protocol.send()
        await protocol.done
    finally:
        transport.abort()


class _Exchange(asyncio.Protocol):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        request: HttpRequest,
        timings: Timings,
        response: Response,
        on_body: OnBody,
    ) -> None:
        self._loop, self._request, self._timings, self._on_body = loop, request, timings, on_body
        self._response = response
        self._http = h11.Connection(h11.CLIENT)
        self._received_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._written = False
        self.made = False
        self.done: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made = True
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # With a limit of 0, asyncio calls `resume_writing` when the kernel has accepted the last
        # byte.
        transport.set_write_buffer_limits(high=0)

    def send(self) -> None:
        assert self._transport is not None
        parts = urlsplit(self._request.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._timings.ready_at = self._loop.time()
        try:
            head = self._http.send(
                h11.Request(
                    method=self._request.method,
                    target=target,
                    headers=[
                        ("Host", parts.netloc),
                        ("User-Agent", USER_AGENT),
                        ("Connection", "close"),
                        ("Accept-Encoding", "identity"),
                        ("Content-Length", str(len(self._request.body))),
                        *self._request.headers,
                    ],
                )
            )
            body = self._http.send(h11.Data(data=self._request.body))
            self._http.send(h11.EndOfMessage())
        except h11.LocalProtocolError as error:
            # h11's message could contain a header with the API key.
            raise ProbeFailure("request", "the request has a malformed header") from error
        self._transport.write((head or b"") + (body or b""))
        if not self._paused:
            self._note_written()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._note_written()

    def data_received(self, data: bytes) -> None:
        at = self._loop.time()
        timings = self._timings
        if timings.first_byte_s is None and timings.ready_at is not None:
            timings.first_byte_s = at - timings.ready_at
        if self.done.done():
            return
        try:
            self._http.receive_data(data)
            self._read(at)
        except ProbeFailure as failure:
            self._fail(failure)
        except h11.RemoteProtocolError as error:
            self._fail(ProbeFailure("http", f"the response is not HTTP: {error}"))

    def eof_received(self) -> None:
        if self.done.done():
            return
        try:
            self._http.receive_data(b"")
            self._read(self._loop.time())
        except ProbeFailure as failure:
            self._fail(failure)
        except h11.RemoteProtocolError:
            self._fail(_cut_off_failure(self._response, "the server closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        why = "the server closed the connection" if exc is None else reason_of(exc)
        self._fail(_cut_off_failure(self._response, why))

    def _note_written(self) -> None:
        timings = self._timings
        if not self._written and timings.ready_at is not None:
            self._written = True
            timings.written_s = self._loop.time() - timings.ready_at

    def _read(self, at: float) -> None:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed):
                return
            if isinstance(event, h11.Response):
                self._response.status = event.status_code
                self._response.headers = {
                    name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers
                }
            elif isinstance(event, h11.Data):
                self._body(bytes(event.data), at)
            elif isinstance(event, h11.EndOfMessage):
                self._timings.ended_at = at
                self.done.set_result(None)
                return
            elif event is h11.PAUSED:
                return

    def _body(self, data: bytes, at: float) -> None:
        self._received_bytes += len(data)
        if self._received_bytes > MAX_ANSWER_BYTES:
            raise ProbeFailure("stream", f"the answer has more than {MAX_ANSWER_BYTES:,} bytes")
        if self._response.status < 300:
            self._on_body(data, at)
        elif len(self._response.refusal) < MAX_REFUSAL_BYTES:
            self._response.refusal = (self._response.refusal + data)[:MAX_REFUSAL_BYTES]

    def _fail(self, failure: ProbeFailure) -> None:
        if not self.done.done():
            self._timings.ended_at = self._loop.time()
            self.done.set_exception(failure)
            # Without this, asyncio logs an error if no task awaits the future.
            self.done.exception()


def _cut_off_failure(response: Response, why: str) -> ProbeFailure:
    if response.status:
        return ProbeFailure("truncated", f"the answer was cut off: {why}")
    return ProbeFailure("disconnected", f"no answer: {why}")


def _certificate_end(transport: asyncio.BaseTransport) -> float | None:
    certificate = transport.get_extra_info("peercert") or {}
    end = certificate.get("notAfter")
    return None if end is None else float(ssl.cert_time_to_seconds(end))


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or "handshake failed").lower().replace("_", " ")
