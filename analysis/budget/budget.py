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
"""The layers of E2E, in the order of time. `network` includes the way back."""

BEYOND_TTFT: Final = ("decode", "after")
"""The layers that come after the first token."""

AROUND: Final = ("before", "after")
"""The layers of the application. Their time is known by operation."""

OPERATIONS: Final = (
    *(Operation.VALIDATION, Operation.EMBEDDINGS, Operation.RETRIEVAL, Operation.TOOL),
    *(Operation.FORMATTING, Operation.CALL, Operation.OTHER),
)
"""The operations of the application. `call` is another call to a model at the same time. `other` is
time that no named operation explains."""

UNASSIGNED: Final = "unassigned"

PARTS: Final = tuple(
    part
    for layer in LAYERS
    for part in ([f"{layer}.{each}" for each in OPERATIONS] if layer in AROUND else [layer])
)
"""The measured parts of a latency. They sum to it."""


def parts_of(line: str) -> tuple[str, ...]:
    """Return the parts of a layer such as `before`, or of one operation such as `before.tool`."""
    return tuple(part for part in PARTS if part == line or part.startswith(f"{line}."))


@dataclass(frozen=True, slots=True)
class Budget:
    """A latency budget.

    Attributes:
        name: the file's name without its ending, or the preset's.
        latency: `ttft` or `e2e`, as the user of the application waits for it.
        percentile: the percentile that must be within the total.
        total_ns: the whole budget.
        layers_ns: the budget of a layer, or of one operation of a layer (`before.retrieval`). They
            sum to at most the total.
        source: where the total comes from.
    """

    name: str
    latency: str
    percentile: str
    total_ns: int
    layers_ns: Mapping[str, int]
    source: str | None = None

    @property
    def unassigned_ns(self) -> int:
        """The part of the total that is not assigned to a layer."""
        return self.total_ns - sum(self.layers_ns.values())
