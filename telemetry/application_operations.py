"""Define an operation: what an application did around its calls to a model.

The application's own spans report operations. A row is one operation of OpenTelemetry's GenAI
conventions: its name from a fixed list, its start and its length, and for a router the time to the
first byte and the response's id. No other attribute of the span is stored, so a row contains no
prompt and no name of a tool. These rows have their own table. A latency budget uses the rows of a
trace (`analysis/budget/`). The times of two rows are compared only if their `process` is equal,
because they are then from the same clock.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Operation(StrEnum):
    """The kind of an operation. The values are stored, and appear in Tailspan's output."""

    CALL = "call"
    """A call to a model that generates tokens. The span of the call is also stored as a client's
    request."""
    ENCLOSING = "enclosing"
    """An agent or a workflow, which contains other operations."""
    VALIDATION = "validation"
    EMBEDDINGS = "embeddings"
    RETRIEVAL = "retrieval"
    TOOL = "tool"
    FORMATTING = "formatting"
    ROUTER = "router"
    """A request to a model, reported by a gateway or a router between client and engine. It is not
    an operation of the application, so budgets ignore it."""
    OTHER = "other"
    """Any other name."""


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
"""The operation of each `gen_ai.operation.name`. Tailspan adds the names `validation` and
`formatting`. The conventions have no names for these operations, and allow additional names.

Source: OpenTelemetry semantic conventions, registry of `gen_ai.operation.name`.
"""

MOST_PER_TRACE: Final = 256
"""Maximum number of stored operations of a trace. If a trace has this many rows, it may have had
more operations, so its time around the model is unknown. A row has about 200 bytes, so a trace uses
at most 50 kB.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationOperation:
    """One operation of an application.

    `process` is a digest of the sender's resource attributes. If the sender's clock is ahead, the
    start is corrected by `clock_ahead_s`. A client's request from the same span is corrected
    equally.
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
    """The id of the response, if a router reports it. It joins a request with the span of a router
    that does not pass on the trace context."""

    @property
    def sent_unix_ns(self) -> int:
        """Return the start according to the sender's clock, before the correction."""
        return self.at_unix_ns + round((self.clock_ahead_s or 0.0) * 1e9)
