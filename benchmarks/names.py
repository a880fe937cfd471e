"""Measure the cost of rollups with a large fleet's label values, and with hostile label values.

    python benchmarks/names.py [--replicas 5000] [--tenants 1000] [--minutes 6]

Each replica serves one of 20 models, and each tenant uses two models. The benchmark checks that the
count of each label value that an answer names includes all requests with this value. In the last
measurement, every label of every request has a new value. The exit status is 1 if a figure is above
its limit.
"""

import argparse
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import query  # type: ignore[import-not-found]  # noqa: E402  # found through sys.path

from analysis.stats import StatsQuestion, answer_stats  # noqa: E402
from store.connections import writing  # noqa: E402
from store.database import open_database  # noqa: E402
from store.rollups.label_sets import LabelSets  # noqa: E402
from store.rollups.label_storage import (  # noqa: E402
    label_sets_since,
    load_names,
    store_label_sets,
)
from store.rollups.marks import begin  # noqa: E402
from store.rollups.request_rollups import AT_ONCE, buckets_of  # noqa: E402
from store.rollups.storage import store_buckets  # noqa: E402
from store.rollups.tables import LABELS, MINUTE_S  # noqa: E402
from telemetry.window import Window  # noqa: E402

MODELS, MODELS_EACH = 20, 2
RATES = (12_000, 120_000)
"""Requests per minute."""
MINUTE_MAX_S = 6.0
"""Maximum CPU seconds to build the rollups of one minute: a tenth of a minute."""
ANSWER_MAX_S = 2.0
HOSTILE_MAX_MB = 300.0
HOSTILE_REQUESTS = 60_000


def minute(rng: np.random.Generator, requests: int, replicas: int, tenants: int) -> pa.Table:
    """Requests of one minute."""
    table = query.minute(rng, requests)
    tenant = rng.integers(0, tenants, requests)
    model = (tenant + rng.integers(0, MODELS_EACH, requests)) % MODELS
    replica = model + MODELS * rng.integers(0, replicas // MODELS, requests)
    labels = {
        "model": query.names("model", MODELS)[model],
        "replica": query.names("replica", replicas)[replica],
        "region": query.names("region", 5)[replica % 5],
        "tenant": query.names("tenant", tenants)[tenant],
    }
    for name, values in labels.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    return table


def line(what: str, figure: float, unit: str, most: float) -> bool:
    """Print a figure beside its limit. Return whether the figure is above the limit."""
    missed = figure > most
    print(
        f"{what:<56} {figure:>8,.2f} {unit:<3} limit {most:,.1f} {unit}{'  MISSED' * missed}",
        flush=True,
    )
    return missed


def fleet(engine: Engine, requests: int, replicas: int, tenants: int, minutes: int) -> int:
    """Build the rollups of some minutes, and compute statistics from them.

    Return the number of failed checks.
    """
    begin(engine)
    rng = np.random.default_rng(3)
    built_s = loaded_s = 0.0
    shown = []
    for number in range(minutes):
        start = query.FROM_S + number * MINUTE_S
        table = minute(rng, requests, replicas, tenants)
        shown.append(table.select(["tenant", "replica"]))
        begun = time.process_time()
        # Load the label sets again, as `tailspan up` does at each start.
        label_sets = LabelSets(label_sets_since(engine, query.FROM_S - 86_400), load_names(engine))
        loaded_s += time.process_time() - begun
        buckets, _ = buckets_of(table, label_sets, start)
        with writing(engine) as connection:
            store_label_sets(connection, label_sets)
            store_buckets(connection, MINUTE_S, start, buckets)
        built_s += time.process_time() - begun
    with engine.connect() as connection:
        size = connection.exec_driver_sql(
            "SELECT SUM(pgsize) FROM dbstat WHERE name LIKE 'rollup%'"
        ).scalar_one()
    print(f"\n{requests:,} requests a minute, {replicas:,} replicas, {tenants:,} tenants")
    print(
        f"  {size / minutes / 1e6:.1f} MB a minute in SQLite;"
        f" {built_s / minutes / requests * 1e6:.1f} µs of CPU a request;"
        f" {loaded_s / minutes:.2f} s a minute to load {len(label_sets.known):,} label sets"
    )
    missed = int(line("  CPU to build a minute", built_s / minutes, "s", MINUTE_MAX_S))
    every = pa.concat_tables(shown)
    window = Window(query.FROM_S * 10**9, (query.FROM_S + minutes * MINUTE_S) * 10**9)
    for label in ("tenant", "replica"):
        question = StatsQuestion(window, by=(label,), precision="sketch")
        begun = time.process_time()
        answer = answer_stats(engine, question)
        took_s = time.process_time() - begun
        missed += line(f"  CPU of statistics by {label}", took_s, "s", ANSWER_MAX_S)
        counts = every.group_by(label).aggregate([([], "count_all")]).to_pydict()
        truth = dict(zip(counts[label], counts["count_all"], strict=True))
        found = {group[label]: group["requests"] for group in answer.groups}
        print(f"    {len(found):,} named, all complete: {found == truth}")
        missed += found != truth or bool(answer.hidden)
    return missed


def hostile() -> bool:
    """Give every label of every request a new value.

    Return whether the memory is above its limit.
    """
    label_sets = LabelSets()
    tracemalloc.start()
    begun = time.process_time()
    for hour in range(3):
        table = query.minute(np.random.default_rng(hour), min(AT_ONCE, HOSTILE_REQUESTS))
        values = pa.array([f"{hour}-{n:064}" for n in range(table.num_rows)])
        for name in set(LABELS) - {"outcome", "streamed"}:
            table = table.set_column(table.schema.get_field_index(name), name, values)
        buckets_of(table, label_sets, query.FROM_S + hour * 3_600)
        label_sets.stored()
        del table, values
    took_s = time.process_time() - begun
    held_mb = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    print(f"\nevery label of {3 * HOSTILE_REQUESTS:,} requests has a new value")
    print(
        f"  {took_s / 3 / HOSTILE_REQUESTS * 1e6:.0f} µs of CPU a request, while measuring memory"
    )
    return line("  memory of names and label sets", held_mb, "MB", HOSTILE_MAX_MB)


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--replicas", type=int, default=5_000)
    parser.add_argument("--tenants", type=int, default=1_000)
    parser.add_argument("--minutes", type=int, default=6)
    given = parser.parse_args()
    missed = 0
    for requests in RATES:
        with tempfile.TemporaryDirectory() as folder:
            engine = open_database(f"sqlite:///{folder}/names.db")
            missed += fleet(engine, requests, given.replicas, given.tenants, given.minutes)
            engine.dispose()
    missed += hostile()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
