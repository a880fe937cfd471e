"""Measure whether `tailspan explain` names the right pool of a simulated disaggregated fleet.

    python benchmarks/joined_pools.py [--seeds 1-10]

Each fleet has two prefill servers and two decode servers behind a router. After four minutes, the
fleet has a fault for four minutes, or no fault. The benchmark checks that the phases of each joined
request sum to its E2E. Then it explains the user's TTFT.

The pool is right if it is first in the explanation and has a cause. The cause is right if it is the
first cause of this pool. Without a fault, no pool may have an incident. The goal is that the pool
is right in 9 of 10 fleets. A fleet takes about 15 s.
"""

import argparse
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from sqlalchemy import Engine

from analysis.joined.explain import JoinedExplanation, explain_joined
from diagnosis.explanation import ExplanationVerdict
from diagnosis.question import Metric, Question, Span
from simulator.dataset import run
from simulator.faults import SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from store.database import open_database
from store.joined.read import read_joined
from store.writer import Writer
from telemetry.window import Window

HALF_S: Final = 240
BEGAN_S: Final = 1_795_000_000
POOLS: Final = {
    "kv_transfer": "decode",
    "load_exceeds_capacity": "prefill",
    "gpu_throttling": "prefill",
}
"""The pool of each fault. `gpu_throttling` slows the first replica, which is a prefill server."""
BAR: Final = 0.9


def explained(cause: str | None, seed: int, folder: Path) -> tuple[JoinedExplanation | None, int]:
    """Simulate a fleet, and return its explanation and the number of its joined requests.

    Raises:
        AssertionError: the phases of a request do not sum to its E2E.
    """
    faults = (
        () if cause is None else (SimulatedFault(cause=cause, start_s=HALF_S, end_s=2 * HALF_S),)
    )
    found = run(
        FleetConfig(
            replicas=4,
            prefill_replicas=2,
            workload=Workload(rate_per_s=20.0),
            faults=faults,
            seed=seed,
            duration_s=2 * HALF_S,
            started_unix_ns=BEGAN_S * 10**9,
        )
    )
    engine = open_database(f"sqlite:///{folder}/{cause}-{seed}.db")
    with Writer(engine) as writer:
        writer.submit(
            found.requests,
            found.samples,
            gpus=found.gpus,
            starts=found.starts,
            operations=found.operations,
        ).result(120)
    middle, end = BEGAN_S + HALF_S, BEGAN_S + 2 * HALF_S
    window, before = Span(middle * 10**9, end * 10**9), Span(BEGAN_S * 10**9, middle * 10**9)
    number = _check_sums(engine, Window(before.from_unix_ns, window.to_unix_ns))
    answer = explain_joined(engine, Question(Metric.TTFT, window, before, {}))
    engine.dispose()
    return answer, number


def _check_sums(engine: Engine, window: Window) -> int:
    requests = read_joined(engine, window).requests
    for each in requests:
        summed_s = sum(filter(None, each.phases.values()))
        assert math.isclose(summed_s, each.e2e_s, abs_tol=1e-6), (each, summed_s)
    return len(requests)


def main(words: Sequence[str] | None = None) -> int:
    """Print the results. The exit status is 1 if the goal is not met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="1-10", metavar="FIRST-LAST")
    first, last = map(int, parser.parse_args(words).seeds.split("-"))
    seeds = range(first, last + 1)
    met = True
    print(f"seeds {first} to {last}\n{'fault':24} {'pool right':>11} {'cause right':>12} requests")
    for cause in (*POOLS, None):
        right: Counter[str] = Counter()
        requests = 0
        for seed in seeds:
            with tempfile.TemporaryDirectory() as name:
                answer, number = explained(cause, seed, Path(name))
            requests += number
            pools = [] if answer is None else answer.pools
            if cause is None:
                right["pool"] += all(
                    each.explanation.verdict is not ExplanationVerdict.INCIDENT for each in pools
                )
                continue
            worst = pools[0]
            causes = [each.id for each in worst.explanation.causes]
            right["pool"] += worst.role.value == POOLS[cause] and bool(causes)
            right["cause"] += causes[:1] == [cause]
        of = len(seeds)
        met = met and (cause is None or right["pool"] >= BAR * of)
        causes_right = "-" if cause is None else f"{right['cause']} of {of}"
        print(
            f"{cause or 'none':24} {right['pool']:>5} of {of:2} {causes_right:>12} {requests:,}",
            flush=True,
        )
    print(f"goal: {'met' if met else 'NOT met'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
