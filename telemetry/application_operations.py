"""Define an operation: what an application did around its calls to a model.

The application's spans report operations of OpenTelemetry's GenAI conventions. A row contains no
prompt and no name of a tool. A latency budget uses the rows of a trace (`analysis/budget/`). The
times of two operations are compared only if both have the same `process`. Times of different
processes may come from different clocks.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Operation(StrEnum):
    """The kind of an operation."""

    CALL = "call"
    """A call to a model that generates tokens, also stored as a client's request."""
    ENCLOSING = "enclosing"
    """An agent or a workflow, which contains other operations."""
    VALIDATION = "validation"
    EMBEDDINGS = "embeddings"
    RETRIEVAL = "retrieval"
    TOOL = "tool"
    FORMATTING = "formatting"
    ROUTER = "router"
    """A request to a model at a gateway or router between client and engine. Budgets ignore it."""
    OTHER = "other"
    """An operation whose name is not in `NAMED`."""


NAMED: Final = {
    "create_agent": Operation.OTHER,
    "embeddings": Operation.EMBEDDINGS,
    "execute_tool": Operation.TOOL,
    "formatting": Operation.FORMATTING,
    "invoke_agent": Operation.ENCLOSING,
    "invoke_workflow": Operation.ENCLOSING,
    "retrieval": Operation.RETRIEVAL,
    "validation": Operation.VALIDATION,
}
"""The operation of each `gen_ai.operation.name`.

The conventions allow additional names: Tailspan adds `validation` and `formatting`.

Source: OpenTelemetry semantic conventions, registry of `gen_ai.operation.name`.
"""

MAX_PER_TRACE: Final = 256
"""Maximum number of stored operations of a trace (50 kB at about 200 bytes each). If a trace has
this many stored operations, others may be missing, so the application's time before and after a
model call is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationOperation:
    """One operation of an application.

    `process` is a digest of the sender's resource attributes. If the sender's clock is ahead, the
    start is corrected by `clock_ahead_s`.
    """

    trace_id: str
    span_id: str
    at_unix_ns: int
    operation: Operation
    length_s: float
    process: str
    simulated: bool = False
    clock_ahead_s: float | None = None
    ttft_s: float | None = None
    """The time until the first byte of the response, if a router reports it."""
    response_id: str | None = None
    """The id of the response, if a router reports it. If the router does not pass the trace context
    to the engine, this id shows which request belongs to the router's span."""

    @property
    def sent_unix_ns(self) -> int:
        """Return the start as the sender sent it, without the clock correction."""
        return self.at_unix_ns + round((self.clock_ahead_s or 0.0) * 1e9)
