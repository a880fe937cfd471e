"""Measure how long an explanation takes, compared with limits.

    python benchmarks/explain.py [--requests 1000000] [--limit-s 1.0] [--hour]

The requests are already in memory as columns; benchmarks/query.py measures how long reading takes.
Half of the requests are in the baseline, and half in the window. The requests in the window wait
for KV blocks.

With --hour, the requests are read from SQLite instead: an hour of four simulated replicas with two
faults, and the hour before this hour. The first answer is computed from the recorded times
(accounting). The second answer has shares that a child process computes by replays, and the
predicted effects of the actions.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from analysis.counterfactual.replay_process import replayed  # noqa: E402  # found through sys.path
from analysis.explain import explain_window  # noqa: E402
from diagnosis.question import Metric, Span  # noqa: E402
from simulator.dataset import run as simulate  # noqa: E402
from simulator.fault import SimulatedFault  # noqa: E402
from simulator.fleet_config import FleetConfig  # noqa: E402
from simulator.workload import Workload  # noqa: E402
from store.database import open_database  # noqa: E402
from store.writer import Writer  # noqa: E402
from tests.diagnosis.making import asked, later, quiet  # noqa: E402

ROUNDS = 3
HOUR_S, REPLICAS, RATE_PER_S = 3_600, 4, 20.0
FAULTS = {"prefill_interference": 1.0, "gpu_throttling": 0.6}
FIRST_LIMIT_S, REPLAYED_LIMIT_S = 1.0, 10.0


def main() -> int:
    """Measure and print the durations."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--limit-s", type=float, default=1.0)
    parser.add_argument(
        "--hour", action="store_true", help="explain an hour of four replicas, with replays"
    )
    given = parser.parse_args()
    if given.hour:
        return explain_hour()
    requests = later(quiet(given.requests), queue_kv_s=lambda waited_s: waited_s + 0.3)
    columns_mb = sum(values.nbytes for values in requests.numbers.values()) / 1e6
    print(f"{given.requests:,} requests, {columns_mb:,.0f} MB of columns")
    for metric in Metric:
        took_s = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            answer = asked(requests, metric)
            took_s.append(time.perf_counter() - begun)
        best_s = min(took_s)
        print(
            f"{metric.value:8} {answer.verdict.value:12} {best_s:6.2f} s,"
            f" {best_s / given.limit_s:.2f} of the limit"
        )
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"peak memory: {peak_mb:,.0f} MB")
    return 0


def explain_hour() -> int:
    """Simulate, store and explain an hour of four replicas. Return 1 if a limit is exceeded."""
    with tempfile.TemporaryDirectory() as folder:
        engine = open_database(f"sqlite:///{folder}/tailspan.db")
        end_s = int(time.time())
        found = simulate(
            FleetConfig(
                replicas=REPLICAS,
                workload=Workload(rate_per_s=RATE_PER_S),
                faults=tuple(
                    SimulatedFault(cause=cause, severity=severity, start_s=float(HOUR_S))
                    for cause, severity in FAULTS.items()
                ),
                started_unix_ns=(end_s - 2 * HOUR_S) * 10**9,
                duration_s=2.0 * HOUR_S,
            )
        )
        with Writer(engine) as writer:
            writer.submit(found.requests, found.samples, found.starts, found.gpus).result()
        window = Span((end_s - HOUR_S) * 10**9, end_s * 10**9)
        print(f"{len(found.requests):,} requests, {', '.join(FAULTS)}")
        missed = 0
        for number in range(ROUNDS):
            began_s = time.perf_counter()
            answer = explain_window(engine, Metric.TTFT, window, {}, ()).explanation
            first_s = time.perf_counter() - began_s
            shown = replayed(engine, answer)
            replayed_s = time.perf_counter() - began_s - first_s
            assert shown.replay is not None, shown.not_replayed
            causes = ", ".join(f"{cause.id} {cause.share:.0%}" for cause in shown.causes)
            print(
                f"round {number + 1}: first answer {first_s:.1f} s (limit {FIRST_LIMIT_S:g}),"
                f" replays {replayed_s:.1f} s more (limit {REPLAYED_LIMIT_S:g}): {causes}",
                flush=True,
            )
            missed += first_s > FIRST_LIMIT_S or replayed_s > REPLAYED_LIMIT_S
        engine.dispose()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
