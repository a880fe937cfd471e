"""Are predictions right for a real vLLM that is then changed for real?

    python benchmarks/what_if_real.py [--seconds 90] [--rate 5] [--cases seats,budget]

A real server on this machine's CPU serves seeded arrivals. Its change is predicted from what it
reported. Then a server with the change serves the same arrivals. The first server's arrivals are
also served a second time without a change: that difference is the noise of the measurement. An
error should be within 1.5 times this difference, or within 10 % at P50 and 20 % at P99, whichever
is larger, in four of five. "no change" is the error of predicting the measured value.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

from analysis.recorded_traffic import REQUEST_COLUMNS, NotReplayableError, Recorded, recorded_of
from analysis.what_if import POINTS, WhatIfQuestion, predict
from collector.server import Collector
from collector.testing import MemorySink, running
from replay.edits import Edits, Rate
from rig import serve
from rig.install import NotHereError, ensure
from rig.load import Call, send
from rig.ports import free_port
from simulator.dataset import table_of
from store.queries import Window
from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline

METRICS = ("ttft_s", "tpot_s", "itl_max_s", "e2e_s")
SHOWN = ("p50", "p99")
ALLOWED = {"p50": 0.10, "p99": 0.20}
WARM_S = 25.0
"""Time for the plugin's step model before anything is recorded."""
SEATS = ["--max-num-seqs", "16"]


@dataclass(frozen=True)
class Case:
    """A change: the server's arguments after it, and the question that predicts it."""

    edits: Edits
    arguments: list[str] = field(default_factory=list)
    rate: float = 1.0


CASES = {
    "seats": Case(Edits(arguments={"max_num_seqs": "4"}), ["--max-num-seqs", "4"]),
    "budget": Case(
        Edits(arguments={"max_num_batched_tokens": "512"}), ["--max-num-batched-tokens", "512"]
    ),
    "cache": Case(
        Edits(arguments={"enable_prefix_caching": "false"}), ["--no-enable-prefix-caching"]
    ),
    "rate": Case(Edits(rates=[Rate(factor=1.5)]), [], 1.5),
}


def calls(seconds: float, rate_per_s: float) -> list[tuple[float, Call]]:
    """Return a Poisson load: instants, and prompts of which a third share a long beginning."""
    draw = random.Random(5)
    shared = "".join(draw.choices("abcdefgh ", k=400))
    planned, at_s = [], 0.0
    while (at_s := at_s + draw.expovariate(rate_per_s)) < WARM_S + seconds:
        length = min(int(draw.lognormvariate(5.0, 0.8)) + 8, 1200)
        prompt = "".join(draw.choices("abcdefgh ", k=length))
        if draw.random() < 1 / 3:
            prompt = shared + prompt
        planned.append((at_s, Call(chat=False, prompt=prompt, max_tokens=draw.randint(8, 80))))
    return planned


def measured(planned: Sequence[tuple[float, Call]], arguments: Sequence[str]) -> Recorded:
    """Serve a load with a new server, and return what it reported.

    Raises:
        SystemExit: the server did not start.
    """
    sink = MemorySink()
    with running(Collector(sink, grpc_port=0, http_port=0)) as collector:
        port = free_port()
        process = subprocess.Popen(
            serve.command(port, ["--no-enable-log-requests", *arguments]),
            env=serve.environment(f"http://127.0.0.1:{collector.grpc_port}", os.environ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            if not serve.wait_until_healthy(port, process):
                raise SystemExit("the server did not start")
            begun, begun_ns = time.monotonic(), time.time_ns()
            with ThreadPoolExecutor(256) as pool:
                for at_s, call in planned:
                    time.sleep(max(0.0, begun + at_s - time.monotonic()))
                    pool.submit(send, port, call)
            time.sleep(6.0)  # until the last export
        finally:
            serve.stop(process)
    from_ns = begun_ns + int(WARM_S * 1e9)
    rows = sorted(sink.requests, key=lambda row: row.received_unix_ns)
    table = table_of(RequestTimeline, rows)
    table = table.append_column("tpot_s", pa.array([row.tpot_s for row in rows], pa.float64()))
    window = Window(from_ns, rows[-1].received_unix_ns + 1)
    samples = table_of(EngineSample, sink.samples)
    return recorded_of(table.select(list(REQUEST_COLUMNS)), samples, sink.starts, window)


def percentile(found: Recorded, name: str, point: str) -> float:
    """Return a measured percentile."""
    values = found.column(name)[found.counted]
    return float(np.quantile(values[np.isfinite(values)], POINTS[point]))


def main() -> int:
    """Measure, predict, change, measure again; print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=90.0, help="recorded for each server")
    parser.add_argument("--rate", type=float, default=5.0, help="requests/s")
    parser.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)}")
    asked = parser.parse_args()
    try:
        ensure()
    except NotHereError as reason:
        print(reason, file=sys.stderr)
        return 2
    planned = calls(asked.seconds, asked.rate)
    try:
        first, second = measured(planned, SEATS), measured(planned, SEATS)
    except NotReplayableError as reason:
        print(reason, file=sys.stderr)
        return 2
    load = os.getloadavg()[0]
    print(f"{int(first.counted.sum())} requests at {asked.rate:g}/s; load average {load:.1f}")
    head = ("measured", "again", "replayed", "predicted", "low", "high", "after", "error")
    print(f"\n{'ms':22}" + "".join(f"{each:>10}" for each in (*head, "no change", "allowed")))
    good = every = 0
    for name in asked.cases.split(","):
        case = CASES[name]
        answer = predict(first, WhatIfQuestion(first.window, case.edits))
        if answer.refused is not None:
            print(f"{name}: refused: {answer.refused}")
            continue
        after = measured(calls(asked.seconds, asked.rate * case.rate), [*SEATS, *case.arguments])
        print(f"{name}: {', '.join(answer.edits)}{' SATURATED' if answer.saturated else ''}")
        for metric in METRICS:
            for point in SHOWN:
                now, again = (percentile(each, metric, point) for each in (first, second))
                real = percentile(after, metric, point)
                found = answer.predicted[metric][point]
                replayed = answer.reproduced[metric][point].replayed
                assert found.value is not None
                assert replayed is not None
                error = found.value / real - 1
                allowed = max(1.5 * abs(again / now - 1), ALLOWED[point])
                every += 1
                good += abs(error) <= allowed
                times = (now, again, replayed, found.value, found.low or 0, found.high or 0, real)
                cells = "".join(f"{1e3 * each:10.1f}" for each in times)
                rest = f"{error:10.0%}{now / real - 1:10.0%}{allowed:10.0%}"
                print(f"  {metric + ' ' + point:20}{cells}{rest}", flush=True)
    print(f"\n{good} of {every} within what is allowed (bar: four of five)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
