"""Measures the error of predictions of a change, and how often their intervals contain the true
value.

    python benchmarks/what_if.py [--cases 24] [--seconds 300] [--seed 1000]

Each case is a simulated replica with its own traffic. The model is fitted only from the replica's
telemetry. A change of the engine is predicted and then simulated, once with the same arrivals and
once with other traffic of the same kind ("new traffic"). For new traffic, a 95 % interval should
contain the true value in 90 to 98 % of the cases. For the same arrivals, it may be wider than
necessary. The error is compared with the error of predicting that nothing changes. Saturated cases
are counted separately. A saturated case counts as an error if the prediction does not report the
saturation.
"""

import argparse
import random
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parent.parent))

from analysis.recorded_traffic import LEAD_S, REQUEST_COLUMNS, Recorded, recorded_of
from analysis.what_if import POINTS, WhatIfQuestion, predict
from replay.edits import Edits
from replay.engine_config import EngineConfig
from simulator.dataset import Dataset, run
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from store.queries import Window

METRICS = ("ttft_s", "tpot_s", "itl_max_s", "e2e_s")
SHOWN = ("p50", "p99")
QUEUE_S = 10.0
"""A changed replica is saturated if the median queue time of a window of some minutes is at least
this many seconds.
"""


@dataclass(frozen=True)
class Case:
    """One replica and the change to predict."""

    seed: int
    rate_per_s: float
    engine: EngineConfig
    edit: dict[str, str]

    @property
    def changed(self) -> EngineConfig:
        """Return the engine after the change."""
        values = {
            name: value == "true" if value in ("true", "false") else int(value)
            for name, value in self.edit.items()
        }
        return replace(self.engine, **values)  # type: ignore[arg-type]


def drawn(seed: int) -> Case:
    """Draw the load, the engine and the change of a case."""
    draw = random.Random(seed)
    seats = draw.choice([32, 64, 256])
    edit = draw.choice(
        [
            {"max_num_seqs": str(max(8, seats // draw.choice([2, 4])))},
            {"max_num_seqs": str(seats * 2)},
            {"max_num_batched_tokens": str(draw.choice([512, 1024, 2048]))},
            {"enable_prefix_caching": "false"},
            {"long_prefill_token_threshold": str(draw.choice([256, 512, 1024]))},
        ]
    )
    return Case(seed, draw.uniform(2.0, 7.0), EngineConfig(max_num_seqs=seats), edit)


def simulated(case: Case, engine: EngineConfig, seed: int, seconds: int) -> tuple[Dataset, Window]:
    """Simulate the case's traffic on an engine."""
    config = FleetConfig(
        duration_s=LEAD_S + seconds,
        seed=seed,
        replicas=1,
        engine=engine,
        workload=Workload(rate_per_s=case.rate_per_s),
    )
    start_ns = config.started_unix_ns
    end_ns = start_ns + (LEAD_S + seconds) * 10**9
    return run(config), Window(start_ns + LEAD_S * 10**9, end_ns)


def recorded(data: Dataset, window: Window) -> Recorded:
    """Fit the model to the telemetry of the simulated replica."""
    columns = [*REQUEST_COLUMNS, "http_status"]
    return recorded_of(
        data.request_table().select(columns), data.sample_table(), data.starts, window
    )


def truth(data: Dataset, window: Window, name: str, point: str) -> float:
    """Return a percentile that was measured on the changed replica."""
    table = data.request_table()
    table = table.filter(pc.greater_equal(table["received_unix_ns"], window.from_unix_ns))
    return float(np.quantile(np.asarray(table[name].drop_null()), POINTS[point]))


def main() -> int:
    """Predict, simulate, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--seconds", type=int, default=300, help="of traffic in each case")
    parser.add_argument("--seed", type=int, default=1000, help="of the first case")
    asked = parser.parse_args()
    errors: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    inside: dict[tuple[str, str], list[bool]] = defaultdict(list)
    saturated = missed = refused = 0
    for seed in range(asked.seed, asked.seed + asked.cases):
        case = drawn(seed)
        data, window = simulated(case, case.engine, seed, asked.seconds)
        answer = predict(recorded(data, window), WhatIfQuestion(window, Edits(arguments=case.edit)))
        if answer.refused is not None:
            refused += 1
            continue
        same, _ = simulated(case, case.changed, seed, asked.seconds)
        other, _ = simulated(case, case.changed, seed + 50_000, asked.seconds)
        if truth(same, window, "queue_s", "p50") > QUEUE_S:
            saturated += 1
            missed += not answer.saturated
            continue
        for name in METRICS:
            for point in SHOWN:
                found = answer.predicted[name][point]
                real = truth(same, window, name, point)
                now = answer.now[name][point]
                if found.value is None or found.low is None or found.high is None or now is None:
                    continue
                errors["predicted", name, point].append(abs(found.value / real - 1))
                errors["no change", name, point].append(abs(now / real - 1))
                inside["same", point].append(found.low <= real <= found.high)
                new = truth(other, window, name, point)
                inside["new", point].append(found.low <= new <= found.high)
        print(f"case {seed}: {case.edit}, {case.rate_per_s:.1f} requests/s", flush=True)
    print(
        f"\n{asked.cases} cases, {refused} refused, {saturated} saturated, {missed} not called so"
    )
    print(
        f"{'median error':14}"
        + "".join(f"{name} {point}".rjust(15) for name in METRICS for point in SHOWN)
    )
    for kind in ("predicted", "no change"):
        row = "".join(
            f"{np.median(errors[kind, name, point]):15.1%}" for name in METRICS for point in SHOWN
        )
        print(f"{kind:14}{row}")
    for kind in ("same", "new"):
        for point in SHOWN:
            held = inside[kind, point]
            print(
                f"intervals that contain the truth, {kind} traffic, {point}:"
                f" {np.mean(held):.0%} of {len(held)} (bar: 90 to 98 % for new traffic)"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
