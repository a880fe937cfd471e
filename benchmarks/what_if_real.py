"""Measure whether predictions agree with a real vLLM after the predicted change.

    python benchmarks/what_if_real.py [--seconds 90] [--rate 5] [--cases seats_4,budget_512]
    python benchmarks/what_if_real.py --server "vllm serve FOLDER" --seats 64,16 --tokens 50,350

A real server serves the same seeded arrivals twice. The difference between the two runs is the
noise. The change is predicted from the first run, and then a changed server serves the same
arrivals. An error may be 1.5 times the noise, or 10 % at P50 and 20 % at P99, whichever is larger.
The goal is that the errors of four of five cases are within this limit, and that each saturated
case is predicted as saturated. "No change" and M/M/c (one server for each request that can run at
the same time) are printed for comparison.
"""

import argparse
import math
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

from _recording import Planned, ServerRecording, record_once  # type: ignore[import-not-found]

from analysis.recorded_traffic import REQUEST_COLUMNS, NotReplayableError, Recorded, recorded_of
from analysis.what_if import POINTS, WhatIfQuestion, predict
from benchmarks._options import add_server, two_numbers
from replay.edits import Edits, RateEdit
from rig.install import ProgramUnavailableError, ensure
from rig.load import Call
from simulator.dataset import table_of
from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline
from telemetry.window import Window

METRICS = ("ttft_s", "tpot_s", "itl_max_s", "e2e_s")
SHOWN = ("p50", "p99")
ALLOWED = {"p50": 0.10, "p99": 0.20}
BAR = 0.8
WARM_S = 25.0
"""Seconds in which the plugin fits its step model, before the recording."""
SETTLED_S = 4.0
"""Seconds of load before the recording, if the step model is already fitted."""


@dataclass(frozen=True)
class Run:
    """A real run: the engine's arguments, the factor of the request rate, and the number of
    servers."""

    seats: int
    arguments: tuple[str, ...] = ()
    rate: float = 1.0
    servers: int = 1

    def seats_in_all(self) -> int:
        """Return the number of requests that can run at the same time on all servers together."""
        return self.seats * self.servers

    def same_servers(self, other: "Run") -> bool:
        """Return whether the servers of both runs are the same, so that only the load differs."""
        return replace(self, rate=other.rate) == other


def runs_of(seats: int, changed: int) -> dict[str, Run]:
    """Maps a name to a run. `changed` is the value of max_num_seqs in the run that changes it."""
    return {
        "first": Run(seats),
        "second": Run(seats),
        f"seats_{changed}": Run(changed),
        "budget_512": Run(seats, ("--max-num-batched-tokens", "512")),
        "cache_off": Run(seats, ("--no-enable-prefix-caching",)),
        "rate_1.5": Run(seats, rate=1.5),
        "rate_2.5": Run(seats, rate=2.5),
        "two_replicas": Run(seats, servers=2),
    }


@dataclass(frozen=True)
class RunChange:
    """A change between two runs, and the question that predicts its effect."""

    before: str
    after: str
    edits: Edits


def cases_of(seats: int, changed: int) -> dict[str, RunChange]:
    """Maps a name to a case. For the arguments, see `runs_of`."""
    fewer, more = f"seats_{changed}", f"seats_{seats}"
    return {
        fewer: RunChange("first", fewer, Edits(arguments={"max_num_seqs": str(changed)})),
        more: RunChange(fewer, "first", Edits(arguments={"max_num_seqs": str(seats)})),
        "budget_512": RunChange(
            "first", "budget_512", Edits(arguments={"max_num_batched_tokens": "512"})
        ),
        "cache_off": RunChange(
            "first", "cache_off", Edits(arguments={"enable_prefix_caching": "false"})
        ),
        "rate_1.5": RunChange("first", "rate_1.5", Edits(rates=[RateEdit(factor=1.5)])),
        "rate_2.5": RunChange("first", "rate_2.5", Edits(rates=[RateEdit(factor=2.5)])),
        "two_replicas": RunChange("first", "two_replicas", Edits(replicas=2)),
    }


def calls(seconds: float, rate_per_s: float, seed: int, tokens: tuple[int, int]) -> Planned:
    """A Poisson load: send times, and prompts. A third of the prompts share a long beginning.

    Args:
        seconds: length of the recorded load, after the warm-up.
        tokens: minimum and maximum output tokens of a request.
    """
    draw = random.Random(seed)
    shared = "".join(draw.choices("abcdefgh ", k=400))
    planned, at_s = [], 0.0
    while (at_s := at_s + draw.expovariate(rate_per_s)) < WARM_S + seconds:
        length = min(int(draw.lognormvariate(5.0, 0.8)) + 8, 1200)
        prompt = "".join(draw.choices("abcdefgh ", k=length))
        if draw.random() < 1 / 3:
            prompt = shared + prompt
        planned.append((at_s, Call(chat=False, prompt=prompt, max_tokens=draw.randint(*tokens))))
    return planned


def recorded(recording: ServerRecording) -> Recorded:
    """The traffic of a recording after its warm-up, with its fitted engines.

    Raises:
        NotReplayableError: see `recorded_of`.
    """
    rows = sorted(recording.requests, key=lambda row: row.received_unix_ns)
    table = table_of(RequestTimeline, rows)
    table = table.append_column("tpot_s", pa.array([row.tpot_s for row in rows], pa.float64()))
    window = Window(recording.begun_unix_ns + int(WARM_S * 1e9), rows[-1].received_unix_ns + 1)
    return recorded_of(
        table.select(list(REQUEST_COLUMNS)),
        table_of(EngineSample, recording.samples),
        recording.starts,
        window,
    )


def percentile(found: Recorded, name: str, point: str) -> float:
    """Return a measured percentile."""
    values = found.column(name)[found.counted]
    return float(np.quantile(values[np.isfinite(values)], POINTS[point]))


def mmc_wait_s(arrivals_per_s: float, service_s: float, servers: int, q: float) -> float:
    """Return a quantile of the waiting time in an M/M/c queue; infinite at overload (Erlang C)."""
    load = arrivals_per_s * service_s
    if load >= servers:
        return math.inf
    blocked = 1.0
    for number in range(1, servers + 1):  # Erlang B, computed recursively
        blocked = load * blocked / (number + load * blocked)
    waits = blocked / (1 - load / servers * (1 - blocked))
    rate = servers / service_s - arrivals_per_s
    return max(0.0, math.log(waits / (1 - q)) / rate) if waits > 0 else 0.0


def mmc(found: Recorded, run: Run, name: str, point: str) -> float:
    """The latency that an M/M/c model predicts: the measured latency, with the queue time of M/M/c
    in place of the measured queue time."""
    value = percentile(found, name, point)
    if name not in ("ttft_s", "e2e_s"):
        return value
    service = found.column("prefill_s") + found.column("decode_s")
    of_counted = service[found.counted]
    span_s = (found.window.to_unix_ns - found.window.from_unix_ns) / 1e9
    arrivals = int(found.counted.sum()) / span_s * run.rate
    wait_s = mmc_wait_s(arrivals, float(np.nanmean(of_counted)), run.seats_in_all(), POINTS[point])
    rest = found.column(name) - found.column("queue_s")
    of_rest = rest[found.counted]
    return float(np.quantile(of_rest[np.isfinite(of_rest)], POINTS[point])) + wait_s


def within(error: float, noise: float, point: str) -> bool:
    """Return whether a prediction's error is within the target."""
    return abs(error) <= max(1.5 * noise, ALLOWED[point])


def main(words: Sequence[str] | None = None) -> int:
    """Measure a server, predict changes, measure the changed servers, and print the errors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=90.0, help="seconds recorded per server")
    parser.add_argument("--rate", type=float, default=5.0, help="requests/s")
    parser.add_argument("--seed", type=int, default=5, help="seed of the arrivals and lengths")
    parser.add_argument("--cases", help="names of cases, separated by commas; default all")
    parser.add_argument(
        "--seats",
        type=two_numbers,
        default=(16, 4),
        metavar="BEFORE,AFTER",
        help="max_num_seqs before and after its change (default 16,4)",
    )
    parser.add_argument(
        "--tokens",
        type=two_numbers,
        default=(8, 80),
        metavar="MIN,MAX",
        help="output tokens of a request (default 8,80)",
    )
    add_server(parser)
    parser.add_argument(
        "--one-core",
        action="store_true",
        help="run each server on a core of its own, so that two replicas do not share cores",
    )
    parser.add_argument(
        "--share-servers",
        action="store_true",
        help="start equal servers only once, and send the loads of their runs one after another",
    )
    parser.add_argument(
        "--keep", type=Path, help="folder to store the recordings; recordings in it are used again"
    )
    parser.add_argument(
        "--record-only", action="store_true", help="do not predict; --keep DIR is required"
    )
    options = parser.parse_args(words)
    if options.record_only and options.keep is None:
        parser.error("--record-only needs --keep DIR")
    runs, cases = runs_of(*options.seats), cases_of(*options.seats)
    names = list(cases) if options.cases is None else options.cases.split(",")
    if unknown := set(names) - set(cases):
        parser.error(f"--cases: unknown {', '.join(unknown)}; allowed: {', '.join(cases)}")
    try:
        if not options.server:
            ensure()
    except ProgramUnavailableError as reason:
        print(reason, file=sys.stderr)
        return 2
    found: dict[str, Recorded] = {}
    changes = [cases[name] for name in names]
    compared = [run for each in changes for run in (each.before, each.after)]
    needed = list(dict.fromkeys(["first", "second", *compared]))

    def served(name: str) -> Recorded:
        if name not in found:
            run = runs[name]
            together = [
                each
                for each in needed
                if each == name or (options.share_servers and runs[each].same_servers(run))
            ]
            print(
                f"serving: {', '.join(together)}; load average {os.getloadavg()[0]:.1f}",
                file=sys.stderr,
            )
            loads = {
                each: calls(
                    options.seconds, options.rate * runs[each].rate, options.seed, options.tokens
                )
                for each in together
            }
            recordings = record_once(
                options.keep,
                loads,
                ["--max-num-seqs", str(run.seats), *run.arguments],
                run.servers,
                options.server,
                options.one_core,
                skip_s=WARM_S - SETTLED_S,
            )
            found.update({each: recorded(recording) for each, recording in recordings.items()})
        return found[name]

    try:
        first, second = served("first"), served("second")
        if options.record_only:
            for name in needed:
                served(name)
            return 0
    except NotReplayableError as reason:
        print(reason, file=sys.stderr)
        return 2
    print(f"{int(first.counted.sum())} requests at {options.rate:g}/s for {options.seconds:g} s")
    head = ("before", "replayed", "predicted", "low", "high", "after")
    errors = ("error", "no change", "M/M/c", "noise", "allowed")
    print(f"\n{'ms':20}" + "".join(f"{each:>10}" for each in (*head, *errors)))
    good = {"predicted": 0, "no change": 0, "M/M/c": 0}
    close = dict(good)
    covered = every = 0
    for name in names:
        case = cases[name]
        before, after = served(case.before), served(case.after)
        answer = predict(before, WhatIfQuestion(before.window, case.edits))
        if answer.refused is not None:
            print(f"{name}: refused: {answer.refused}")
            continue
        print(f"{name}: {', '.join(answer.edits)}{' SATURATED' if answer.saturated else ''}")
        for metric in METRICS:
            for point in SHOWN:
                now, real = (percentile(each, metric, point) for each in (before, after))
                noise = abs(
                    percentile(second, metric, point) / percentile(first, metric, point) - 1
                )
                predicted = answer.predicted[metric][point]
                replayed = answer.reproduced[metric][point].replayed
                assert predicted.value is not None
                assert replayed is not None
                low, high = predicted.low or 0.0, predicted.high or 0.0
                off = {
                    "predicted": predicted.value / real - 1,
                    "no change": now / real - 1,
                    "M/M/c": mmc(before, runs[case.after], metric, point) / real - 1,
                }
                for kind, error in off.items():
                    good[kind] += within(error, noise, point)
                    close[kind] += within(error, 0.0, point)
                every += 1
                covered += low <= real <= high
                times = (now, replayed, predicted.value, low, high, real)
                cells = "".join(f"{1e3 * each:10.1f}" for each in times)
                cells += "".join(f"{error:10.0%}" for error in off.values())
                cells += f"{noise:10.0%}{max(1.5 * noise, ALLOWED[point]):10.0%}"
                print(f"  {metric + ' ' + point:18}{cells}", flush=True)
    if not every:
        return 1
    print()
    for kind, number in good.items():
        print(
            f"{kind}: {number} of {every} within the tolerance (goal: {BAR:.0%}), {close[kind]}"
            " without the allowance for noise"
        )
    print(f"95 % intervals: {covered} of {every} contain what was measured")
    return int(good["predicted"] < BAR * every)


if __name__ == "__main__":
    raise SystemExit(main())
