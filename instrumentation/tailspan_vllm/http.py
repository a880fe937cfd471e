"""The HTTP edge: when a request was received, when its first and last byte left.

An ASGI layer, the outermost one. Per request it takes two clock readings and wraps `send`
in a plain function that, after the first byte, does nothing but pass the message on: no
coroutine of ours is added per streamed chunk.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tailspan_vllm import guard
from tailspan_vllm.capture import Capture, process_capture
from tailspan_vllm.exchange import Exchange, Scope, current

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

ORPHAN_GRACE_S = 2.0
"""How long after the answer's end the engine may take to say that a request has ended."""


class TimingMiddleware:
    """ASGI layer around a vLLM server; harmless when added twice."""

    def __init__(self, app: ASGIApp, capture: Capture | None = None) -> None:
        self.app = app
        # Named by hand in `--middleware`, it is made without a capture.
        self.capture = capture or process_capture()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event, timed where it is an HTTP request."""
        if scope["type"] != "http" or current.get() is not None:
            await self.app(scope, receive, send)
            return
        exchange = Exchange(scope, self.capture.wanted_headers)
        token = current.set(exchange)
        try:
            await self.app(scope, _watched_receive(receive, exchange), _timed_send(send, exchange))
        finally:
            current.reset(token)
            exchange.delivered = exchange.delivered or time.monotonic()
            _end(self.capture, exchange)


@guard.harmless("exchange_end")
def _end(capture: Capture, exchange: Exchange) -> None:
    capture.exchange_ended(exchange)
    if exchange.flights:
        asyncio.get_running_loop().call_later(ORPHAN_GRACE_S, capture.give_up_on, exchange)


def _timed_send(send: Send, exchange: Exchange) -> Send:
    def timed(message: Message) -> Awaitable[None]:
        if exchange.first_byte is None:
            try:
                if message["type"] == "http.response.start":
                    exchange.answered(message)
                elif exchange.delivered is None and message.get("body"):
                    # What is written after the client has gone is no answer.
                    exchange.first_byte = time.monotonic()
            except Exception:
                guard.note_failure("send")
        return send(message)

    return timed


def _watched_receive(receive: Receive, exchange: Exchange) -> Receive:
    async def watched() -> Message:
        message = await receive()
        if message["type"] == "http.disconnect" and exchange.delivered is None:
            exchange.delivered = time.monotonic()
            # uvicorn says "disconnect" also when an answer is complete.
            cycle = getattr(receive, "__self__", None)
            exchange.disconnected = not getattr(cycle, "response_complete", False)
        return message

    return watched
