"""A latency budget: a total, and how much of it each layer may use. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from telemetry.application_operations import Operation

LATENCIES: Final = ("ttft", "e2e")
PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}

LAYERS: Final = (
    *("before", "network", "frontend", "queue", "prefill", "decode", "delivery", "after"),
)
"""The layers of the E2E latency, in the order of time. `network` includes the time of the request
and the time of the response."""

BEYOND_TTFT: Final = ("decode", "after")
"""The layers that come after the first token."""

AROUND: Final = ("before", "after")
"""The layers of the application, whose time is divided by operation."""

OPERATIONS: Final = (
    *(Operation.VALIDATION, Operation.EMBEDDINGS, Operation.RETRIEVAL, Operation.TOOL),
    *(Operation.FORMATTING, Operation.CALL, Operation.OTHER),
)
"""The operations of the application. `call` is time in which a parallel call to a model ran.
`other` is time in which no named operation ran."""

UNASSIGNED: Final = "unassigned"

PARTS: Final = tuple(
    part
    for layer in LAYERS
    for part in ([f"{layer}.{each}" for each in OPERATIONS] if layer in AROUND else [layer])
)
"""The measured parts of a latency. They sum to the latency."""


def parts_of(line: str) -> tuple[str, ...]:
    """Return the parts of a layer, or of one operation of a layer, such as `before.tool`."""
    return tuple(part for part in PARTS if part == line or part.startswith(f"{line}."))


@dataclass(frozen=True, slots=True)
class LatencyBudget:
    """A latency budget.

    Attributes:
        latency: `ttft` or `e2e`. The latency includes the layers outside the server.
        name: the file's name without its ending, or the preset's name.
        layers_ns: the budget of each layer, or of an operation of a layer (`before.retrieval`). The
            budgets sum to at most the total.
    """

    name: str
    latency: str
    percentile: str
    total_ns: int
    layers_ns: Mapping[str, int]
    source: str | None = None

    @property
    def unassigned_ns(self) -> int:
        """The nanoseconds of the latency that are not assigned to a layer."""
        return self.total_ns - sum(self.layers_ns.values())
