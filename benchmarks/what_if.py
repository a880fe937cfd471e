"""Measure the error of predicted changes, and how often their confidence intervals contain the true
value.

    python benchmarks/what_if.py [--cases 24] [--seconds 300] [--seed 1000] [--jobs 2] [--adapters]

The model is fitted only from a simulated replica's telemetry. The change is simulated twice: with
the same arrivals, and with other traffic of the same kind ("new traffic"). In 90 to 98 % of the
cases, a 95 % interval should contain the value of the new traffic. A case is saturated if the
changed replica cannot keep up. Saturated cases are counted separately, and the prediction must
report the saturation. With `--adapters`, most requests need a LoRA adapter, and the replica has too
few slots for all adapters.
"""

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
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
from telemetry.window import Window

METRICS = ("ttft_s", "tpot_s", "itl_max_s", "e2e_s")
SHOWN = ("p50", "p99")
QUEUE_S = 10.0
"""A changed replica is saturated if its median queue time is at least this."""


@dataclass(frozen=True)
class WhatIfCase:
    """One replica and the change to predict."""

    seed: int
    rate_per_s: float
    engine: EngineConfig
    edit: dict[str, str]
    adapters: tuple[str, ...] = ()

    @property
    def changed(self) -> EngineConfig:
        """The engine after the change."""
        values = {
            name: value == "true" if value in ("true", "false") else int(value)
            for name, value in self.edit.items()
        }
        return replace(self.engine, **values)  # type: ignore[arg-type]


def drawn(seed: int, adapters: bool = False) -> WhatIfCase:
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
    case = WhatIfCase(seed, draw.uniform(2.0, 7.0), EngineConfig(max_num_seqs=seats), edit)
    if not adapters:
        return case
    slots = draw.choice([2, 3, 4])
    return replace(
        case,
        engine=replace(case.engine, max_loras=slots, max_cpu_loras=2 * slots),
        adapters=tuple(f"adapter-{number}" for number in range(3 * slots)),
    )


def simulated(
    case: WhatIfCase, engine: EngineConfig, seed: int, seconds: int
) -> tuple[Dataset, Window]:
    """Simulate the case's traffic on an engine."""
    config = FleetConfig(
        duration_s=LEAD_S + seconds,
        seed=seed,
        replicas=1,
        engine=engine,
        workload=Workload(rate_per_s=case.rate_per_s, loras=case.adapters, lora_share=0.8),
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
    """A percentile that was measured on the changed replica."""
    table = data.request_table()
    table = table.filter(pc.greater_equal(table["received_unix_ns"], window.from_unix_ns))
    return float(np.quantile(np.asarray(table[name].drop_null()), POINTS[point]))


@dataclass(frozen=True)
class Figure:
    """One predicted percentile, and the true percentile in each simulation."""

    metric: str
    point: str
    now: float
    predicted: float
    low: float
    high: float
    same: float
    """The true value for the same arrivals."""
    new: float
    """The true value for new traffic."""

    @property
    def width(self) -> float:
        """The width of the confidence interval divided by the predicted value."""
        return (self.high - self.low) / self.predicted


@dataclass(frozen=True)
class WhatIfResult:
    """The outcome of one case."""

    case: WhatIfCase
    refused: bool = False
    saturated: bool = False
    missed: bool = False
    """Return whether the case is saturated and the prediction does not report the saturation."""
    figures: Sequence[Figure] = ()


def judged(seed: int, seconds: int, adapters: bool) -> WhatIfResult:
    """Predict the effect of a case's change, and simulate the changed replica."""
    case = drawn(seed, adapters)
    data, window = simulated(case, case.engine, seed, seconds)
    answer = predict(recorded(data, window), WhatIfQuestion(window, Edits(arguments=case.edit)))
    if answer.refused is not None:
        return WhatIfResult(case, refused=True)
    same, _ = simulated(case, case.changed, seed, seconds)
    if truth(same, window, "queue_s", "p50") > QUEUE_S:
        return WhatIfResult(case, saturated=True, missed=not answer.saturated)
    new, _ = simulated(case, case.changed, seed + 50_000, seconds)
    figures = []
    for name in METRICS:
        for point in SHOWN:
            found, now = answer.predicted[name][point], answer.now[name][point]
            if found.value is None or found.low is None or found.high is None or now is None:
                continue
            figures.append(
                Figure(
                    name,
                    point,
                    now,
                    found.value,
                    found.low,
                    found.high,
                    truth(same, window, name, point),
                    truth(new, window, name, point),
                )
            )
    return WhatIfResult(case, figures=figures)


def table(results: Sequence[WhatIfResult]) -> list[str]:
    """Lines of the summary."""
    figures = [each for result in results for each in result.figures]
    columns = [(name, point) for name in METRICS for point in SHOWN]

    def row(title: str, text: Callable[[list[Figure]], str]) -> str:
        cells = (
            text([each for each in figures if (each.metric, each.point) == column])
            for column in columns
        )
        return f"{title:28}" + "".join(cell.rjust(15) for cell in cells)

    def share(inside: Sequence[bool]) -> str:
        return f"{np.mean(inside):.0%} of {len(inside)}" if inside else "-"

    def middle(values: Sequence[float]) -> str:
        return f"{np.median(values):.1%}" if values else "-"

    lines = [
        f"{len(results)} cases, {sum(each.refused for each in results)} refused,"
        f" {sum(each.saturated for each in results)} saturated,"
        f" {sum(each.missed for each in results)} not reported as saturated",
        " " * 28 + "".join(f"{name} {point}".rjust(15) for name, point in columns),
        row(
            "median error, predicted",
            lambda of: middle([abs(e.predicted / e.same - 1) for e in of]),
        ),
        row("median error, no change", lambda of: middle([abs(e.now / e.same - 1) for e in of])),
        row("median width of interval", lambda of: middle([e.width for e in of])),
        row(
            "truth inside, same traffic", lambda of: share([e.low <= e.same <= e.high for e in of])
        ),
        row("truth inside, new traffic", lambda of: share([e.low <= e.new <= e.high for e in of])),
    ]
    for point in SHOWN:
        of = [each for each in figures if each.point == point]
        lines.append(
            f"new traffic, {point}: inside {share([e.low <= e.new <= e.high for e in of])}"
            f" (goal: 90 to 98 %), below {share([e.new < e.low for e in of])},"
            f" above {share([e.new > e.high for e in of])};"
            f" median width {middle([e.width for e in of])}"
        )
    return lines


def main() -> int:
    """Predict, simulate, and print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--seconds", type=int, default=300, help="seconds of traffic per case")
    parser.add_argument("--seed", type=int, default=1000, help="seed of the first case")
    parser.add_argument(
        "--jobs", type=int, default=2, help="cases to run at the same time; default 2"
    )
    parser.add_argument(
        "--adapters",
        action="store_true",
        help="replicas with LoRA adapters, and with too few slots for all of them",
    )
    arguments = parser.parse_args()
    results = []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        seeds = range(arguments.seed, arguments.seed + arguments.cases)
        for result in pool.map(
            judged, seeds, repeat(arguments.seconds), repeat(arguments.adapters)
        ):
            results.append(result)
            case = result.case
            print(f"case {case.seed}: {case.edit}, {case.rate_per_s:.1f} requests/s", flush=True)
    print("\n" + "\n".join(table(results)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
