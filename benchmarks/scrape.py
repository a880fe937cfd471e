"""What a scrape of `/metrics` costs, and what of it are the quantiles of the last minutes.

    python benchmarks/scrape.py [--requests 400]

Fleets of several sizes, up to the cap on labels; every replica has answered so many requests
in the last five minutes, each with latencies of its own.
"""

import argparse
import statistics
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
from prometheus_client import generate_latest

sys.path.insert(0, str(Path(__file__).parent.parent))

from exporters.families import recent_families  # found by the line above
from exporters.labels import COMBINED_LIMIT, Labels
from exporters.prometheus import PrometheusExporter
from exporters.recent_latencies import RecentLatencies
from telemetry.requests import Basis, Outcome, RequestTimeline, Source

FLEETS = (1, 8, 64, COMBINED_LIMIT)
ROUNDS = 7


def rows(replica: int, number: int, now_unix_ns: int) -> list[RequestTimeline]:
    """A replica's last five minutes."""
    random = np.random.default_rng(replica)
    latencies = random.lognormal(-1, 1, (5, number)).tolist()
    ago_ns = np.linspace(299, 1, number) * 1e9
    return [
        RequestTimeline(
            trace_id=f"{replica:016x}{n:016x}",
            span_id=f"{n:016x}",
            request_id=None,
            received_unix_ns=now_unix_ns - int(ago_ns[n]),
            e2e_s=min(e2e_s, ago_ns[n] / 1e9),
            outcome=Outcome.STOP,
            source=Source.SIMULATOR,
            basis=Basis.HTTP,
            ttft_s=ttft_s,
            queue_s=queue_s,
            decode_s=decode_s * 20,
            output_tokens=21,
            itl_max_s=itl_max_s,
            model=f"model-{replica // 100}",
            replica=f"replica-{replica % 100}",
        )
        for n, (e2e_s, ttft_s, queue_s, decode_s, itl_max_s) in enumerate(
            zip(*latencies, strict=True)
        )
    ]


def measure(fleet: int, number: int) -> None:
    """One fleet, printed as a line."""
    now_unix_ns = time.time_ns()
    exporter = PrometheusExporter(clock_unix_ns=lambda: now_unix_ns, labels=Labels(limit=fleet + 1))
    recent = RecentLatencies()
    adding_s = counting_s = 0.0
    for replica in range(fleet):
        batch = rows(replica, number, now_unix_ns)
        begun = time.process_time()
        exporter.on_stored(batch, [])
        between = time.process_time()
        take(recent, batch, now_unix_ns)
        adding_s += between - begun
        counting_s += time.process_time() - between
    whole_ms, quantiles_ms, size = [], [], 0
    for _ in range(ROUNDS):
        begun = time.process_time()
        size = len(generate_latest(exporter.registry))
        between = time.process_time()
        list(recent_families(recent.counts(now_unix_ns)))
        whole_ms.append((between - begun) * 1e3)
        quantiles_ms.append((time.process_time() - between) * 1e3)
    whole, quantiles = statistics.median(whole_ms), statistics.median(quantiles_ms)
    requests = fleet * number
    print(
        f"{fleet:8} {size / 1e6:9.2f} {whole:11.1f} {quantiles:14.1f} {quantiles / whole:9.2f}"
        f" {adding_s / requests * 1e6:15.1f} {counting_s / requests * 1e6:14.1f}"
    )


def take(recent: RecentLatencies, batch: list[RequestTimeline], now_unix_ns: int) -> None:
    """Count requests as the exporter does."""
    for row in batch:
        assert row.model is not None
        assert row.replica is not None
        recent.add((row.model, row.replica), row, now_unix_ns)


def held_kb(number: int) -> float:
    """What the windows of a replica hold, and as much again those of its model."""
    now_unix_ns = time.time_ns()
    batch = rows(0, number, now_unix_ns)
    take(RecentLatencies(), batch, now_unix_ns)
    tracemalloc.start()
    recent = RecentLatencies()
    take(recent, batch, now_unix_ns)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / 2e3


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=400, help="of each replica")
    asked = parser.parse_args()
    print(f"CPU, medians of {ROUNDS} scrapes, {asked.requests} requests a replica:")
    print("replicas   text MB   scrape, ms  its quantiles     ratio   request, µs  its quantiles")
    for fleet in FLEETS:
        measure(fleet, asked.requests)
    print(f"memory: {held_kb(asked.requests):.0f} kB for the windows of a replica")
    return 0


if __name__ == "__main__":
    sys.exit(main())
