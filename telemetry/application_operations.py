"""The operations of an application (agents, tools, retrievals) around its calls to a model.

A row contains no prompt and no name of a tool. Compare times only within one `process`, because the
clocks of different processes may differ.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Operation(StrEnum):
    """The kind of an operation."""

    CALL = "call"
    """A call that generates tokens. It is also stored as a client's request."""
    ENCLOSING = "enclosing"
    """An agent or a workflow, which contains other operations."""
    VALIDATION = "validation"
    EMBEDDINGS = "embeddings"
    RETRIEVAL = "retrieval"
    TOOL = "tool"
    FORMATTING = "formatting"
    ROUTER = "router"
    """A request at a gateway or router. Budgets ignore it."""
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
"""The operation of each `gen_ai.operation.name`. Tailspan adds `validation` and `formatting`.

Source: OpenTelemetry semantic conventions, registry of `gen_ai.operation.name`.
"""

MAX_PER_TRACE: Final = 256
"""Maximum number of stored operations per trace (about 50 kB). A trace with this many operations
may be incomplete, so the application's time around its model calls is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationOperation:
    """One operation of an application.

    `process` is a digest of the sender's resource attributes. `at_unix_ns` is corrected by
    `clock_ahead_s`.
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
    response_id: str | None = None
    """The response's id, if the operation is a request at a router. It identifies the engine's
    request if the router does not forward the trace context."""

    @property
    def sent_unix_ns(self) -> int:
        """The start without the clock correction."""
        return self.at_unix_ns + round((self.clock_ahead_s or 0.0) * 1e9)
