"""Measure how often the causes of simulated slow requests are found, compared with simple
diagnosers.

    python benchmarks/diagnosis.py                            360 cases, two at a time
    python benchmarks/diagnosis.py --seed 7 --cause lora_swap --cases 20
    python benchmarks/diagnosis.py --pairs                    only the 72 cases with two faults
    python benchmarks/diagnosis.py --quiet                    only the 72 cases without a fault
    python benchmarks/diagnosis.py --results FILE             continues a run that was stopped
    python benchmarks/diagnosis.py --foreign                  servers unlike the fitted model
    python benchmarks/diagnosis.py --ask everyone --cases 66  one question per tenant, model, …

Three of every five cases have one fault, one has two faults, and one has no fault. The seed
determines severity, load, fleet, traffic and every arrival. In each case, the question is about the
latency whose tail grew most. Ctrl-C prints the results so far.
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

import pyarrow as pa

from analysis.counterfactual.explain import with_shares_of
from analysis.counterfactual.shares import Tails
from analysis.recorded_traffic import LEAD_S, Recorded, recorded_of
from benchmarks._diagnosis_baselines import TAIL, alerted, by_phase, by_score, tail_s
from benchmarks._diagnosis_by_group import (
    OTHER,
    QUIET,
    SAME,
    Everyone,
    asked_by_everyone,
    compared,
)
from benchmarks._diagnosis_by_group import table as everyone_table
from benchmarks._diagnosis_draws import NONE, PAIR, SINGLE, Drawn, drawn, kinds_of
from benchmarks._diagnosis_results import DiagnosisResult, passed, read
from benchmarks._diagnosis_table import line, table
from diagnosis.explain import explain
from diagnosis.explanation import Explanation
from diagnosis.inputs.arrow import requests_of, samples_of, servers_of
from diagnosis.inputs.hung_engines import with_unfinished
from diagnosis.inputs.requests import Requests
from diagnosis.question import Metric, Question, Span
from simulator import dataset
from simulator.fault import CAUSES, SimulatedFault
from simulator.faults import INJECTIONS, world_of
from telemetry.window import Window


def judged(
    number: int,
    seed: int,
    kind: str,
    causes: tuple[str, ...],
    symptom: bool,
    fast: bool,
    foreign: bool,
) -> DiagnosisResult:
    """Simulate one case, and run every diagnoser on it.

    The question is about the latency that an alert would report, or, with `symptom`, the latency
    that shows the cause. With `fast`, the causes are not tested by replay. With `foreign`, the
    servers have properties that the fitted model does not have.
    """
    begun = time.monotonic()
    case = drawn(number, seed, kind, causes, foreign)
    data = dataset.run(case.config)
    servers = servers_of(data.sample_table(), data.gpu_table(), data.starts)
    requests = with_unfinished(requests_of(data.request_table()), servers.engines)
    metric = alerted(requests, case.baseline, case.window)
    if symptom and causes:
        affected = INJECTIONS[causes[0]].affected_latency(case.config.faults[0], case.config)
        metric = Metric(affected.removesuffix("_s"))
    question = Question(metric, case.window, case.baseline)
    explain_begun = time.monotonic()
    accounted = explain(requests, servers, question)
    answered = time.monotonic()
    answer = accounted if fast else _replayed(accounted, data)
    replayed = time.monotonic()
    return DiagnosisResult(
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
        intervals=tuple(
            (round(cause.low, 3), round(cause.high, 3))
            for cause in answer.causes
            if cause.low is not None and cause.high is not None
        ),
        accounted=tuple(cause.id for cause in accounted.causes),
        accounted_shares=tuple(round(cause.share, 3) for cause in accounted.causes),
        not_replayed=answer.not_replayed,
        true_shares=_true_shares(case, requests, metric, answer.tail_share) if causes else (),
        unexplained=answer.unexplained,
        by_phase=tuple(by_phase(requests, question)),
        by_score=tuple(by_score(requests, servers, question)),
        explain_s=answered - explain_begun,
        replay_s=replayed - answered,
        took_s=time.monotonic() - begun,
    )


def _replayed(accounted: Explanation, data: dataset.Dataset) -> Explanation:
    """Test the causes by replay, with the telemetry of the simulated fleet."""

    def read(_tails: Tails) -> tuple[Recorded, Recorded]:
        question = accounted.question
        return _recorded(data, question.window), _recorded(data, question.baseline)

    return with_shares_of(accounted, read)[0]


def _recorded(data: dataset.Dataset, span: Span) -> Recorded:
    from_ns, to_ns = span.from_unix_ns - LEAD_S * 10**9, span.to_unix_ns

    def within(table: pa.Table, column: str) -> pa.Table:
        at = table[column].to_numpy()
        return table.filter(pa.array((at >= from_ns) & (at < to_ns)))

    return recorded_of(
        within(data.request_table(), "received_unix_ns"),
        within(data.sample_table(), "at_unix_ns"),
        [start for start in data.starts if start.at_unix_ns < to_ns],
        Window(span.from_unix_ns, span.to_unix_ns),
        in_parts=True,
    )


def _true_shares(
    case: Drawn, all_faults: Requests, metric: Metric, tail_share: float | None
) -> tuple[float, ...]:
    """Return the true shares of the causes, from simulations with and without each cause.

    The share of a cause is its Shapley value, divided by the latency's increase in the window. The
    Shapley value is the mean of two increases of the latency. For the first increase, this cause is
    added to a simulation without causes. For the second increase, it is added to a simulation that
    already has the case's second cause.
    """
    world, faults = world_of(case.config), case.config.faults
    share = tail_share or TAIL

    def with_faults(*chosen: SimulatedFault) -> float:
        data = dataset.run(replace(world, faults=chosen))
        engines = samples_of(data.sample_table())
        requests = with_unfinished(requests_of(data.request_table()), engines)
        return tail_s(requests, metric, case.window, share)

    usual_s = tail_s(all_faults, metric, case.baseline, share)
    whole_s = tail_s(all_faults, metric, case.window, share)
    if whole_s <= usual_s:
        return (0.0,) * len(faults)
    none_s = with_faults()
    if len(faults) == 1:
        added_s = [whole_s - none_s]
    else:
        alone_s = [with_faults(each) for each in faults]
        first_s = (alone_s[0] - none_s + whole_s - alone_s[1]) / 2
        added_s = [first_s, whole_s - none_s - first_s]
    return tuple(round(each / (whole_s - usual_s), 3) for each in added_s)


def run(
    plan: Sequence[tuple[int, int, str, tuple[str, ...], bool, bool, bool]],
    jobs: int,
    limit_s: float,
) -> Iterator[DiagnosisResult]:
    """Yield the result of each case when the case has finished, until the time limit."""
    deadline = time.monotonic() + limit_s
    with ProcessPoolExecutor(jobs) as pool:
        waiting: set[Future[DiagnosisResult]] = set()
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
    parser.add_argument("--cases", type=int, default=360)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--cause", choices=CAUSES, help="only cases with this cause as their single fault"
    )
    only.add_argument("--pairs", action="store_true", help="only the cases with two faults")
    only.add_argument("--quiet", action="store_true", help="only the cases without a fault")
    parser.add_argument(
        "--ask",
        choices=("alert", "symptom", "everyone"),
        default="alert",
        help=(
            "latency to explain: alert: the latency whose tail grew most (default); symptom: the "
            "latency that shows the cause; everyone: like symptom, with one question for every "
            "tenant, model and replica, and only for the cases with one fault"
        ),
    )
    parser.add_argument(
        "--fast", action="store_true", help="compute shares from the step ledger only; no replay"
    )
    parser.add_argument(
        "--foreign",
        action="store_true",
        help="simulate servers with properties that the fitted model does not have",
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
    arguments = parser.parse_args()
    if arguments.ask == "everyone":
        return _everyone(arguments)
    results = _kept(arguments.results)
    if results:
        arguments.seed = results[0].seed
    have = {each.number for each in results}
    plan = [
        (
            number,
            arguments.seed,
            kind,
            causes,
            arguments.ask == "symptom",
            arguments.fast,
            arguments.foreign,
        )
        for number, (kind, causes) in enumerate(
            kinds_of(arguments.cases, arguments.seed, arguments.cause)
        )
        if number not in have
        and (kind == PAIR or not arguments.pairs)
        and (kind == NONE or not arguments.quiet)
    ]
    cases = len(plan) + len(have)
    print(f"{len(plan)} cases of seed {arguments.seed}, {arguments.jobs} at a time", flush=True)
    try:
        for result in run(plan, arguments.jobs, arguments.limit):
            results.append(result)
            print(line(result, len(results), cases), flush=True)
            if arguments.results:
                with arguments.results.open("a") as kept:
                    kept.write(json.dumps(asdict(result)) + "\n")
    except KeyboardInterrupt:
        print("stopped", flush=True)
    print("\n".join(table(results)), flush=True)
    return 0 if passed(results) else 1


def _everyone(arguments: argparse.Namespace) -> int:
    """Run `--ask everyone`.

    The exit status is 1 if more than one result in twenty differs from the result without a filter.
    """
    plan = [
        (number, arguments.seed, kind, causes)
        for number, (kind, causes) in enumerate(
            kinds_of(arguments.cases, arguments.seed, arguments.cause)
        )
        if kind == SINGLE
    ]
    print(f"{len(plan)} faults of seed {arguments.seed}, {arguments.jobs} at a time", flush=True)
    found: list[Everyone] = []
    deadline = time.monotonic() + arguments.limit
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for each in pool.map(asked_by_everyone, *zip(*plan, strict=True)):
            found.append(each)
            if time.monotonic() > deadline:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    print("\n".join(everyone_table(found)), flush=True)
    sums = sum((compared(each) for each in found if each.first != QUIET), Counter[str]())
    return 1 if sums[OTHER] > 0.05 * (sums[SAME] + sums[OTHER]) else 0


def _kept(file: Path | None) -> list[DiagnosisResult]:
    if file is None or not file.is_file():
        return []
    return [read(text) for text in file.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
