"""Define a joined request, which several engines served, with its hops (one per engine) and phases.

Durations are in seconds. An unknown value is None. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from telemetry.requests import tpot_s

ROUTE: Final = "route_s"
PREFILL_QUEUE: Final = "prefill_queue_s"
PREFILL: Final = "prefill_s"
KV_TRANSFER: Final = "kv_transfer_s"
DECODE_QUEUE: Final = "decode_queue_s"
DECODE: Final = "decode_s"
DELIVERY: Final = "delivery_s"

JOINED_PHASES: Final = (
    *(ROUTE, PREFILL_QUEUE, PREFILL, KV_TRANSFER, DECODE_QUEUE, DECODE, DELIVERY),
)
"""The phases in their usual order. Their durations sum to `e2e_s`."""

HOP_COLUMNS: Final = (
    *("received_unix_ns", "trace_id", "span_id", "request_id", "source"),
    *("model", "lora", "route", "tenant", "region", "replica", "engine", "config", "outcome"),
    *("streamed", "frontend_s", "queue_s", "queue_held_s", "kv_load_s", "prefill_s", "decode_s"),
    "delivery_s",
    *("ttft_s", "first_content_s", "e2e_s", "prompt_tokens", "cached_tokens"),
    *("external_cached_tokens", "output_tokens", "cost_usd"),
)

Row = Mapping[str, Any]
"""A stored request with `HOP_COLUMNS`."""


class EngineRole(StrEnum):
    """What an engine did for a request."""

    PREFILL = "prefill"
    DECODE = "decode"


class JoinedBasis(StrEnum):
    """Where the end-to-end time was measured."""

    CLIENT = "client"
    ROUTER = "router"
    ENGINES = "engines"
    """From the first receipt to the last delivery at an engine, without the router's time."""


class JoinedBy(StrEnum):
    """The kind of id by which the rows were joined."""

    TRACE = "trace"
    REQUEST_ID = "request_id"


@dataclass(frozen=True, slots=True)
class RequestHop:
    """One engine's part of a joined request.

    Attributes:
        recomputed: whether a decode engine computed more than half of the prompt itself.
        clock_shift_s: time added to the row's start, so that the hops are in order.
    """

    row: Row
    role: EngineRole
    recomputed: bool = False
    clock_shift_s: float = 0.0

    @property
    def server(self) -> str | None:
        """The replica, followed by `/` and the engine's number unless it is 0."""
        replica: str | None = self.row["replica"]
        engine = self.row["engine"]
        return f"{replica}/{engine}" if replica is not None and engine else replica


@dataclass(frozen=True, slots=True)
class JoinedRequest:
    """One user's request, and the engines that served it, in the order of time.

    Attributes:
        started_unix_ns: by the clock of the client, the router, or the engine that answered
            (`basis`).
        phases: seconds of each phase, or None. The phases sum to `e2e_s`.
        ttft_s: the user's TTFT, or None if no decode engine answered.
        ttft_phases: seconds of each phase until the first byte. These phases sum to `ttft_s`.
        first_content_s: the user's time to first content, or None.
        joined_by: the kind of id by which the rows were joined, or None for a single hop.
    """

    started_unix_ns: int
    hops: tuple[RequestHop, ...]
    phases: Mapping[str, float | None]
    ttft_s: float | None
    ttft_phases: Mapping[str, float | None] | None
    first_content_s: float | None
    e2e_s: float
    basis: JoinedBasis
    joined_by: JoinedBy | None

    @property
    def last(self) -> Row:
        """The row of the last hop: the decode engine that answered, if there is one."""
        return self.hops[-1].row

    @property
    def engine_started_unix_ns(self) -> int:
        """The start by the clock of the engine that answered. The clock of a client or a router
        may differ."""
        return self.started_unix_ns - round(self.hops[-1].clock_shift_s * 1e9)

    @property
    def complete(self) -> bool:
        """Whether a decode engine's row is known."""
        return self.hops[-1].role is EngineRole.DECODE

    @property
    def outcome(self) -> str | None:
        """The outcome for the user, or None if only successful prefills are known."""
        outcome = str(self.last["outcome"])
        return outcome if self.complete or outcome not in ("stop", "length") else None

    @property
    def cost_usd(self) -> float | None:
        """The sum of the hops' costs, or None if the cost of a hop is unknown."""
        costs = [each.row["cost_usd"] for each in self.hops]
        return None if None in costs else float(sum(costs))

    @property
    def tpot_s(self) -> float | None:
        """The TPOT in seconds, measured at the decode engine."""
        return tpot_s(self.last["decode_s"], self.last["output_tokens"]) if self.complete else None

    def label(self, name: str) -> Any:
        """The value of a label, from the last hop that has it."""
        values = (each.row[name] for each in reversed(self.hops))
        return next((value for value in values if value is not None), None)
