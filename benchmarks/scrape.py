"""Measure the cost of a scrape of `/metrics` in each format, and the cost of its parts.

    python benchmarks/scrape.py [--requests 400] [--gpus 1]

The benchmark measures fleets of several sizes, up to the maximum number of label sets, with every
feature and field. In the last five minutes, every replica has served `--requests` requests from 20
tenants.
"""

import argparse
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from alerts.objectives import counted
from alerts.openslo.reader import load
from collector.counters import Counters
from exporters.definitions.engine_series import ENGINE_GAUGES, ENGINE_TOTALS
from exporters.definitions.gpu_series import GPU_GAUGES
from exporters.families import recent_families
from exporters.format.exposition import Exposition  # needs the path inserted above
from exporters.format.negotiation import Format
from exporters.prometheus import BULK, PrometheusExporter
from exporters.self_metrics.gpu_readers import GpuReaderMetrics
from exporters.totals.label_limits import COMBINED_LIMIT, ExporterLabels
from exporters.totals.recent_latencies import RecentLatencies
from exporters.totals.request_batch import RequestBatch
from exporters.totals.rooflines import RooflineMetrics
from simulator.gpu import machine
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.request_rows import RequestRows
from telemetry.requests import (
    DECODE_PARTS,
    PREFILL_PARTS,
    QUEUE_PARTS,
    Basis,
    Outcome,
    PricedBy,
    RequestTimeline,
    Source,
)
from telemetry.starts import EngineStart

FLEETS = (1, 8, 100, 1_000, COMBINED_LIMIT)
TENANTS = 20
PARTS: dict[str, Any] = dict.fromkeys((*QUEUE_PARTS, *PREFILL_PARTS, *DECODE_PARTS), 0.01)
STATE: dict[str, Any] = dict.fromkeys((*ENGINE_GAUGES, *ENGINE_TOTALS), 123456)
WORK: dict[str, Any] = {
    "steps_total": 60,
    "busy_s_total": 0.9,
    "scheduled_prefill_tokens_total": 0,
    "prefill_attention_total": 0.0,
    "context_tokens_total": 60 * 32 * 8192,
    "decodes_total": 60 * 32,
}
"""The work of an engine in one second."""
GPU: dict[str, Any] = dict.fromkeys(GPU_GAUGES, 0.731)
USD_PER_S = 0.0005
ROUNDS = 7
OBJECTIVES = Path(__file__).parent.parent / "alerts" / "objectives"


def rows(replica: int, number: int, now_unix_ns: int) -> list[RequestTimeline]:
    """Requests of a replica in the last five minutes."""
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
            prompt_tokens=512,
            cached_tokens=128,
            output_tokens=21,
            cost_usd=0.001,
            priced_by=PricedBy.LEDGER,
            billed_s=0.4,
            wasted_s=0.01,
            itl_max_s=itl_max_s,
            model=f"model-{replica // 100}",
            tenant=f"tenant-{n % TENANTS}",
            replica=f"replica-{replica}",
        )
        for n, (e2e_s, ttft_s, queue_s, decode_s, itl_max_s) in enumerate(
            zip(*latencies, strict=True)
        )
    ]


def samples(replica: int, now_unix_ns: int) -> list[EngineSample]:
    """The samples of a replica's engine in the last minute, with every field."""
    return [
        EngineSample(
            replica=f"replica-{replica}",
            engine=0,
            process=1,
            at_unix_ns=now_unix_ns - ago_s * 10**9,
            started_unix_ns=now_unix_ns - 10**12,
            model=f"model-{replica // 100}",
            region="eu-central-1",
            config="0123456789ab",
            source=Source.INSTRUMENTATION,
            **{**STATE, **{name: value * (1000 - ago_s) for name, value in WORK.items()}},
        )
        for ago_s in range(60, -1, -1)
    ]


def gpus(replica: int, number: int, now_unix_ns: int) -> list[GpuSample]:
    """A replica's GPUs, with every field."""
    return [
        GpuSample(
            replica=f"replica-{replica}",
            gpu=f"GPU-{replica:08x}-0000-4000-8000-{number:012x}",
            at_unix_ns=now_unix_ns,
            model_name="NVIDIA H100 80GB HBM3",
            energy_j_total=123456.789,
            throttle_reasons="sw_power_cap",
            **GPU,
        )
        for number in range(number)
    ]


def start(replica: int) -> EngineStart:
    """Start of a replica's engine."""
    of = machine(1)
    return EngineStart(
        replica=f"replica-{replica}",
        engine=0,
        process=1,
        at_unix_ns=1,
        config="0123456789ab",
        arguments="{}",
        device=of.device,
        shape=json.dumps(of.shape),
    )


@dataclass(frozen=True)
class HealthyGpuReader:
    """A GPU reader without errors."""

    name: str = "nvml"
    up: bool | None = True
    gpus: tuple[object, ...] = ()
    failures: Mapping[str, int] = field(default_factory=lambda: {"lost": 0})
    duration_s: float | None = 0.004
    last_success_unix_ns: int | None = 10**18


def measure(fleet: int, number: int, gpus_each: int) -> None:
    """Measure one fleet and print a line."""
    now_unix_ns = time.time_ns()
    objectives = load([OBJECTIVES]).objectives
    exporter = PrometheusExporter(
        Counters().report,
        clock_unix_ns=lambda: now_unix_ns,
        objectives=counted(objectives),
        targets={each.name: float(each.target) for each in objectives},
        usd_per_s=lambda replica, engine: USD_PER_S,
    )
    starts = [start(replica) for replica in range(fleet)]
    latest = {(each.replica, each.engine): each for each in starts}
    rooflines = RooflineMetrics(lambda _: latest, lambda: now_unix_ns)
    recent = RecentLatencies()
    adding_s = counting_s = 0.0
    batches: list[RequestRows] = []
    for replica in range(fleet):
        minute = samples(replica, now_unix_ns)
        for listener in (exporter, rooflines):
            listener.on_stored([], minute)
        exporter.on_gpus_stored(gpus(replica, gpus_each, now_unix_ns))
        batch = RequestRows.of(rows(replica, number, now_unix_ns))
        batches.append(batch)
        begun = time.process_time()
        exporter.on_stored(batch, [])
        adding_s += time.process_time() - begun
    begun = time.process_time()
    exporter._count(now_unix_ns)  # count the requests that still wait in a batch
    adding_s += time.process_time() - begun
    several = max(1, BULK // number)
    for first in range(0, fleet, several):
        bulk = together(RequestRows.joined(batches[first : first + several]), now_unix_ns)
        begun = time.process_time()
        recent.add(bulk)
        counting_s += time.process_time() - begun
    exposition = Exposition([exporter, rooflines, GpuReaderMetrics(lambda: [HealthyGpuReader()])])
    formats = [
        timed(lambda format_=format_: exposition.write(format_))  # type: ignore[misc]
        for format_ in (Format.OPENMETRICS, Format.PROTOBUF)
    ]
    quantiles_ms, _ = timed(lambda: list(recent_families(recent.counts(now_unix_ns))))
    rooflines_ms, _ = timed(lambda: list(rooflines.families()))
    requests = fleet * number
    print(
        f"{fleet:8}",
        *(f"{len(written) / 1e6:9.2f} {took_ms:9.1f}" for took_ms, written in formats),
        f"{quantiles_ms:14.1f} {rooflines_ms:10.1f}",
        f"{adding_s / requests * 1e6:15.1f} {counting_s / requests * 1e6:14.1f}",
    )


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Result of a call and its median CPU time in milliseconds."""
    took_ms = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        result = call()
        took_ms.append((time.process_time() - begun) * 1e3)
    return statistics.median(took_ms), result


def together(batch: RequestRows, now_unix_ns: int) -> RequestBatch:
    """Return requests in the form in which the exporter counts them."""
    return RequestBatch.under(batch, ExporterLabels(limit=2_000), now_unix_ns)


def held_kb(number: int) -> float:
    """Memory of a replica's recent latencies in kB.

    Each latency is stored three times: for the replica, for the model and for the tenant. So the
    result is a third of the measured memory.
    """
    now_unix_ns = time.time_ns()
    bulk = together(RequestRows.of(rows(0, number, now_unix_ns)), now_unix_ns)
    RecentLatencies().add(bulk)
    tracemalloc.start()
    recent = RecentLatencies()
    recent.add(bulk)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / 3e3


def main() -> int:
    """Measure and print the costs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=400, help="requests per replica")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs per replica")
    parser.add_argument("--fleets", type=int, nargs="+", default=FLEETS, help="replicas")
    arguments = parser.parse_args()
    print(
        f"CPU, medians of {ROUNDS} scrapes, {arguments.requests} requests and {arguments.gpus} GPUs"
        " a replica:"
    )
    print(
        "replicas   text MB   text, ms proto, MB proto, ms  its quantiles  rooflines"
        "     request, µs  its quantiles"
    )
    for fleet in arguments.fleets:
        measure(fleet, arguments.requests, arguments.gpus)
    print(f"memory: {held_kb(arguments.requests):.0f} kB for the windows of a replica")
    return 0


if __name__ == "__main__":
    sys.exit(main())
