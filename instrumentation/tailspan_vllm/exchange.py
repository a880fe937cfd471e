"""A call under way: its HTTP side, and the engine requests made for it.

An `Exchange` may carry several flights (`n > 1`, several prompts) or none (refused before the
engine); a `Flight` may have no exchange (an offline `LLM`).
"""

import time
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

from tailspan_vllm.names import KV_USAGE, RUNNING, WAITING
from tailspan_vllm.record import RequestRecord

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


class Flight:
    """One engine request between the engine's front door and its end."""

    __slots__ = (
        "added",
        "ended",
        "exchange",
        "left",
        "preempted_at",
        "record",
        "resumed_at",
        "running",
        "trace_headers",
        "usage",
        "waiting",
        "wall_offset_ns",
    )

    def __init__(
        self, exchange: Exchange | None, trace_headers: Any, gauges: dict[str, int | float]
    ) -> None:
        self.exchange = exchange
        self.trace_headers = trace_headers
        self.added = time.monotonic()
        self.wall_offset_ns = (
            exchange.wall_offset_ns if exchange else time.time_ns() - round(self.added * 1e9)
        )
        self.waiting = gauges.get(WAITING)
        self.running = gauges.get(RUNNING)
        self.usage = gauges.get(KV_USAGE)
        self.preempted_at: list[float] = []
        self.resumed_at: list[float] = []
        self.ended: float | None = None
        self.left: Any = None
        """The state with which it was struck from the engine's books, until it is said why."""
        self.record: RequestRecord | None = None

    @property
    def open(self) -> bool:
        """Whether the engine has yet to say how this request ended."""
        return self.ended is None


current: ContextVar[Exchange | None] = ContextVar("tailspan_exchange", default=None)
"""The exchange that the running task serves; it follows the task into the engine's front door."""
