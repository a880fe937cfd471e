"""Compute a collector's load from 10, 1,000 and 100,000 GPUs, and the limit that is reached first.

    python benchmarks/fleet.py [--requests-per-gpu 2] [--gpus-per-engine 2]

The benchmark measures the CPU time and the bytes of one request, one engine sample and one GPU
sample. The CPU time covers the work from the bytes of a message to the rows in SQLite and the
totals of /metrics. It does not include transport and the evaluation of objectives. The bytes are
those on the network and on disk. Messages arrive from 64 senders in turn, with the samples of 5 s.
The collector learns each sender's layouts (docs/decisions/091) before the measurement. The column
"point by point" shows the CPU time without layouts.
"""

import argparse
import asyncio
import gc
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState, EngineStateSample
from tailspan_vllm.otlp.engine_metrics import encode_samples

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

import _ingest_sender  # type: ignore[import-not-found]  # noqa: E402  # found through sys.path

from cli.gpu_agent import SEND_S  # noqa: E402
from collector.counters import Counters  # noqa: E402
from collector.gpus.otlp_message import message as gpu_message  # noqa: E402
from collector.intake import Intake  # noqa: E402
from collector.limits.sender_limits import CollectorLimits  # noqa: E402
from collector.normalise.engine_points import FIELDS  # noqa: E402
from collector.otlp.layout_reader import LayoutReader  # noqa: E402
from collector.otlp.message_reader import LocalReader, MessageReader  # noqa: E402
from collector.rows.age_limit import AgeLimit  # noqa: E402
from collector.rows.sender_clocks import SenderClocks  # noqa: E402
from collector.signals import METRICS, TRACES, Signal  # noqa: E402
from exporters.prometheus import PrometheusExporter  # noqa: E402
from exporters.totals.label_limits import COMBINED_LIMIT, GPU_LIMIT  # noqa: E402
from store.database import open_database  # noqa: E402
from store.retention import KEEP_ROWS_NS  # noqa: E402
from store.rollups.names import LIMITS as NAMES  # noqa: E402
from store.writer import GATHER_S, Writer  # noqa: E402
from telemetry.gpus import METRICS as GPU_METRICS  # noqa: E402
from telemetry.gpus import GpuSample, GpuSource  # noqa: E402

FLEETS = (10, 1_000, 100_000)
GPUS_EACH = 8
SENDERS = 64
"""Number of senders whose messages arrive and are committed together."""
LEARNED = 3 * SENDERS
"""Number of messages before the measurement, from which the collector learns the layouts."""
SAMPLES_EACH = int(SEND_S)
"""Number of samples of an engine or a GPU in each message."""
WEEK_S = KEEP_ROWS_NS // 10**9


class RowCost(NamedTuple):
    """The CPU time, the network bytes and the disk bytes of one row."""

    cpu_s: float
    wire_bytes: float
    disk_bytes: float


class FleetRates(NamedTuple):
    """The messages and rows that arrive per second."""

    gpus: int
    engines: float
    requests_per_s: float


def spans(number: int) -> list[bytes]:
    """Return messages of 512 requests each."""
    batch = _ingest_sender.SpanBatch(random.Random(1), 0)
    return [batch.fresh() for _ in range(number)]


def engines(number: int) -> list[bytes]:
    """Return messages with the complete samples of an engine, as the plugin sends them."""
    found: list[bytes] = []
    for times, sender in turns(number):
        resource = Resource(
            {names.SERVICE_INSTANCE_ID: f"replica-{sender}", names.PROCESS_PID: 4242}
        )
        state = EngineState(
            engine=0,
            started_unix_ns=times[0] - 10**15,
            model="meta-llama/Llama-3.1-8B-Instruct",
            config="3f0f5ec2",
            gauges={name: 0.5 for name, field in FIELDS.items() if field.quantity != "count"}
            | {name: 3 for name, field in FIELDS.items() if field.quantity == "count"},
        )
        totals = {name for name, field in FIELDS.items() if field.shape == "sum"}
        state.gauges = {name: value for name, value in state.gauges.items() if name not in totals}
        samples: list[EngineStateSample] = []
        for at_unix_ns in times:
            state.totals = dict.fromkeys(totals, 1_000 + len(found) + len(samples))
            samples.append(EngineStateSample(at_unix_ns, state.snapshot({}, {})))
        found.append(encode_samples(samples, resource))
    return found


def gpus(number: int) -> list[bytes]:
    """Return messages with the samples of a machine's eight GPUs, as `tailspan gpus` sends them."""
    values = {
        field: 1.0 if field.endswith(("_ratio", "_w")) else 1_000_000 for field in GPU_METRICS
    }
    return [
        gpu_message(
            [
                GpuSample(
                    replica=f"replica-{sender}",
                    gpu=f"GPU-{sender:016x}{gpu:016x}",
                    at_unix_ns=at_unix_ns,
                    source=GpuSource.NVML,
                    model_name="NVIDIA H100 80GB HBM3",
                    throttle_reasons="",
                    **values,  # type: ignore[arg-type]  # each value has its field's type
                )
                for at_unix_ns in times
                for gpu in range(GPUS_EACH)
            ]
        )
        for times, sender in turns(number)
    ]


def turns(number: int) -> Iterator[tuple[list[int], int]]:
    """Yield, for each message, the times of its samples and the number of its sender."""
    seconds, now_ns = -(-number // SENDERS) * SAMPLES_EACH, time.time_ns()
    for count in range(number):
        turn, sender = divmod(count, SENDERS)
        first_ns = now_ns - (seconds - turn * SAMPLES_EACH) * 10**9
        yield [first_ns + second * 10**9 for second in range(SAMPLES_EACH)], sender


def unit(
    signal: Signal,
    messages: Sequence[bytes],
    rows_each: int,
    reader: MessageReader,
    learned: int = 0,
) -> RowCost:
    """The cost of one row of these messages. The first `learned` messages are not measured."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tailspan.db"
        engine = open_database(f"sqlite:///{path}")
        empty_bytes = path.stat().st_size
        counters = Counters()
        exporter = PrometheusExporter(counters.report)

        async def take(writer: Writer) -> float:
            intake = Intake(
                writer,
                [exporter],
                counters,
                time.time_ns,
                CollectorLimits(max_peer_bytes_per_s=1e12, max_bytes_per_s=1e12),
                reader,
                gpu_listeners=[exporter],
                steps=[SenderClocks(), AgeLimit(KEEP_ROWS_NS)],
            )
            began = 0.0
            for first in range(0, len(messages), SENDERS):
                if first == learned:
                    began = time.process_time()
                some = messages[first : first + SENDERS]
                await asyncio.gather(
                    *(
                        intake.receive(signal, each, peer=f"sender-{sender}")
                        for sender, each in enumerate(some)
                    )
                )
            taken_s = time.process_time() - began
            await intake.stop(60)
            return taken_s

        with Writer(engine, gather_s=GATHER_S) as writer:
            cpu_s = asyncio.run(take(writer))
        rows = counters.report().items[signal.name, "stored", ""]
        assert rows, counters.report()
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        engine.dispose()
        number = len(messages) * rows_each
        size_bytes = path.stat().st_size - empty_bytes
        return RowCost(
            cpu_s / (number - learned * rows_each),
            sum(map(len, messages)) / number,
            size_bytes / number,
        )


def limits(fleet: FleetRates, units: Sequence[RowCost]) -> list[tuple[str, float]]:
    """The limited resources, and the share of each that this fleet uses."""
    rates = (fleet.requests_per_s, fleet.engines, float(fleet.gpus))
    busy = sum(rate * each.cpu_s for rate, each in zip(rates, units, strict=True))
    week_bytes = sum(rate * each.disk_bytes for rate, each in zip(rates, units, strict=True))
    return [
        ("a core of one collector", busy),
        ("1 TB of SQLite, a week of rows", week_bytes * WEEK_S / 1e12),
        (f"{NAMES['replica']:,} replicas named in rollups", fleet.engines / NAMES["replica"]),
        (
            f"{COMBINED_LIMIT:,} replicas and engines on /metrics of one collector",
            fleet.engines / COMBINED_LIMIT,
        ),
        (f"{GPU_LIMIT:,} GPUs on /metrics of one collector", fleet.gpus / GPU_LIMIT),
    ]


def main() -> None:
    """Print the cost of one row, and the loads of the fleets."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests-per-gpu", type=float, default=2.0, help="a second")
    parser.add_argument("--gpus-per-engine", type=float, default=2.0)
    given = parser.parse_args()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
    found = unit(TRACES, spans(40), _ingest_sender.SPANS, LocalReader())
    units = [found]
    print(
        f"{'CPU in µs, sizes in bytes':<26} {'CPU':>7} {'point by point':>15} {'ratio':>6}"
        f" {'wire':>7} {'SQLite':>7}"
    )
    print(
        f"{'a request':<26} {found.cpu_s * 1e6:>7,.0f} {'':>15} {'':>6}"
        f" {found.wire_bytes:>7,.0f} {found.disk_bytes:>7,.0f}"
    )
    for name, messages, rows_each in (
        ("an engine's sample", engines(LEARNED + 640), SAMPLES_EACH),
        ("a GPU's sample", gpus(LEARNED + 256), SAMPLES_EACH * GPUS_EACH),
    ):
        found = unit(METRICS, messages, rows_each, LayoutReader(LocalReader()), LEARNED)
        slow = unit(METRICS, messages, rows_each, LocalReader(), LEARNED)
        units.append(found)
        print(
            f"{name:<26} {found.cpu_s * 1e6:>7,.0f} {slow.cpu_s * 1e6:>15,.0f}"
            f" {slow.cpu_s / found.cpu_s:>6.1f} {found.wire_bytes:>7,.0f} {found.disk_bytes:>7,.0f}"
        )
    for number in FLEETS:
        fleet = FleetRates(number, number / given.gpus_per_engine, number * given.requests_per_gpu)
        rates = (fleet.requests_per_s, fleet.engines, float(fleet.gpus))
        wire = sum(rate * each.wire_bytes for rate, each in zip(rates, units, strict=True))
        shares = sorted(limits(fleet, units), key=lambda each: -each[1])
        print(
            f"\n{number:,} GPUs: {rates[0]:,.0f} requests, {rates[1]:,.0f} engine samples and "
            f"{rates[2]:,.0f} GPU samples per second; {wire / 1e6:,.2f} MB/s; first limit:"
        )
        for what, share in shares:
            print(f"  {share:>9.1%}  {what}")


if __name__ == "__main__":
    main()
