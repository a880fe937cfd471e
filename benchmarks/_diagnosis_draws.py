"""Draw simulated cases at random: their causes, severity, fleet and load.

A seed determines all cases. So a detector can be developed on the cases of one seed, and tested on
the cases of another seed.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from diagnosis.question import Span
from replay.engine_config import EngineConfig
from simulator import capacity
from simulator.fault import CAUSES, SimulatedFault
from simulator.faults import INJECTIONS
from simulator.fleet_config import FleetConfig
from simulator.foreign_world import ForeignWorld
from simulator.workload import TENANTS, Tenant, Workload

SINGLE, PAIR, NONE = "single", "pair", "none"
KINDS = (SINGLE, PAIR, NONE)
_MIX = (SINGLE, SINGLE, SINGLE, PAIR, NONE)

_WARM_S = 40.0
"""Seconds until a fleet with empty queues and caches reaches its usual state."""
_BEGAN_UNIX_NS = 1_750_000_000 * 10**9


@dataclass(frozen=True, slots=True)
class Drawn:
    """One case: a fleet with its faults, and the two time ranges to compare."""

    number: int
    kind: str
    causes: tuple[str, ...]
    severities: tuple[float, ...]
    load: float
    """Share of the fleet's capacity that ordinary traffic uses."""
    config: FleetConfig
    baseline: Span
    window: Span


def kinds_of(count: int, seed: int, only: str | None) -> list[tuple[str, tuple[str, ...]]]:
    """Return the kind of each case (single, pair or none), and its causes.

    In every five cases, three have one cause, one has two causes, and one has no cause.
    """
    draw = random.Random(f"{seed}/kinds")
    singles: list[str] = []
    found: list[tuple[str, tuple[str, ...]]] = []
    for number in range(count):
        kind = SINGLE if only else _MIX[number % len(_MIX)]
        if kind == NONE:
            found.append((kind, ()))
        elif kind == PAIR:
            found.append((kind, _pair(draw)))
        else:
            if not singles:
                singles = [only] if only else draw.sample(CAUSES, len(CAUSES))
            found.append((kind, (singles.pop(),)))
    return found


def _pair(draw: random.Random) -> tuple[str, str]:
    """Return two causes that affect the same latency."""
    first = draw.choice(CAUSES)
    same_latency = [
        cause
        for cause in CAUSES
        if cause != first and INJECTIONS[cause].affects == INJECTIONS[first].affects
    ]
    return (first, draw.choice(same_latency)) if same_latency else _pair(draw)


def drawn(
    number: int, seed: int, kind: str, causes: tuple[str, ...], foreign: bool = False
) -> Drawn:
    """Choose the fleet, the load and the severities of a case at random.

    With `foreign`, the servers have properties that the fitted model does not have.
    """
    draw = random.Random(f"{seed}/{number}")
    engine = EngineConfig(
        max_num_seqs=draw.choice((64, 128, 256)),
        max_num_batched_tokens=draw.choice((2048, 4096, 8192)),
        num_gpu_blocks=draw.randrange(15_000, 30_000),
        step_noise_ratio=draw.uniform(0.02, 0.05),
    )
    tenants = tuple(
        replace(tenant, weight=tenant.weight * draw.uniform(0.6, 1.6)) for tenant in _some(draw)
    )
    workload = Workload(rate_per_s=1.0, tenants=tenants, prefix_share=draw.uniform(0.5, 0.85))
    load, replicas = draw.uniform(0.25, 0.55), draw.choice((1, 1, 2))
    each_per_s = load * capacity.capacity_per_s(engine, capacity.means_of(workload, engine))
    baseline_s, window_s = draw.uniform(170.0, 230.0), draw.uniform(150.0, 210.0)
    begins_s = _WARM_S + baseline_s
    severities = tuple(draw.choice((0.5, 0.75, 1.0, 1.5, 2.0)) for _ in causes)
    config = FleetConfig(
        replicas=replicas,
        workload=replace(workload, rate_per_s=each_per_s * replicas),
        engine=engine,
        router=draw.choice(("least_outstanding", "round_robin")),
        faults=tuple(
            SimulatedFault(
                cause=cause,
                start_s=begins_s + draw.uniform(0.0, 0.15) * window_s,
                severity=severity,
                replica=draw.randrange(replicas),
            )
            for cause, severity in zip(causes, severities, strict=True)
        ),
        seed=draw.randrange(2**31),
        duration_s=begins_s + window_s,
        started_unix_ns=_BEGAN_UNIX_NS,
    )
    if foreign:
        config = _foreign(config, draw)
    return Drawn(
        number,
        kind,
        causes,
        severities,
        load,
        config,
        baseline=_span(_WARM_S, begins_s),
        window=_span(begins_s, begins_s + window_s),
    )


def _foreign(config: FleetConfig, draw: random.Random) -> FleetConfig:
    """Return the fleet with properties that the fitted model does not describe.

    Each sequence in a step increases the step's duration by a constant ratio. The speed of the
    engines drifts. One step in twenty takes up to four times as long as usual.
    """
    world = ForeignWorld(
        slowdown_per_sequence=draw.uniform(0.001, 0.004),
        drift_ratio=draw.uniform(0.03, 0.08),
        drift_every_s=draw.uniform(5.0, 20.0),
    )
    usual = [draw.lognormvariate(0.0, config.engine.step_noise_ratio) for _ in range(95)]
    long = [draw.uniform(1.5, 4.0) for _ in range(5)]
    engine = replace(config.engine, step_noise_quantiles=tuple(sorted(usual + long)))
    return replace(config, engine=engine, foreign=world)


def _some(draw: random.Random) -> Sequence[Tenant]:
    return draw.sample(TENANTS, draw.randint(3, len(TENANTS)))


def _span(from_s: float, to_s: float) -> Span:
    return Span(_BEGAN_UNIX_NS + round(from_s * 1e9), _BEGAN_UNIX_NS + round(to_s * 1e9))
