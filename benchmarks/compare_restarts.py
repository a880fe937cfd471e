"""Measures the verdict of `tailspan compare` if a restart alone changes the latency.

    python benchmarks/compare_restarts.py               20 cases of each kind, 15 minutes
    python benchmarks/compare_restarts.py --cases 40 --seed 41000 --spread 0.03

A simulated replica is restarted several times with the same arguments, and then once more, with or
without a change. The speed of each process differs by a random factor. Each verdict is computed
with and without the effect of a restart. The exit status is 1 if more than 2 % of the verdicts
without a change are `worse` or `better`.
"""

import argparse
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from analysis.compare.decision import Criteria, decide
from analysis.compare.parts import ObservedRequests
from analysis.compare.process_effect import difference_of, process_effect
from analysis.compare.sides import group_numbers, requests_of
from analysis.compare.verdict import CompareVerdict
from replay.engine_config import EngineConfig
from replay.step_model import EIGHT_B_ON_H100, StepModel
from simulator.dataset import run
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload

METRICS: Final = ("tpot", "ttft")
CHANGES: Final = (1.0, 1.1, 1.3)
"""Duration of a step after the change / before it."""
EARLIER: Final = 4
"""Processes before the two that are compared."""
REQUESTS: Final = 1_000
RATES: Final = (1.0, 3.0)
FALSE: Final = 0.02


class Verdicts(NamedTuple):
    """The verdicts without and with the effect of a restart."""

    without: CompareVerdict
    with_effect: CompareVerdict


def case(change: float, seed: int, spread: float) -> dict[str, Verdicts]:
    """Simulate all processes of a case, and return the verdicts by latency.

    Args:
        change: see `CHANGES`.
    """
    chance = Random(seed)
    rate = chance.uniform(*RATES)
    factors = [np.exp(chance.gauss(0, spread)) for _ in range(EARLIER + 2)]
    factors[-1] *= change
    served = [
        requests_of(run(_config(rate, (EARLIER + 2) * seed + i, each)).request_table())
        for i, each in enumerate(factors)
    ]
    groups = group_numbers([each.table for each in served])
    found = {}
    for metric in METRICS:
        sides: list[ObservedRequests] = [
            each.observed(metric, numbers, np.ones(each.ended_s.size, dtype=bool))[0]
            for each, numbers in zip(served, groups, strict=True)
        ]
        *earlier, before, after = sides
        criteria = Criteria(0.5, looks=False)
        both = difference_of({0: 1.0}, {1: 1.0})
        effect = process_effect(before, [[*earlier, before]], criteria, both)
        found[metric] = Verdicts(
            decide(before, after, criteria).verdict,
            decide(before, after, replace(criteria, restart_half=effect.log_half)).verdict,
        )
    return found


def _config(rate: float, seed: int, factor: float) -> FleetConfig:
    step = StepModel(
        **{name: getattr(EIGHT_B_ON_H100, name) * factor for name in StepModel.__dataclass_fields__}
    )
    return FleetConfig(
        replicas=1,
        seed=seed,
        duration_s=REQUESTS / rate,
        workload=Workload(rate_per_s=rate),
        engine=EngineConfig(step=step),
    )


def main() -> int:
    """Print the verdicts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=20, help="number of cases of each kind")
    parser.add_argument("--seed", type=int, default=31_000, help="the first seed")
    parser.add_argument(
        "--spread", type=float, default=0.05, help="standard deviation between processes"
    )
    arguments = parser.parse_args()
    begun = time.monotonic()
    met = True
    print("spread  steps longer  latency   without: worse better   with: worse better  of")
    for spread in (0.0, arguments.spread):
        for change in CHANGES:
            cases = [
                case(change, seed, spread)
                for seed in range(arguments.seed, arguments.seed + arguments.cases)
            ]
            for metric in METRICS:
                counts = [Counter(each[metric][i].value for each in cases) for i in (0, 1)]
                print(
                    f"{spread:6.0%}  {change - 1:12.0%}  {metric + ' p50':8}"
                    f" {counts[0]['worse']:15} {counts[0]['better']:6}"
                    f" {counts[1]['worse']:13} {counts[1]['better']:6}  {len(cases)}",
                    flush=True,
                )
                if change == 1.0:
                    met &= counts[1]["worse"] + counts[1]["better"] <= FALSE * len(cases)
    print(f"{time.monotonic() - begun:.0f} s; goal {'met' if met else 'NOT MET'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
