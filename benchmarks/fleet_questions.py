"""Measure how fast questions about a day of a large fleet are answered from rollups.

    python benchmarks/fleet_questions.py [--database PostgreSQL|ClickHouse|SQLite] [--max-gb 6]

The fleet has 1,000 GPUs, 500 engines and 172.8 million requests a day. A few minutes are generated,
and each minute of the day is a copy of one of them. Copies are enough, because queries read only
rollups, and the rollups of a copy are as large as those of a different minute. The benchmark writes
no rows of requests. Each question is asked once before the measurement. The exit status is 1 if a
figure is above its limit.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import ingest  # type: ignore[import-not-found]  # noqa: E402
import query  # type: ignore[import-not-found]  # noqa: E402  # found through sys.path
import stores  # type: ignore[import-not-found]  # noqa: E402

from analysis.over_time import rolled, trends  # noqa: E402
from analysis.range_costs import read_spending  # noqa: E402
from analysis.stats import StatsQuestion, answer_stats  # noqa: E402
from cost.pricefile import load_prices  # noqa: E402
from store.connections import writing  # noqa: E402
from store.database import open_database  # noqa: E402
from store.rollups.bucket_builder import build_marked  # noqa: E402
from store.rollups.buckets import RollupBucket, nearest_ranks  # noqa: E402
from store.rollups.counter_spans import CounterSpans  # noqa: E402
from store.rollups.label_sets import LabelSets  # noqa: E402
from store.rollups.label_storage import store_label_sets  # noqa: E402
from store.rollups.marks import SAMPLE_ROLLUPS, begin, mark  # noqa: E402
from store.rollups.queries import rollups  # noqa: E402
from store.rollups.request_rollups import buckets_of  # noqa: E402
from store.rollups.sample_rollups import SampleRollups  # noqa: E402
from store.rollups.sample_tables import DEVICES, ENGINES, SampleKind  # noqa: E402
from store.rollups.storage import store_buckets  # noqa: E402
from store.rollups.tables import DAY_S, HOUR_S, MINUTE_S  # noqa: E402
from telemetry.window import Window  # noqa: E402

ENGINES_NUMBER, GPUS_EACH = 500, 2
TENANTS, REGIONS = 40, 4
REQUESTS_PER_MINUTE = 2_000 * MINUTE_S
DRAWN_MINUTES = 6
P99_MAX_S, PAGE_MAX_S = 0.5, 2.0
ROUNDS = 3
SECOND_NS = 10**9
DAY = Window(query.FROM_S * SECOND_NS, (query.FROM_S + DAY_S) * SECOND_NS)
SIZE: Mapping[str, str] = {
    **stores.SIZE,
    "postgresql": "SELECT pg_database_size(current_database())",
    "clickhousedb": "SELECT sum(bytes_on_disk) FROM system.parts"
    " WHERE active AND database = currentDatabase()",
}
"""Queries that return the size of the whole database in bytes."""


def minute(rng: np.random.Generator) -> pa.Table:
    """Requests of one minute. Each replica has one model, region and main tenant."""
    table = query.minute(rng, REQUESTS_PER_MINUTE)
    replica = rng.integers(0, ENGINES_NUMBER, REQUESTS_PER_MINUTE)
    others = rng.random(REQUESTS_PER_MINUTE) < 0.1
    tenant = np.where(others, rng.integers(0, TENANTS, REQUESTS_PER_MINUTE), replica % TENANTS)
    labels = {
        "model": query.names("model", query.MODELS)[replica % query.MODELS],
        "replica": query.names("replica", ENGINES_NUMBER)[replica],
        "region": query.names("region", REGIONS)[replica % REGIONS],
        "tenant": query.names("tenant", TENANTS)[tenant],
    }
    for name, values in labels.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    return table


def fill(engine: Engine, max_bytes: float) -> float:
    """Write the rollups of the day. Return their size in bytes.

    Raises:
        SystemExit: the rollups take more than `max_bytes`.
    """
    rng = np.random.default_rng(11)
    label_sets = LabelSets()
    drawn = [buckets_of(minute(rng), label_sets, query.FROM_S)[0] for _ in range(DRAWN_MINUTES)]
    with writing(engine) as connection:
        store_label_sets(connection, label_sets)
    samples = SampleRollups(engine)
    for number, start in enumerate(range(query.FROM_S, query.FROM_S + DAY_S, MINUTE_S)):
        buckets: dict[bool, RollupBucket] = drawn[number % DRAWN_MINUTES]
        with writing(engine) as connection:
            store_buckets(connection, MINUTE_S, start, buckets)
            samples.store(connection, MINUTE_S, start, [(k, spans(k, start)) for k in KINDS])
        if start % HOUR_S == 0:
            with writing(engine) as connection:
                mark(connection, HOUR_S, [start])
                mark(connection, HOUR_S, [start], SAMPLE_ROLLUPS)
            if (used := size(engine)) > max_bytes:
                raise SystemExit(f"{used / 1e9:.1f} GB are more than --max-gb allows")
    build_marked(engine, query.FROM_S + 2 * DAY_S)
    return size(engine)


KINDS = (ENGINES, DEVICES)


def spans(kind: SampleKind, start_unix_s: int) -> CounterSpans:
    """The counters of one minute of every engine or GPU. Each is busy for 70 % of the time."""
    number = ENGINES_NUMBER * (GPUS_EACH if kind is DEVICES else 1)
    owners = THINGS[kind.rollups.name]
    ones = np.ones(number)
    second = start_unix_s - query.FROM_S
    return CounterSpans(
        owners,
        [ABOUT[kind.rollups.name]] * number,
        np.arange(number),
        np.zeros(number, bool),
        np.full(number, start_unix_s),
        np.full(number, start_unix_s * SECOND_NS),
        np.full(number, (start_unix_s + MINUTE_S - 1) * SECOND_NS),
        dict.fromkeys(kind.totals, 0.7 * second * ones),
        dict.fromkeys(kind.totals, 0.7 * (second + MINUTE_S - 1) * ones),
        dict.fromkeys(kind.means, 0.001 * ones),
    )


def _thing(kind: SampleKind, number: int) -> tuple[object, ...]:
    replica = number // (GPUS_EACH if kind is DEVICES else 1)
    known = {
        "replica": f"replica-{replica}",
        "gpu": f"GPU-{number}",
        "engine": 0,
        "process": replica,
        "model": f"model-{replica % query.MODELS}",
        "started_unix_ns": query.FROM_S * SECOND_NS,
    }
    return tuple(known.get(name) for name in kind.key)


THINGS = {
    kind.rollups.name: [
        _thing(kind, number)
        for number in range(ENGINES_NUMBER * (GPUS_EACH if kind is DEVICES else 1))
    ]
    for kind in KINDS
}
ABOUT = {ENGINES.rollups.name: "region-0", DEVICES.rollups.name: "NVIDIA H100 80GB HBM3"}


def size(engine: Engine) -> float:
    """The size of the database in bytes."""
    with engine.connect() as connection:
        return float(connection.exec_driver_sql(SIZE[engine.dialect.name]).scalar_one())


def server_cpu_s(engine: Engine) -> float:
    """The CPU seconds of PostgreSQL for this program's connections, or 0 for other databases."""
    if engine.dialect.name != "postgresql":
        return 0.0
    ours = "SELECT pid FROM pg_stat_activity WHERE application_name = 'tailspan'"
    with engine.connect() as connection:
        pids = list(connection.exec_driver_sql(ours).scalars())
    return float(sum(ingest.process_cpu_s(pid) for pid in pids))


def p99(engine: Engine, by: tuple[str, ...], equals: Mapping[str, str]) -> None:
    """Ask for P99 of TTFT by minute."""
    rolled = rollups(engine, DAY, by=by, equals=equals, step_s=MINUTE_S)
    assert rolled is not None
    found = rolled.quantiles("ttft_s", nearest_ranks((0.99,)))
    assert found.number.size >= DAY_S // MINUTE_S


def questions(engine: Engine) -> dict[str, tuple[Callable[[], object], float]]:
    """Return each question with its limit in seconds."""
    prices = load_prices()
    stats = [
        (by, StatsQuestion(DAY, by=by, precision="sketch")) for by in (("tenant",), ("replica",))
    ]
    return {
        "P99 of TTFT by minute": (partial(p99, engine, (), {}), P99_MAX_S),
        "P99 of TTFT by minute and model": (partial(p99, engine, ("model",), {}), P99_MAX_S),
        "P99 of TTFT by minute, of one tenant": (
            partial(p99, engine, (), {"tenant": "tenant-3"}),
            P99_MAX_S,
        ),
        "Overview: latencies and traffic": (lambda: trends.read(engine, DAY, {}), PAGE_MAX_S),
        "Overview of one tenant": (
            lambda: trends.read(engine, DAY, {"tenant": "tenant-3"}),
            PAGE_MAX_S,
        ),
        "Requests: percentiles and phases": (
            lambda: rolled.read_rolled(engine, DAY, {}, "ttft_s", ("ttft_s",)),
            PAGE_MAX_S,
        ),
        "Cost": (lambda: read_spending(engine, DAY, {}, prices), PAGE_MAX_S),
        **{
            f"statistics by {by[0]}": (partial(answer_stats, engine, question), PAGE_MAX_S)
            for by, question in stats
        },
    }


def main() -> int:
    """Fill the database, ask the questions, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--database", choices=stores_of(), default="ClickHouse")
    parser.add_argument("--max-gb", type=float, default=6.0)
    given = parser.parse_args()
    missed = 0
    with stores.urls(given.database) as url:
        engine = open_database(url)
        begin(engine)
        began = time.perf_counter()
        used = fill(engine, given.max_gb * 1e9)
        print(
            f"{given.database}: {DAY_S // MINUTE_S * REQUESTS_PER_MINUTE:,} requests in"
            f" {used / 1e9:.2f} GB of rollups, written in {time.perf_counter() - began:.0f} s",
            flush=True,
        )
        for name, (ask, max_s) in questions(engine).items():
            ask()
            began, server_began = time.process_time(), server_cpu_s(engine)
            took_s, min_s = query.best(ask, ROUNDS)
            cpu_s = (time.process_time() - began) / ROUNDS
            server_s = (server_cpu_s(engine) - server_began) / ROUNDS
            missed += took_s > max_s
            print(
                f"{name:<38} {took_s:>6.2f} s (least {min_s:.2f}, CPU {cpu_s:.2f},"
                f" CPU of the server {server_s:.2f})"
                f"   limit {max_s:.1f} s"
                f"{'   MISSED' if took_s > max_s else ''}",
                flush=True,
            )
        engine.dispose()
    return 1 if missed else 0


def stores_of() -> tuple[str, ...]:
    """The databases to choose from."""
    return ("PostgreSQL", "ClickHouse", "SQLite")


if __name__ == "__main__":
    sys.exit(main())
