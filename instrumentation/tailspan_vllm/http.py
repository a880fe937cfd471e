"""The HTTP edge: when a request was received, when its first and last byte left.

An ASGI layer, the outermost one. Per request it takes two clock readings and wraps `send`
in a plain function that, after the first byte, does nothing but pass the message on: no
coroutine of ours is added per streamed chunk.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from tailspan_vllm import guard

if TYPE_CHECKING:
    from tailspan_vllm.capture import Capture, Flight

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/embeddings": "embeddings",
    "/generate": "text_completion",
    "/inference/v1/generate": "text_completion",
}
"""Routes on which a request that never reached the engine is still a request."""

ORPHAN_GRACE_S = 2.0
"""How long after the answer's end the engine may take to say that a request has ended."""


class Exchange:
    """One HTTP request and its answer, and the engine requests made for it."""

    __slots__ = (
        "delivered",
        "disconnected",
        "first_byte",
        "flights",
        "received",
        "scope",
        "status",
        "streamed",
        "wall_offset_ns",
    )

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.received = time.monotonic()
        self.wall_offset_ns = time.time_ns() - round(self.received * 1e9)
        self.first_byte: float | None = None
        self.delivered: float | None = None
        self.status: int | None = None
        self.streamed: bool | None = None
        self.disconnected = False
        self.flights: list[Flight] = []

    def header(self, name: bytes) -> str | None:
        """The value of a request header, or None."""
        for key, value in self.scope.get("headers", ()):
            if key == name:
                return bytes(value).decode("latin-1")
        return None

    @property
    def path(self) -> str:
        """The path, without the prefix that a proxy added."""
        path: str = self.scope.get("path", "")
        root: str = self.scope.get("root_path", "")
        return path[len(root) :] if root and path.startswith(root) else path

    @property
    def route(self) -> str:
        """The route's template where the router told it: bounded, unlike paths."""
        template = getattr(self.scope.get("route"), "path", None)
        return template if isinstance(template, str) else self.path

    @property
    def operation(self) -> str:
        """The GenAI operation that the path stands for."""
        return OPERATIONS.get(self.path, "generate_content")


current: ContextVar[Exchange | None] = ContextVar("tailspan_exchange", default=None)
"""The exchange that the running task serves; it follows the task into the engine's front door."""


class TimingMiddleware:
    """ASGI layer around a vLLM server; harmless when added twice."""

    def __init__(self, app: ASGIApp, capture: "Capture | None" = None) -> None:
        self.app = app
        if capture is None:  # named by hand in `--middleware`
            from tailspan_vllm.capture import process_capture

            capture = process_capture()
        self.capture = capture

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event, timed where it is an HTTP request."""
        if scope["type"] != "http" or current.get() is not None:
            await self.app(scope, receive, send)
            return
        exchange = Exchange(scope)
        token = current.set(exchange)
        try:
            await self.app(scope, _watched_receive(receive, exchange), _timed_send(send, exchange))
        finally:
            current.reset(token)
            exchange.delivered = exchange.delivered or time.monotonic()
            _end(self.capture, exchange)


@guard.harmless("exchange_end")
def _end(capture: "Capture", exchange: Exchange) -> None:
    capture.exchange_ended(exchange)
    if any(flight.open for flight in exchange.flights):
        asyncio.get_running_loop().call_later(ORPHAN_GRACE_S, capture.give_up_on, exchange)


def _timed_send(send: Send, exchange: Exchange) -> Send:
    def timed(message: Message) -> Awaitable[None]:
        if exchange.first_byte is None:
            _observe(message, exchange)
        return send(message)

    return timed


@guard.harmless("send")
def _observe(message: Message, exchange: Exchange) -> None:
    if message["type"] == "http.response.start":
        exchange.status = message["status"]
        content_type = next(
            (value for key, value in message.get("headers", ()) if key.lower() == b"content-type"),
            b"",
        )
        exchange.streamed = bytes(content_type).startswith(b"text/event-stream")
    elif message.get("body") and exchange.delivered is None:
        # What is written after the client has gone is no answer.
        exchange.first_byte = time.monotonic()


def _watched_receive(receive: Receive, exchange: Exchange) -> Receive:
    async def watched() -> Message:
        message = await receive()
        if message["type"] == "http.disconnect" and exchange.delivered is None:
            exchange.delivered = time.monotonic()
            exchange.disconnected = True
        return message

    return watched
