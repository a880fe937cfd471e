"""A call under way: its HTTP side, and the engine requests made for it.

An `Exchange` may carry several flights (`n > 1`, several prompts) or none (refused before the
engine); a `Flight` may have no exchange (an offline `LLM`). Both only note what passes by;
`telling.py` makes sense of it later, on another thread.
"""

import time
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from tailspan_vllm.record import Outcome

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
"""Routes on which a request that never reached the engine is still a request."""


class Exchange:
    """One HTTP request and its answer, and the engine requests made for it."""

    __slots__ = (
        "answer",
        "delivered",
        "disconnected",
        "entered_engine",
        "first_byte",
        "flights",
        "received",
        "refused",
        "scope",
        "wall_offset_ns",
    )

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.received = time.monotonic()
        self.wall_offset_ns = time.time_ns() - round(self.received * 1e9)
        self.answer: MutableMapping[str, Any] | None = None
        """The ASGI message with which the answer began."""
        self.first_byte: float | None = None
        self.delivered: float | None = None
        self.disconnected = False
        self.entered_engine = False
        self.refused: str | None = None
        """The limit for which the front end turned it away, where there was one."""
        self.flights: dict[Flight, None] = {}
        """Those of which nothing has been told yet, in their order. A client chooses how many:
        each is taken out in constant time."""

    @property
    def status(self) -> int | None:
        """The HTTP status of the answer; None before any."""
        return None if self.answer is None else self.answer["status"]

    @property
    def streamed(self) -> bool | None:
        """Whether the answer is a stream of events; None before any answer."""
        if self.answer is None:
            return None
        for key, value in self.answer.get("headers", ()):
            if key.lower() == b"content-type":
                return bytes(value).startswith(b"text/event-stream")
        return False

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
        "outcome",
        "preempted_at",
        "resumed_at",
        "trace_headers",
    )

    def __init__(self, exchange: Exchange | None, trace_headers: Any, load: Any) -> None:
        self.exchange = exchange
        self.trace_headers = trace_headers
        self.added = time.monotonic()
        self.load = load
        """The engine's load when the request arrived, as `enginestats.load_of` reads it."""
        self.preempted_at: list[float] = []
        self.resumed_at: list[float] = []
        self.ended: float | None = None
        self.outcome: Outcome = "error"
        self.facts: Facts | None = None
        self.left: Any = None
        """The state with which it was struck from the engine's books, until it is said why."""

    @property
    def open(self) -> bool:
        """Whether the engine has yet to say how this request ended."""
        return self.ended is None


current: ContextVar[Exchange | None] = ContextVar("tailspan_exchange", default=None)
"""The exchange that the running task serves; it follows the task into the engine's front door."""
