"""An HTTP request in progress (`Exchange`), and its requests to the engine (`Flight`).

An exchange has several flights if `n > 1` or if it has several prompts. It has no flight if the
request was refused before the engine. An offline `LLM` has no exchanges.
"""

import random
import time
from collections.abc import Container, MutableMapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from tailspan_vllm.request.answer_kinds import Answer, answer_of
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
"""GenAI operations by route. Requests to these routes are reported even if they never reach the
engine."""


_OK, _BAD_REQUEST = 200, 400
REQUEST_ID, TRACEPARENT = b"x-request-id", b"traceparent"
WANTED = frozenset({REQUEST_ID, TRACEPARENT})
"""Request headers to read, in addition to the tenant header."""


class Exchange:
    """One HTTP request. Only the path and a few headers of the ASGI scope are kept, up to a maximum
    length."""

    __slots__ = (
        "_route",
        "_scope",
        "answer",
        "delivered",
        "disconnected",
        "encoded",
        "engine_requests",
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
        """The path without the prefix that a proxy added."""
        self.headers: dict[bytes, bytes] = {}
        """The first value of a repeated header is used."""
        for key, value in scope.get("headers", ()):
            if key in wanted and key not in self.headers:
                self.headers[key] = bytes(value[:TEXT_LIMIT])
        self.status: int | None = None
        self.streamed: bool | None = None
        self.first_byte: float | None = None
        self.delivered: float | None = None
        self.answer: Answer | None = None
        """None before the first byte, and for routes without text."""
        self.encoded = False
        """Whether the answer is compressed."""
        self.disconnected = False
        self.engine_requests = 0
        self.refused: str | None = None
        """The admission limit that made the front end refuse the request."""
        self.flights: dict[Flight, None] = {}
        """Requests to the engine that are not reported yet, in order of arrival. It must be
        possible to remove each in constant time."""
        self._route: str | None = None
        self._scope: Scope | None = scope

    def answered(self, message: MutableMapping[str, Any]) -> None:
        """Record the ASGI message that begins the response."""
        self.status = message["status"]
        self.streamed = False
        for key, value in message.get("headers", ()):
            name = key.lower()
            if name == b"content-type":
                self.streamed = bytes(value).startswith(b"text/event-stream")
            elif name == b"content-encoding":
                self.encoded = bytes(value) != b"identity"

    def begin_answer(self) -> Answer | None:
        """Return the object that reads the answer's text. It is None if the status is not 200, or
        if the answer is compressed or has no text."""
        if self.status == _OK and not self.encoded:
            self.answer = answer_of(self.path, bool(self.streamed), self.flights)
        return self.answer

    def end(self) -> None:
        """Keep the route, and release the ASGI scope and vLLM's objects."""
        for flight in self.flights:
            flight.stats = None
        if self.answer is not None:
            self.answer.end()
        if self._scope is not None:
            self._route = _template(self._scope)
            self._scope = None

    def header(self, name: bytes) -> str | None:
        """The value of a stored request header, or None."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def entered_engine(self) -> bool:
        """Return whether the exchange made a request to the engine."""
        return self.engine_requests > 0

    @property
    def first_content(self) -> float | None:
        """Monotonic time at which the first content was sent, or None."""
        return None if self.answer is None else self.answer.first_content

    @property
    def engine_may_continue(self) -> bool:
        """Return whether an unfinished engine request may continue in the background (`background`
        of /v1/responses).

        The client has received a whole answer with the status `queued`, or has disconnected from a
        stream. If a stream does not continue in the background, vLLM aborts its engine request.
        """
        if self.status is None or self.status >= _BAD_REQUEST:
            return False
        if self.streamed:
            return self.disconnected and self.path == "/v1/responses"
        return not self.disconnected

    @property
    def unauthenticated(self) -> bool:
        """Return whether the server's response was 401 or 403."""
        return self.status in (401, 403)

    @property
    def refused_before_engine(self) -> bool:
        """Return whether the request was refused or aborted before it reached the engine."""
        if self.entered_engine:
            return False
        return self.status is None or self.status >= 400 or self.refused is not None

    @property
    def route(self) -> str:
        """The router's template, such as /v1/responses/{id}. If the router set no template, the
        path."""
        scope = self._scope
        template = self._route if scope is None else _template(scope)
        return bounded_text(template or self.path)

    @property
    def operation(self) -> str:
        """The GenAI operation of this path."""
        return OPERATIONS.get(self.path, "generate_content")


def _template(scope: Scope) -> str | None:
    template = getattr(scope.get("route"), "path", None)
    return template if isinstance(template, str) else None


class RequestSnapshot(NamedTuple):
    """Values of vLLM's own state of a request, copied when the request ends.

    The state is not kept, because it refers to the prompt and the response. The arrival is a
    wall-clock time, and all other times are on the engine's monotonic clock. A time is 0 if it was
    not reached, and None if vLLM keeps no statistics.
    """

    request_id: str
    engine_request_id: str
    lora: str | None
    prompt_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    arrival_time: float | None
    queued: float | None
    scheduled: float | None
    first_token: float | None
    last_token: float | None


class Flight:
    """One engine request."""

    __slots__ = (
        "added",
        "ended",
        "engine",
        "exchange",
        "facts",
        "load",
        "lora",
        "outcome",
        "output_kind",
        "preempted_at",
        "prompt_tokens",
        "removed_state",
        "reported_at",
        "resumed_at",
        "span_id",
        "stats",
        "trace_id",
        "traceparent",
    )

    def __init__(self, exchange: Exchange | None, traceparent: str | None, load: Any) -> None:
        self.exchange = exchange
        self.traceparent = traceparent
        """The W3C trace context of a request that did not arrive over HTTP."""
        self.added = time.monotonic()
        self.trace_id, self.span_id = random.getrandbits(128) or 1, random.getrandbits(64) or 1
        """A trace id from the client takes precedence."""
        self.lora: str | None = None
        self.prompt_tokens: int | None = None
        self.output_kind: Any = None
        """vLLM's `RequestOutputKind`."""
        self.stats: Any = None
        """vLLM's `RequestStateStats`, if vLLM keeps statistics. Kept until the exchange ends."""
        self.reported_at: float | None = None
        """Monotonic time of the last in-flight report."""
        self.engine: int | None = None
        """None if the front end has only one engine."""
        self.load = load
        """The engine's load at the request's arrival (`step_statistics.load_of`)."""
        self.preempted_at: list[float] = []
        self.resumed_at: list[float] = []
        self.ended: float | None = None
        self.outcome: Outcome = "error"
        self.facts: RequestSnapshot | None = None
        self.removed_state: Any = None
        """vLLM's state of the request, set from its removal until vLLM reports its outcome."""

    def copy_parameters(self, state: Any) -> None:
        """Copy the parameters of the request from vLLM's state."""
        self.lora, self.prompt_tokens = state.lora_name, state.prompt_len
        self.stats = None if self.exchange is None else getattr(state, "stats", None)
        self.output_kind = getattr(state, "output_kind", None)

    @property
    def streamed(self) -> bool | None:
        """Return whether the engine sends each token, or None if unknown."""
        kind = getattr(self.output_kind, "name", None)
        return None if kind is None else kind == "DELTA"

    @property
    def open(self) -> bool:
        """Return whether the engine has not yet reported how the request ended."""
        return self.ended is None


current: ContextVar[Exchange | None] = ContextVar("tailspan_exchange", default=None)
"""The exchange that the current task serves."""
