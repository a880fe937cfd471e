"""Records when each HTTP request was received, and when its first and last bytes were sent.

This is the outermost ASGI layer. `send` is wrapped in a plain function, so that no coroutine is
added per chunk. After the first byte, chunks only pass through `request/answer_kinds.py`.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from contextvars import Token
from typing import Any

from tailspan_vllm import guard
from tailspan_vllm.front_end.capture import Capture, process_capture
from tailspan_vllm.request.exchange import Exchange, Scope, current
from tailspan_vllm.settings import settings_from

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

ORPHAN_GRACE_S = 2.0
"""Maximum time from the end of a response until the engine reports the request's end, except for a
response in the background."""

_TIMED = "tailspan.timed"
"""This key in a scope means that an outer middleware already measures the request. The variable
`current` does not show this, because a server may handle the next request of a connection in the
context of the previous request."""


class TimingMiddleware:
    """Measures a vLLM server's requests. If the middleware is added twice, it still measures each
    request only once."""

    def __init__(self, app: ASGIApp, capture: Capture | None = None) -> None:
        self.app = app
        # vLLM's option `--middleware` passes no argument `capture`.
        self.capture = capture or _enabled_capture()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, and measure it if it is an HTTP request."""
        capture = self.capture
        exchange = _begin(capture, scope)
        if exchange is None or capture is None:
            await self.app(scope, receive, _noting_ready(send, scope, capture))
            return
        token = current.set(exchange)
        try:
            await self.app(scope, _watched_receive(receive, exchange), _timed_send(send, exchange))
        finally:
            _end(capture, exchange, token)


def _enabled_capture() -> Capture | None:
    """The capture of this process, or None if the instrumentation is disabled."""
    try:
        return process_capture() if settings_from(os.environ).enabled else None
    except Exception:
        guard.note_failure("capture")
        return None


def _begin(capture: Capture | None, scope: Scope) -> Exchange | None:
    try:
        if capture is None or scope["type"] != "http" or _TIMED in scope:
            return None
        exchange = Exchange(scope, capture.wanted_headers)
        scope[_TIMED] = True
        return exchange
    except Exception:
        guard.note_failure("exchange_begin")
        return None


@guard.catch_exceptions("exchange_end")
def _end(capture: Capture, exchange: Exchange, token: Token[Exchange | None]) -> None:
    exchange.delivered = exchange.delivered or time.monotonic()
    with suppress(ValueError):  # raised if the coroutine was closed from another context
        current.reset(token)
    capture.exchange_ended(exchange)
    if exchange.flights and not exchange.engine_may_continue:
        asyncio.get_running_loop().call_later(ORPHAN_GRACE_S, _give_up, capture, exchange)


@guard.catch_exceptions("give_up")
def _give_up(capture: Capture, exchange: Exchange) -> None:
    capture.give_up_on(exchange)


def _noting_ready(send: Send, scope: Scope, capture: Capture | None) -> Send:
    """A `send` function that also records when the application has started."""
    try:
        if capture is None or scope["type"] != "lifespan":
            return send
        serves = capture.sender.serves
    except Exception:
        guard.note_failure("lifespan")
        return send

    def noting(message: Message) -> Awaitable[None]:
        note(message)
        return send(message)

    @guard.catch_exceptions("ready")
    def note(message: Message) -> None:
        if message["type"] == "lifespan.startup.complete":
            serves()

    return noting


def _timed_send(send: Send, exchange: Exchange) -> Send:
    reads: Callable[[bytes], bool] | None = None
    """None before the first byte and after the search."""

    def timed(message: Message) -> Awaitable[None]:
        nonlocal reads
        try:
            if reads is not None:
                # Later bytes do not reach the client.
                body = message.get("body")
                if body and (exchange.delivered is not None or not reads(body)):
                    reads = None
            elif exchange.first_byte is None:
                reads = _begin_answer(exchange, message)
        except Exception:
            reads = None
            guard.note_failure("send")
        return send(message)

    return timed


def _begin_answer(exchange: Exchange, message: Message) -> Callable[[bytes], bool] | None:
    """The function that searches the rest of the answer, or None if there is nothing to search."""
    if message["type"] == "http.response.start":
        exchange.answered(message)
        return None
    body = message.get("body")
    if not body or exchange.delivered is not None:
        return None
    exchange.first_byte = time.monotonic()
    answer = exchange.begin_answer()
    return answer.sent if answer is not None and answer.sent(body) else None


def _watched_receive(receive: Receive, exchange: Exchange) -> Receive:
    async def watched() -> Message:
        message = await receive()
        _note_disconnect(message, exchange, receive)
        return message

    return watched


@guard.catch_exceptions("receive")
def _note_disconnect(message: Message, exchange: Exchange, receive: Receive) -> None:
    if message["type"] == "http.disconnect" and exchange.delivered is None:
        exchange.delivered = time.monotonic()
        # uvicorn also reports "disconnect" when a response is complete.
        cycle = getattr(receive, "__self__", None)
        exchange.disconnected = not getattr(cycle, "response_complete", False)
