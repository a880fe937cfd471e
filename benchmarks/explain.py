"""Measures how long it takes to explain a million requests, compared with a limit of one second.

    python benchmarks/explain.py [--requests 1000000] [--limit-s 1.0]

The requests are already in memory as columns; benchmarks/query.py measures how long reading takes.
Half of the requests are in the baseline and half in the window, where they wait for KV blocks.
"""

import argparse
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from diagnosis.question import Metric  # noqa: E402  # found by the line above
from tests.diagnosis.making import asked, later, quiet  # noqa: E402

ROUNDS = 3


def main() -> int:
    """Measure and print the durations."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--limit-s", type=float, default=1.0)
    given = parser.parse_args()
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


if __name__ == "__main__":
    sys.exit(main())
