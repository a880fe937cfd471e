"""A call under way: its HTTP side, and the engine requests made for it.

An `Exchange` may carry several flights (`n > 1`, several prompts) or none (refused before the
engine); a `Flight` may have no exchange (an offline `LLM`). Both only record
values; `telling.py` builds the request's record from them later, on another thread.
"""

import random
import time
from collections.abc import Container, MutableMapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from tailspan_vllm.request.record import Outcome
from tailspan_vllm.request.text_limits import TEXT_LIMIT, bounded_text

Scope = MutableMapping[str, Any]

OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/embeddings": "embeddings",
    "/generate": "text_completion",
    "/inference/v1/generate": "text_completion",
}
"""Routes on which a request is reported even if it never reached the engine."""


REQUEST_ID, TRACEPARENT = b"x-request-id", b"traceparent"
WANTED = frozenset({REQUEST_ID, TRACEPARENT})
"""Request headers that are read, in addition to the one that names the tenant."""


class Exchange:
    """One HTTP request, its response, and the engine requests made for it.

    It keeps a few of the client's headers and the path, cut to a limit. It releases the rest of
    the ASGI scope when the response has ended.
    """

    __slots__ = (
        "_route",
        "_scope",
        "delivered",
        "disconnected",
        "entered_engine",
        "first_byte",
        "flights",
        "headers",
        "method",
        "path",
        "received",
        "refused",
        "status",
        "streamed",
        "wall_offset_ns",
    )

    def __init__(self, scope: Scope, wanted: Container[bytes] = WANTED) -> None:
        self.received = time.monotonic()
        self.wall_offset_ns = time.time_ns() - round(self.received * 1e9)
        self.method: str | None = scope.get("method")
        root: str = scope.get("root_path", "")
        self.path = scope.get("path", "").removeprefix(root)[:TEXT_LIMIT]
        """Without the prefix that a proxy added."""
        self.headers: dict[bytes, bytes] = {}
        """The wanted ones; of several with one name the first."""
        for key, value in scope.get("headers", ()):
            if key in wanted and key not in self.headers:
                self.headers[key] = bytes(value[:TEXT_LIMIT])
        self.status: int | None = None
        """The HTTP status of the answer; None before any."""
        self.streamed: bool | None = None
        """Whether the answer is a stream of events; None before any answer."""
        self.first_byte: float | None = None
        self.delivered: float | None = None
        self.disconnected = False
        self.entered_engine = False
        self.refused: str | None = None
        """The limit for which the front end turned it away, where there was one."""
        self.flights: dict[Flight, None] = {}
        """Those of which nothing has been told yet, in their order. A client chooses how many:
        each is taken out in constant time."""
        self._route: str | None = None
        self._scope: Scope | None = scope

    def answered(self, message: MutableMapping[str, Any]) -> None:
        """Note the ASGI message with which the answer begins."""
        self.status = message["status"]
        self.streamed = False
        for key, value in message.get("headers", ()):
            if key.lower() == b"content-type":
                self.streamed = bytes(value).startswith(b"text/event-stream")
                return

    def end(self) -> None:
        """Keep the route that the router found, and release the ASGI scope."""
        if self._scope is not None:
            self._route = _template(self._scope)
            self._scope = None

    def header(self, name: bytes) -> str | None:
        """The value of a wanted request header, or None."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def unauthenticated(self) -> bool:
        """Whether the server turned the client away because it does not know it."""
        return self.status in (401, 403)

    @property
    def refused_before_engine(self) -> bool:
        """Whether it was turned away, or left, before the engine had any of it."""
        if self.entered_engine:
            return False
        return self.status is None or self.status >= 400 or self.refused is not None

    @property
    def route(self) -> str:
        """The route's template where the router told it: bounded, unlike paths."""
        scope = self._scope
        template = self._route if scope is None else _template(scope)
        return bounded_text(template or self.path)

    @property
    def operation(self) -> str:
        """The GenAI operation that the path stands for."""
        return OPERATIONS.get(self.path, "generate_content")


def _template(scope: Scope) -> str | None:
    template = getattr(scope.get("route"), "path", None)
    return template if isinstance(template, str) else None


class Facts(NamedTuple):
    """What vLLM's own state of a request said at its end. Copied: the state itself holds the
    prompt and the answer, and would be kept alive.

    Instants: the arrival on the wall clock, the others on the engine's monotonic clock; 0 where
    not reached. All None where vLLM keeps no statistics.
    """

    request_id: str
    engine_request_id: str
    lora: str | None
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    arrival_time: float | None
    queued: float | None
    scheduled: float | None
    first_token: float | None
    last_token: float | None


class Flight:
    """One engine request between the engine's front door and its end."""

    __slots__ = (
        "added",
        "ended",
        "exchange",
        "facts",
        "left",
        "load",
        "lora",
        "outcome",
        "preempted_at",
        "prompt_tokens",
        "reported_at",
        "resumed_at",
        "span_id",
        "streamed",
        "trace_id",
        "traceparent",
    )

    def __init__(self, exchange: Exchange | None, traceparent: str | None, load: Any) -> None:
        self.exchange = exchange
        self.traceparent = traceparent
        """Of a request that came by no HTTP."""
        self.added = time.monotonic()
        self.trace_id, self.span_id = random.getrandbits(128) or 1, random.getrandbits(64) or 1
        """Of its span; a trace that the client began goes before."""
        self.lora: str | None = None
        self.prompt_tokens: int | None = None
        self.streamed: bool | None = None
        """Whether a stream was asked for."""
        self.reported_at: float | None = None
        """When it was last reported in flight, on the monotonic clock."""
        self.load = load
        """The engine's load when the request arrived, as `enginestats.load_of` reads it."""
        self.preempted_at: list[float] = []
        self.resumed_at: list[float] = []
        self.ended: float | None = None
        self.outcome: Outcome = "error"
        self.facts: Facts | None = None
        self.left: Any = None
        """The state with which it was struck from the engine's books, until it is said why."""

    def asked(self, state: Any) -> None:
        """Copy what vLLM's state of the request says of it from the start."""
        self.lora, self.prompt_tokens = state.lora_name, state.prompt_len
        kind = getattr(getattr(state, "output_kind", None), "name", None)
        self.streamed = None if kind is None else kind == "DELTA"

    @property
    def open(self) -> bool:
        """Whether the engine has yet to say how this request ended."""
        return self.ended is None


current: ContextVar[Exchange | None] = ContextVar("tailspan_exchange", default=None)
"""The exchange that the running task serves; it follows the task into the engine's front door."""
