"""Measure how long it takes to compute the bill of a day.

    python benchmarks/cost.py [--requests 10000000]

The queries of `tailspan cost` and of the Cost page run in this process. First they read the 86,400
samples of each of sixteen engines and GPUs. Then they read the rollups of these samples.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from sqlalchemy import Engine

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import query  # type: ignore[import-not-found]  # noqa: E402  # found through sys.path

from analysis.range_costs import read_spending  # noqa: E402
from cost.bill import bill  # noqa: E402
from cost.pricefile import load_prices  # noqa: E402
from store.billing.billing_data import read_billing_data  # noqa: E402
from store.database import open_database  # noqa: E402
from store.rollups.bucket_builder import build_marked  # noqa: E402
from store.rollups.marks import begin  # noqa: E402
from store.writer import Writer  # noqa: E402
from telemetry.engines import EngineSample  # noqa: E402
from telemetry.gpus import GpuSample  # noqa: E402
from telemetry.starts import EngineStart  # noqa: E402
from telemetry.window import Window  # noqa: E402

SECOND_NS = 10**9
ROUNDS = 3
ENGINES = query.MODELS * query.REPLICAS_EACH


def sample(replica: int, second: int) -> EngineSample:
    """A sample of an engine that is busy 70 % of the time."""
    return EngineSample(
        replica=f"replica-{replica}",
        engine=0,
        process=replica,
        at_unix_ns=(query.FROM_S + second) * SECOND_NS,
        started_unix_ns=query.FROM_S * SECOND_NS,
        model=f"model-{replica // query.REPLICAS_EACH}",
        busy_s_total=second * 0.7,
        steps_total=second * 40,
        decodes_total=second * 600,
        scheduled_prefill_tokens_total=second * 2_000,
        prefill_attention_total=second * 1e6,
        context_tokens_total=second * 500_000,
        step_model_base_s=0.005,
        step_model_per_prefill_token_s=1e-4,
        step_model_per_prefill_attention_s=1e-9,
        step_model_per_context_token_s=1e-8,
        step_model_per_decode_s=1e-5,
        step_model_error_ratio=0.05,
        running=20,
        waiting=0,
        kv_usage_ratio=0.4,
    )


def gpu(replica: int, second: int) -> GpuSample:
    """A sample of the GPU of this engine."""
    return GpuSample(
        replica=f"replica-{replica}",
        gpu=f"GPU-{replica}",
        at_unix_ns=(query.FROM_S + second) * SECOND_NS,
        model_name="NVIDIA H100 80GB HBM3",
        dram_bandwidth_ratio=0.6,
        power_w=500.0,
        energy_j_total=second * 500.0,
    )


def fill(engine: Engine) -> None:
    """Write the samples of a day, and the devices of the engines."""
    starts = [
        EngineStart(
            replica=f"replica-{replica}",
            engine=0,
            process=replica,
            at_unix_ns=query.FROM_S * SECOND_NS,
            config="c",
            arguments="{}",
            device="NVIDIA H100 80GB HBM3",
            gpus=1,
        )
        for replica in range(ENGINES)
    ]
    with Writer(engine) as writer:
        writer.submit([], [], starts).result(60)
        for replica in range(ENGINES):
            for first in range(0, query.DAY_S, 20_000):
                seconds = range(first, min(first + 20_000, query.DAY_S))
                writer.submit(
                    [],
                    [sample(replica, each) for each in seconds],
                    (),
                    [gpu(replica, each) for each in seconds],
                ).result(300)


QUESTIONS: tuple[tuple[tuple[str, ...], int], ...] = (
    ((), 24),
    (("tenant",), 24),
    (("tenant", "route"), 24),
    ((), 1),
)
PAGES_HOURS = (1, 6, 24)


def answered(engine: Engine) -> dict[str, float]:
    """Median duration of each query in seconds."""
    end = (query.FROM_S + query.DAY_S) * SECOND_NS
    prices = load_prices()

    def a_bill(by: Sequence[str], hours: int) -> None:
        billing_data = read_billing_data(engine, Window(end - hours * 3_600 * SECOND_NS, end), by)
        assert bill(billing_data, prices, by).total is not None

    def page(hours: int) -> None:
        found = read_spending(engine, Window(end - hours * 3_600 * SECOND_NS, end), {}, prices)
        assert found.bill.total is not None

    took = {
        f"{hours} h by {', '.join(by) or 'nothing'}": median_s(partial(a_bill, by, hours))
        for by, hours in QUESTIONS
    }
    return took | {f"the page, {hours} h": median_s(partial(page, hours)) for hours in PAGES_HOURS}


def median_s(ask: Callable[[], None]) -> float:
    """Median duration of ROUNDS calls in seconds."""
    took = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        ask()
        took.append(time.perf_counter() - begun)
    return statistics.median(took)


def size_mb(engine: Engine, file: Path) -> float:
    """Size of the database file in MB."""
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    return file.stat().st_size / 1e6


def main() -> None:
    """Fill the database, run the queries, and print the times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=10_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tailspan.db"
        engine = open_database(f"sqlite:///{file}")
        begin(engine)
        query.fill_day(engine, arguments.requests)
        fill(engine)
        of_rows = answered(engine)
        begun, used = time.perf_counter(), time.process_time()
        before_mb = size_mb(engine, file)
        made = build_marked(engine, query.FROM_S + 3 * query.DAY_S).built
        settled_s, settled_cpu_s = time.perf_counter() - begun, time.process_time() - used
        of_rollups = answered(engine)
        print(f"{'':<26} {'of rows':>9} {'rolled up':>10} {'ratio':>6}")
        for name, before_s in of_rows.items():
            now_s = of_rollups[name]
            print(f"{name:<26} {before_s:>7.2f} s {now_s:>8.2f} s {before_s / now_s:>6.1f}")
        print(
            f"{made:,} buckets of samples made in {settled_s:.1f} s, {settled_cpu_s:.1f} of CPU:"
            f" {settled_cpu_s / made * 1e3:.1f} ms each; {size_mb(engine, file) - before_mb:.1f} MB"
        )
        engine.dispose()


if __name__ == "__main__":
    main()
