"""What a scrape of `/metrics` costs, and what of it are the quantiles of the last minutes.

    python benchmarks/scrape.py [--requests 400]

Fleets of several sizes, up to the cap on labels; every replica has answered so many requests
in the last five minutes, each with latencies of its own, on behalf of 20 tenants. As Prometheus
asks: OpenMetrics, with exemplars.
"""

import argparse
import statistics
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from exporters.engine_series import ENGINE_GAUGES, ENGINE_TOTALS
from exporters.exposition import Exposition  # found by the line above
from exporters.families import recent_families
from exporters.labels import COMBINED_LIMIT, Labels
from exporters.negotiation import Format
from exporters.prometheus import PrometheusExporter
from exporters.recent_latencies import RecentLatencies
from telemetry.engines import EngineSample
from telemetry.requests import (
    DECODE_PARTS,
    PREFILL_PARTS,
    QUEUE_PARTS,
    Basis,
    Outcome,
    RequestTimeline,
    Source,
)

FLEETS = (1, 8, 100, COMBINED_LIMIT)
TENANTS = 20
PARTS: dict[str, Any] = dict.fromkeys((*QUEUE_PARTS, *PREFILL_PARTS, *DECODE_PARTS), 0.01)
STATE: dict[str, Any] = dict.fromkeys((*ENGINE_GAUGES, *ENGINE_TOTALS), 123456)
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
            frontend_s=0.01,
            prefill_s=0.1,
            decode_s=decode_s * 20,
            delivery_s=0.01,
            **PARTS,
            output_tokens=21,
            itl_max_s=itl_max_s,
            model=f"model-{replica // 100}",
            tenant=f"tenant-{n % TENANTS}",
            replica=f"replica-{replica % 100}",
        )
        for n, (e2e_s, ttft_s, queue_s, decode_s, itl_max_s) in enumerate(
            zip(*latencies, strict=True)
        )
    ]


def sample(replica: int, now_unix_ns: int) -> EngineSample:
    """A replica's engine, of which everything is known that goes on `/metrics`."""
    return EngineSample(
        replica=f"replica-{replica % 100}",
        engine=0,
        process=1,
        at_unix_ns=now_unix_ns,
        started_unix_ns=now_unix_ns - 10**9,
        model=f"model-{replica // 100}",
        **STATE,
    )


def measure(fleet: int, number: int) -> None:
    """One fleet, printed as a line."""
    now_unix_ns = time.time_ns()
    exporter = PrometheusExporter(clock_unix_ns=lambda: now_unix_ns, labels=Labels(limit=fleet + 1))
    recent = RecentLatencies()
    adding_s = counting_s = 0.0
    for replica in range(fleet):
        batch = rows(replica, number, now_unix_ns)
        begun = time.process_time()
        exporter.on_stored(batch, [sample(replica, now_unix_ns)])
        between = time.process_time()
        take(recent, batch, now_unix_ns)
        adding_s += between - begun
        counting_s += time.process_time() - between
    exposition = Exposition([exporter])
    whole_ms, quantiles_ms, size = [], [], 0
    for _ in range(ROUNDS):
        begun = time.process_time()
        size = len(exposition.write(Format.OPENMETRICS))
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
        recent.add((row.model, row.replica), row, now_unix_ns, (row.model, row.tenant or ""))


def held_kb(number: int) -> float:
    """What the windows of a replica hold; as much again those of its model, and its tenants'."""
    now_unix_ns = time.time_ns()
    batch = rows(0, number, now_unix_ns)
    take(RecentLatencies(), batch, now_unix_ns)
    tracemalloc.start()
    recent = RecentLatencies()
    take(recent, batch, now_unix_ns)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / 3e3


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
