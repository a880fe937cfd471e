"""Pairs of simulated windows, before and after a change, with the true effect of the change."""

from dataclasses import dataclass, replace
from random import Random
from typing import Final

import numpy as np

from analysis.compare.parts import ObservedRequests
from analysis.compare.sides import SideRequests, group_numbers, requests_of
from replay.engine_config import EngineConfig
from replay.step_model import EIGHT_B_ON_H100, StepModel
from simulator.dataset import Dataset, run
from simulator.fleet_config import FleetConfig
from simulator.token_lengths import PROMPTS, Lengths
from simulator.workload import TENANTS, Prefix, Tenant, Workload

SLOWER: Final = 1.1
"""Duration of a step on the slower server, divided by the usual duration."""
NEW_TENANT: Final = Tenant("wayne", 2.0, (Prefix("wayne/notes", 256),))
REPLICAS: Final = 2
RATES: Final = (0.75, 3.0)
"""Lowest and highest request rate of each replica before the change, per second."""


@dataclass(frozen=True, slots=True)
class ChangeKind:
    """The part that a change affects: the prompts, the rate, the tenants or the server."""

    name: str
    prompts: float = 1.0
    rate: float = 1.0
    tenant: bool = False
    slower: float = 1.0


SAME: Final = ChangeKind("same")
SHIFTED: Final = ChangeKind("prompts x 2, rate x 1.5, new tenant", 2.0, 1.5, tenant=True)
MILDLY: Final = ChangeKind("prompts x 1.3, rate x 1.2, new tenant", 1.3, 1.2, tenant=True)
SLOW: Final = ChangeKind("slower", slower=SLOWER)
SLOW_SHIFTED: Final = replace(MILDLY, name=f"slower; {MILDLY.name}", slower=SLOWER)


@dataclass(frozen=True, slots=True, eq=False)
class ComparedWindows:
    """The windows of a case: before and after the change."""

    kind: ChangeKind
    before: SideRequests
    after: SideRequests
    data: tuple[Dataset, Dataset]

    def sides(self, metric: str) -> tuple[ObservedRequests, ObservedRequests]:
        """The requests before and after the change for which this latency is known."""
        groups = group_numbers([self.before.table, self.after.table])
        every = np.ones(self.before.ended_s.size, dtype=bool)
        before, _ = self.before.observed(metric, groups[0], every)
        known = np.ones(self.after.ended_s.size, dtype=bool)
        after, _ = self.after.observed(metric, groups[1], known)
        return before, after

    def without_change(self, metric: str) -> np.ndarray:
        """The latency of each request after the change, if the same work had taken 1/`slower` of
        the time.

        Returns: (n,) seconds, in the order of `sides(metric)[1]`.
        """
        groups = group_numbers([self.before.table, self.after.table])
        every = np.ones(self.after.ended_s.size, dtype=bool)
        after, rows = self.after.observed(metric, groups[1], every)
        table = self.after.table

        def seconds(name: str) -> np.ndarray:
            return np.asarray(table[name].to_numpy(), dtype=np.float64)[rows]

        engine_s = after.value_s
        if metric == "ttft":
            engine_s = seconds("queue_s") + seconds("prefill_s")
        return after.value_s - engine_s * (1 - 1 / self.kind.slower)


def pair(kind: ChangeKind, seed: int, requests: int, after: int | None = None) -> ComparedWindows:
    """Simulate the two windows of a case.

    Args:
        seed: determines the load and all arrivals.
        requests: expected number of requests before the change.
        after: expected number of requests after the change; None for the same number.
    """
    rate = REPLICAS * Random(seed).uniform(*RATES)
    first = _run(rate, requests / rate, 2 * seed)
    longer = Lengths(
        {q: PROMPTS.quantile(q) * kind.prompts for q in (0.1, 0.5, 0.9, 0.99)}, longest=16_384
    )
    tenants = (*TENANTS, NEW_TENANT) if kind.tenant else TENANTS
    faster = rate * kind.rate
    step = StepModel(
        **{
            name: getattr(EIGHT_B_ON_H100, name) * kind.slower
            for name in StepModel.__dataclass_fields__
        }
    )
    workload = Workload(
        rate_per_s=faster, tenants=tenants, prompts=PROMPTS if kind.prompts == 1 else longer
    )
    second = _run(faster, (after or requests) / faster, 2 * seed + 1, workload, step)
    tables = [each.request_table() for each in (first, second)]
    return ComparedWindows(kind, requests_of(tables[0]), requests_of(tables[1]), (first, second))


def _run(
    rate: float,
    duration_s: float,
    seed: int,
    workload: Workload | None = None,
    step: StepModel = EIGHT_B_ON_H100,
) -> Dataset:
    return run(
        FleetConfig(
            replicas=REPLICAS,
            seed=seed,
            duration_s=duration_s,
            workload=workload or Workload(rate_per_s=rate),
            engine=EngineConfig(step=step),
        )
    )
