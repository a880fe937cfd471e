"""What goes wrong: faults as data, each with a small function that brings it about.

Pure. A fault's id is the cause that `tailspan explain` should name. To add one, write a
function and give it a row in `INJECTIONS`.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from simulator.engine import Stall
from simulator.workload import Request, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A cause at work on [start_s, end_s), as hard as `severity`; 1 is plain to see."""

    cause: str
    start_s: float
    end_s: float = float("inf")
    severity: float = 1.0

    def __post_init__(self) -> None:
        if self.cause not in INJECTIONS:
            raise ValueError(f"cause: {self.cause!r}; allowed: {', '.join(sorted(INJECTIONS))}")
        if not 0 < self.severity < float("inf"):
            raise ValueError(f"severity: {self.severity}; allowed: more than 0, finite")
        if not 0 <= self.start_s < self.end_s:
            raise ValueError(
                f"start_s: {self.start_s}, end_s: {self.end_s}; allowed: from 0, start before end"
            )


Arrivals = Callable[[Fault, Workload, str], Iterator[Request]]
Stalls = Callable[[Fault, str], Iterator[Stall]]


@dataclass(frozen=True, slots=True)
class Injection:
    """How a cause is brought about: requests added to the traffic, or stalls of an engine."""

    summary: str
    arrivals: Arrivals | None = None
    stalls: Stalls | None = None


def _long_prompts(fault: Fault, workload: Workload, seed: str) -> Iterator[Request]:
    """One tenant sends prompts of 8,000 to 16,000 tokens, each unlike the others."""
    chance = random.Random(seed)
    # At severity 1 one request in fourteen: at 5 requests/s a sixth of the engine's time.
    rate_per_s = workload.rate_per_s * 0.08 * fault.severity
    at_s = fault.start_s
    while (at_s := at_s + chance.expovariate(rate_per_s)) < fault.end_s:
        yield Request(
            at_s=at_s,
            tenant=workload.tenants[0].name,
            prompt_tokens=chance.randint(8_000, 16_000),
            output_tokens=workload.answers.draw(chance),
        )


def _flood(fault: Fault, workload: Workload, seed: str) -> Iterator[Request]:
    """One tenant sends, beside its own, bursts of ten times the whole fleet's traffic."""
    chance = random.Random(seed)
    flood = replace(
        workload,
        rate_per_s=workload.rate_per_s * 10.0 * fault.severity,
        tenants=workload.tenants[:1],
    )
    # Four seconds in twenty: what lasted longer would pile up without end.
    at_s = fault.start_s
    while at_s < fault.end_s:
        yield from flood.arrivals(f"{seed}:{at_s}", at_s, min(at_s + 4.0, fault.end_s))
        at_s += chance.uniform(15.0, 25.0)


def _pauses(fault: Fault, seed: str) -> Iterator[Stall]:
    """The engine stands still for about a quarter of a second, some three times a minute."""
    chance = random.Random(seed)
    at_s = fault.start_s
    while (at_s := at_s + chance.expovariate(0.05)) < fault.end_s:
        yield Stall(at_s, chance.uniform(0.15, 0.35) * fault.severity)


INJECTIONS: dict[str, Injection] = {
    "prefill_interference": Injection(
        "a tenant sends very long prompts amid everyone's decodes",
        arrivals=_long_prompts,
    ),
    "tenant_flood": Injection(
        "a tenant sends bursts of many times the fleet's ordinary traffic", arrivals=_flood
    ),
    "engine_stall": Injection("engines stand still now and then", stalls=_pauses),
}
"""By the id of the cause."""
