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
"""The layers in order of time. `network` covers both directions."""

BEYOND_TTFT: Final = ("decode", "after")
"""Layers after the first token."""

AROUND: Final = ("before", "after")
"""Layers of the application, divided by operation."""

OPERATIONS: Final = (
    *(Operation.VALIDATION, Operation.EMBEDDINGS, Operation.RETRIEVAL, Operation.TOOL),
    *(Operation.FORMATTING, Operation.CALL, Operation.OTHER),
)
"""`call` is time in which a parallel call to a model ran, `other` is time in which no named
operation ran."""

UNASSIGNED: Final = "unassigned"

PARTS: Final = tuple(
    part
    for layer in LAYERS
    for part in ([f"{layer}.{each}" for each in OPERATIONS] if layer in AROUND else [layer])
)
"""The parts sum to the latency."""


def parts_of(line: str) -> tuple[str, ...]:
    """The parts of a layer, or of one operation of a layer, such as `before.tool`."""
    return tuple(part for part in PARTS if part == line or part.startswith(f"{line}."))


@dataclass(frozen=True, slots=True)
class LatencyBudget:
    """A latency budget.

    Attributes:
        latency: `ttft` or `e2e`, including the layers outside the server.
        name: the file's name without its ending, or the preset's name.
        layers_ns: of a layer, or of an operation of a layer (`before.retrieval`). They sum to at
            most the total.
    """

    name: str
    latency: str
    percentile: str
    total_ns: int
    layers_ns: Mapping[str, int]
    source: str | None = None

    @property
    def unassigned_ns(self) -> int:
        """The part of the total that no layer has."""
        return self.total_ns - sum(self.layers_ns.values())
