"""Measures how often the causes of simulated slow requests are found, compared with simple
diagnosers.

    python benchmarks/diagnosis.py                            330 cases, two at a time
    python benchmarks/diagnosis.py --seed 7 --cause lora_swap --cases 20
    python benchmarks/diagnosis.py --results FILE             continues where it stopped
    python benchmarks/diagnosis.py --ask everyone --cases 66  one question for every tenant, model,
    …

Of five cases, three have one fault, one has two faults, and one has no fault. Severity, load,
fleet, traffic and every arrival are drawn from the seed. Each case asks about one latency, as an
engineer would after an alert: why did it grow? The latency is the one whose tail grew most. Ctrl-C
prints the results so far.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._diagnosis_baselines import alerted, by_phase, by_score, tail_s
from benchmarks._diagnosis_by_group import (
    OTHER,
    QUIET,
    SAME,
    Everyone,
    asked_by_everyone,
    compared,
)
from benchmarks._diagnosis_by_group import table as everyone_table
from benchmarks._diagnosis_draws import PAIR, SINGLE, Drawn, drawn, kinds_of
from benchmarks._diagnosis_results import Result, passed, read
from benchmarks._diagnosis_table import line, table
from diagnosis.explain import explain
from diagnosis.inputs.arrow import requests_of, servers_of
from diagnosis.inputs.requests import Requests
from diagnosis.question import Metric, Question
from simulator import dataset
from simulator.fault import CAUSES
from simulator.faults import INJECTIONS, world_of


def judged(
    number: int, seed: int, kind: str, causes: tuple[str, ...], symptom: bool = False
) -> Result:
    """Simulate one case and ask every diagnoser.

    The question is about the latency that an alert would report. With `symptom`, the question is
    about the latency that shows the cause.
    """
    begun = time.monotonic()
    case = drawn(number, seed, kind, causes)
    data = dataset.run(case.config)
    requests = requests_of(data.request_table())
    servers = servers_of(data.sample_table(), data.gpu_table(), data.starts)
    metric = alerted(requests, case.baseline, case.window)
    if symptom and causes:
        hurt = INJECTIONS[causes[0]].hurt_by(case.config.faults[0], case.config)
        metric = Metric(hurt.removesuffix("_s"))
    question = Question(metric, case.window, case.baseline)
    asked = time.monotonic()
    answer = explain(requests, servers, question)
    answered = time.monotonic()
    return Result(
        number=number,
        seed=seed,
        kind=kind,
        causes=causes,
        severities=case.severities,
        load=case.load,
        metric=metric.value,
        requests=answer.requests,
        verdict=answer.verdict.value,
        found=tuple(cause.id for cause in answer.causes),
        shares=tuple(round(cause.share, 3) for cause in answer.causes),
        true_shares=_true_shares(case, requests, metric) if kind == PAIR else (),
        unexplained=answer.unexplained,
        by_phase=tuple(by_phase(requests, question)),
        by_score=tuple(by_score(requests, servers, question)),
        explain_s=answered - asked,
        took_s=time.monotonic() - begun,
    )


def _true_shares(case: Drawn, both: Requests, metric: Metric) -> tuple[float, ...]:
    """Return the true shares of two causes, from simulations with each cause alone.

    A cause's share is the mean of the growth that it causes alone and the growth that it adds to
    the other cause (Shapley value).
    """
    world = world_of(case.config)
    usual_s = tail_s(both, metric, case.baseline)
    added_s = tail_s(both, metric, case.window) - usual_s
    alone_s = []
    for fault in case.config.faults:
        requests_alone = requests_of(dataset.run(replace(world, faults=(fault,))).request_table())
        alone_s.append(tail_s(requests_alone, metric, case.window) - usual_s)
    if added_s <= 0:
        return (0.0, 0.0)
    first = 0.5 + (alone_s[0] - alone_s[1]) / (2 * added_s)
    return (round(first, 3), round(1 - first, 3))


def run(
    plan: Sequence[tuple[int, int, str, tuple[str, ...], bool]], jobs: int, limit_s: float
) -> Iterator[Result]:
    """Yield the results of the cases when they finish, until the time limit."""
    deadline = time.monotonic() + limit_s
    with ProcessPoolExecutor(jobs) as pool:
        waiting: set[Future[Result]] = set()
        left = iter(plan)
        try:
            while time.monotonic() < deadline:
                for case in left:
                    waiting.add(pool.submit(judged, *case))
                    if len(waiting) > jobs:
                        break
                if not waiting:
                    return
                done, waiting = wait(waiting, 1.0, FIRST_COMPLETED)
                for future in done:
                    if future.exception() is None:
                        yield future.result()
                    else:
                        print(f"a case failed: {future.exception()!r}", flush=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def main() -> int:
    """Run the cases. The exit status is 1 if a target value is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=330)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    parser.add_argument("--cause", choices=CAUSES, help="only single faults of this cause")
    parser.add_argument(
        "--ask",
        choices=("alert", "symptom", "everyone"),
        default="alert",
        help=(
            "latency to explain: alert: the latency whose tail grew most (default); symptom: the "
            "latency that shows the cause; everyone: the latter, for every tenant, model and "
            "replica; symptom and everyone draw single faults only"
        ),
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="cases to run at the same time; default 2"
    )
    parser.add_argument("--limit", type=float, default=3600.0, metavar="S", help="default 3600")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="file in which each case is stored, as JSON lines",
    )
    asked = parser.parse_args()
    if asked.ask == "everyone":
        return _everyone(asked)
    results = _kept(asked.results)
    if results:
        asked.seed = results[0].seed
    have = {each.number for each in results}
    plan = [
        (number, asked.seed, kind, causes, asked.ask == "symptom")
        for number, (kind, causes) in enumerate(kinds_of(asked.cases, asked.seed, asked.cause))
        if number not in have
    ]
    print(f"{len(plan)} cases of seed {asked.seed}, {asked.jobs} at a time", flush=True)
    try:
        for result in run(plan, asked.jobs, asked.limit):
            results.append(result)
            print(line(result, len(results), asked.cases), flush=True)
            if asked.results:
                with asked.results.open("a") as kept:
                    kept.write(json.dumps(asdict(result)) + "\n")
    except KeyboardInterrupt:
        print("stopped", flush=True)
    print("\n".join(table(results)), flush=True)
    return 0 if passed(results) else 1


def _everyone(asked: argparse.Namespace) -> int:
    """Run `--ask everyone`.

    The exit status is 1 if more than one answer in twenty differs from the answer without a filter.
    """
    plan = [
        (number, asked.seed, kind, causes)
        for number, (kind, causes) in enumerate(kinds_of(asked.cases, asked.seed, asked.cause))
        if kind == SINGLE
    ]
    print(f"{len(plan)} faults of seed {asked.seed}, {asked.jobs} at a time", flush=True)
    found: list[Everyone] = []
    deadline = time.monotonic() + asked.limit
    with ProcessPoolExecutor(asked.jobs) as pool:
        for each in pool.map(asked_by_everyone, *zip(*plan, strict=True)):
            found.append(each)
            if time.monotonic() > deadline:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    print("\n".join(everyone_table(found)), flush=True)
    sums = sum((compared(each) for each in found if each.first != QUIET), Counter[str]())
    return 1 if sums[OTHER] > 0.05 * (sums[SAME] + sums[OTHER]) else 0


def _kept(file: Path | None) -> list[Result]:
    if file is None or not file.is_file():
        return []
    return [read(text) for text in file.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
