"""Check that `explain` reports an incident if, and only if, an objective's attainment fell.

    python benchmarks/attainment.py --trace FILE     a recorded trace, e.g. Azure's of 2023
    python benchmarks/attainment.py                  simulated arrivals in its place
    python benchmarks/attainment.py --seed 7 --runs 4

Each run draws an engine and a load at random. It shortens the times between the trace's arrivals so
that the engine has this load. The run replays the trace on a simulated server, and divides the
replayed time into windows. Each window is compared with the time before it, for two objectives: 99
% of the first tokens within 500 ms, and 99 % of the requests within 50 ms per token. The true class
of a window depends only on its counts of good and bad requests:

    fell   the share of requests above the threshold rose by 5 or more percentage points: incident
    held   at most 1 in 100 requests of the window exceeded the threshold: no incident
    other  all other windows; they are listed, but have no correct verdict

The trace is third-party data (Azure/AzurePublicDataset, CC-BY 4.0; Patel et al., Splitwise, ISCA
2024), so the project does not contain it, and its path must be given.
"""

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from diagnosis.explain import explain
from diagnosis.inputs.arrow import requests_of, servers_of
from diagnosis.inputs.requests import BoolArray, Requests
from diagnosis.latency.attainment import LatencyThreshold
from diagnosis.latency.parts import latency_s
from diagnosis.question import Metric, Question, Span
from replay.engine_config import EngineConfig
from replay.trace_csv import TraceRow, read_trace
from simulator import capacity, dataset
from simulator.fleet_config import FleetConfig
from simulator.token_lengths import ANSWERS, PROMPTS
from simulator.workload import Workload

BUDGET: Final = 0.01
THRESHOLDS_S: Final = {Metric.TTFT: 0.5, Metric.TPOT: 0.05}
FELL: Final = 0.05
"""Minimum decrease of the attainment, as a share of the requests."""

WINDOW_S: Final = 150.0
BEFORE_S: Final = 300.0
LOADS: Final = (0.55, 1.0)
"""Lowest and highest mean load, as a share of the server's capacity.

In the busiest minutes, the load is a third higher than the mean load.
"""

_BEGAN_UNIX_NS: Final = 1_750_000_000 * 10**9
_SIMULATED_ROWS: Final = 12_000


@dataclass(frozen=True, slots=True)
class AttainmentWindow:
    """The counts of one window, and its verdict."""

    run: int
    metric: Metric
    requests: int
    kept_before: float
    kept: float
    verdict: str
    causes: tuple[str, ...]
    by_size: str
    """The verdict without an objective, which depends on the size of the increase."""

    @property
    def kind(self) -> str:
        """The class of the window by its share of good requests: fell, held or other."""
        if self.kept_before - self.kept >= FELL:
            return "fell"
        return "held" if self.kept >= 1.0 - BUDGET else "other"


def simulated(chance: random.Random) -> tuple[TraceRow, ...]:
    """Return arrivals whose rate changes by about a half within minutes."""
    rows: list[TraceRow] = []
    at_s = level = 0.0
    while len(rows) < _SIMULATED_ROWS:
        # The logarithm of the rate is a mean-reverting random walk with a time constant of 10 min.
        step_s = chance.expovariate(5.0 * np.exp(level))
        level += -level * step_s / 600.0 + chance.gauss(0.0, 0.3) * (2 * step_s / 600.0) ** 0.5
        at_s += step_s
        rows.append(TraceRow(at_s, PROMPTS.draw(chance), ANSWERS.draw(chance)))
    return tuple(rows)


def windows(trace: tuple[TraceRow, ...] | None, seed: int, run: int) -> Iterator[AttainmentWindow]:
    """Simulate one random engine, and yield its windows with their verdicts."""
    chance = random.Random(f"{seed}/{run}")
    rows = simulated(chance) if trace is None else trace
    engine = EngineConfig(
        max_num_seqs=chance.choice((64, 128, 256)),
        max_num_batched_tokens=chance.choice((2048, 4096, 8192)),
        num_gpu_blocks=chance.randrange(15_000, 30_000),
        step_noise_ratio=chance.uniform(0.02, 0.05),
    )
    usual = Workload.replay(rows)
    wanted_per_s = chance.uniform(*LOADS) * capacity.capacity_per_s(
        engine, capacity.means_of(usual, engine)
    )
    quicker = wanted_per_s / usual.rate_per_s
    workload = Workload.replay(tuple(row._replace(at_s=row.at_s / quicker) for row in rows))
    data = dataset.run(
        FleetConfig(
            replicas=1,
            workload=workload,
            engine=engine,
            seed=chance.randrange(2**31),
            started_unix_ns=_BEGAN_UNIX_NS,
        )
    )
    requests = requests_of(data.request_table())
    servers = servers_of(data.sample_table(), data.gpu_table(), data.starts)
    begins_s = BEFORE_S + chance.uniform(0.0, WINDOW_S)
    while begins_s + WINDOW_S <= workload.trace[-1].at_s:
        window = _span(begins_s, begins_s + WINDOW_S)
        baseline = _span(begins_s - BEFORE_S, begins_s)
        for metric, seconds in THRESHOLDS_S.items():
            question = Question(metric, window, baseline)
            answer = explain(
                requests, servers, question, [LatencyThreshold("chat", seconds, BUDGET, _all)]
            )
            yield AttainmentWindow(
                run,
                metric,
                answer.requests,
                _kept(requests, metric, baseline, seconds),
                _kept(requests, metric, window, seconds),
                answer.verdict.value,
                tuple(cause.id for cause in answer.causes),
                explain(requests, servers, question).verdict.value,
            )
        begins_s += WINDOW_S


def _all(requests: Requests) -> BoolArray:
    return np.ones(len(requests), dtype=np.bool_)


def _kept(requests: Requests, metric: Metric, span: Span, seconds: float) -> float:
    """Return the attainment, computed without the code that this benchmark checks."""
    latency = latency_s(requests.within(span.from_unix_ns, span.to_unix_ns), metric)
    known = latency[np.isfinite(latency)]
    return float((known <= seconds).mean()) if known.size else 1.0


def _span(from_s: float, to_s: float) -> Span:
    return Span(_BEGAN_UNIX_NS + round(from_s * 1e9), _BEGAN_UNIX_NS + round(to_s * 1e9))


def table(found: list[AttainmentWindow]) -> Iterator[str]:
    """Yield the lines with the totals."""
    yield f"{'':6} {'windows':>8} {'incident':>9} {'none':>6} {'too few':>8}  {'with a cause':>12}"
    for kind in ("fell", "held", "other"):
        mine = [each for each in found if each.kind == kind]
        verdicts = Counter(each.verdict for each in mine)
        named = sum(bool(each.causes) for each in mine)
        yield (
            f"{kind:6} {len(mine):8} {verdicts['incident']:9} {verdicts['no_incident']:6}"
            f" {verdicts['insufficient_data']:8}  {named:12}"
        )
    fell = [each for each in found if each.kind == "fell"]
    held = [each for each in found if each.kind == "held"]
    called = _rate(sum(each.verdict == "incident" for each in fell), len(fell))
    silent = _rate(sum(each.verdict != "incident" for each in held), len(held))
    yield (
        f"windows whose attainment fell that were reported as an incident: {called}; windows whose "
        f"attainment did not fall that were not reported: {silent}"
    )
    sized = _rate(sum(each.by_size == "incident" for each in fell), len(fell))
    false = _rate(sum(each.by_size == "incident" for each in held), len(held))
    yield (
        f"without an objective, if the size of the latency's growth decides: {sized} incidents "
        f"reported; {false} windows without an incident reported"
    )
    first = Counter(each.causes[0] for each in fell if each.causes)
    yield "first cause of the windows whose attainment fell: " + ", ".join(
        f"{name} {count}" for name, count in first.most_common()
    )


def _rate(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({part / whole:.0%})" if whole else "")


def main() -> int:
    """Replay and print the totals. Return 1 if more than one window in ten has a wrong verdict."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="a CSV file")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    parser.add_argument(
        "--runs", type=int, default=10, help="number of runs, about 8 s each; default 10"
    )
    parser.add_argument("--each", action="store_true", help="print each window")
    arguments = parser.parse_args()
    trace = None if arguments.trace is None else read_trace(arguments.trace)
    found: list[AttainmentWindow] = []
    print(f"{arguments.runs} runs of seed {arguments.seed}", flush=True)
    for run in range(arguments.runs):
        for each in windows(trace, arguments.seed, run):
            found.append(each)
            if arguments.each:
                print(
                    f"#{run:<3} {each.metric.value:5} kept {each.kept_before:6.1%} →"
                    f" {each.kept:6.1%}  {each.kind:6} {each.verdict:17}"
                    f" {', '.join(each.causes)}",
                    flush=True,
                )
    print("\n".join(table(found)), flush=True)
    wrong = [
        sum((each.verdict == "incident") != (kind == "fell") for each in found if each.kind == kind)
        > 0.1 * sum(each.kind == kind for each in found)
        for kind in ("fell", "held")
    ]
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
