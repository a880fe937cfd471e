"""Measure the duration of queries: percentiles of ten million requests, reading a million rows.

    python benchmarks/query.py [--requests 10000000] [--rows 1000000]

The rollups of a day are written to SQLite. The rows of this day are not written, because they would
take 6 GB. A million other requests are written and read as rows, and the benchmark computes their
rollups.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import stores  # type: ignore[import-not-found]  # noqa: E402  # found through sys.path

from store import dialects  # noqa: E402
from store.columns.request_columns import IDS, request_columns, slow_because  # noqa: E402
from store.connections import writing  # noqa: E402
from store.database import open_database  # noqa: E402
from store.queries import REQUEST_COLUMNS, request_table  # noqa: E402
from store.rollups.bucket_builder import build_marked  # noqa: E402
from store.rollups.buckets import nearest_ranks  # noqa: E402
from store.rollups.label_sets import LabelSets  # noqa: E402
from store.rollups.label_storage import store_label_sets  # noqa: E402
from store.rollups.marks import REQUEST_ROLLUPS, begin, mark, mark_minutes  # noqa: E402
from store.rollups.queries import rollups  # noqa: E402
from store.rollups.request_rollups import buckets_of  # noqa: E402
from store.rollups.storage import store_buckets  # noqa: E402
from store.rollups.tables import HOUR_S, MINUTE_S, QUANTITIES  # noqa: E402
from store.schema import REQUESTS  # noqa: E402
from telemetry.request_rows import row_of  # noqa: E402
from telemetry.requests import DECODE_PARTS, PREFILL_PARTS, RequestTimeline  # noqa: E402
from telemetry.window import Window  # noqa: E402

DAY_S = 86_400
FROM_S = 1_763_596_800
SHARES = (0.5, 0.9, 0.95, 0.99, 0.999)
ROUNDS = 7
BATCH_ROWS = 5_000
MAX_S = 0.2
ROWS_MAX_S = 1.0
MANY = 35
MODELS, REPLICAS_EACH, TENANTS = 4, 4, 10


def minute(rng: np.random.Generator, requests: int) -> pa.Table:
    """Return the requests of one minute: four models, sixteen replicas, and ten tenants with
    different amounts of traffic."""
    model = rng.choice(MODELS, requests, p=(0.5, 0.3, 0.15, 0.05))
    replica = model * REPLICAS_EACH + rng.integers(0, REPLICAS_EACH, requests)
    share = 1 / np.arange(1, TENANTS + 1)
    tenant = rng.choice(TENANTS, requests, p=share / share.sum())
    queue_s = rng.lognormal(-4, 1.2, requests)
    prefill_s = rng.lognormal(-2.3, 0.7, requests)
    output = np.clip(rng.geometric(1 / 150, requests), 2, 2048)
    tpot_s = 0.012 * rng.lognormal(0, 0.25, requests)
    decode_s = tpot_s * (output - 1)
    columns = {
        "model": names("model", MODELS)[model],
        "lora": None,
        "route": np.where(rng.random(requests) < 0.9, "/v1/chat/completions", "/v1/completions"),
        "tenant": names("tenant", TENANTS)[tenant],
        "region": "eu-west-1",
        "replica": names("replica", MODELS * REPLICAS_EACH)[replica],
        "outcome": rng.choice(
            ("stop", "length", "abort", "error"), requests, p=(0.8, 0.17, 0.02, 0.01)
        ),
        "streamed": rng.random(requests) < 0.9,
        "source": "instrumentation",
        **dict.fromkeys(QUANTITIES, 0.001),
        "queue_s": queue_s,
        "prefill_s": prefill_s,
        "decode_s": decode_s,
        "ttft_s": queue_s + prefill_s + 0.004,
        "tpot_s": tpot_s,
        "itl_max_s": tpot_s * 4,
        "e2e_s": queue_s + prefill_s + decode_s,
        "output_tokens": output,
    }
    arrays = {
        name: pa.array(values) if isinstance(values, np.ndarray) else pa.repeat(values, requests)
        for name, values in columns.items()
        if values is not None
    }
    return pa.table({**arrays, "lora": pa.nulls(requests, pa.string())})


def names(what: str, number: int) -> "np.ndarray[tuple[int], np.dtype[np.str_]]":
    """Return as many label values as `number`: `what-0`, `what-1` and so on."""
    return np.array([f"{what}-{each}" for each in range(number)])


def fill_day(engine: Engine, requests: int) -> None:
    """Write a day's rollups by minute and by hour."""
    rng = np.random.default_rng(7)
    label_sets = LabelSets()
    each = -(-requests // (DAY_S // MINUTE_S))
    for start in range(FROM_S, FROM_S + DAY_S, MINUTE_S):
        buckets, _ = buckets_of(minute(rng, each), label_sets, start)
        with writing(engine) as connection:
            store_label_sets(connection, label_sets)
            store_buckets(connection, MINUTE_S, start, buckets)
            mark(connection, HOUR_S, [start // HOUR_S * HOUR_S])
        label_sets.stored()
    build_marked(engine, FROM_S + 2 * DAY_S)


def best(work: Callable[[], object], rounds: int = ROUNDS) -> tuple[float, float]:
    """The median and the minimum duration in seconds."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took), min(took)


def line(what: str, took: tuple[float, float], max_s: float) -> None:
    """Print the duration of a query and its limit."""
    print(
        f"{what:<66} {took[0] * 1e3:>7.0f} ms (least {took[1] * 1e3:.0f})"
        f"   limit {max_s * 1e3:,.0f} ms: {took[0] / max_s:.2f} of it",
        flush=True,
    )


def ask_day(engine: Engine, by: tuple[str, ...], step_s: int | None) -> Callable[[], object]:
    """A query for P50 to P99.9 of the day's TTFT."""
    window = Window(FROM_S * 10**9, (FROM_S + DAY_S) * 10**9)

    def ask() -> object:
        found = rollups(engine, window, by=by, step_s=step_s)
        assert found is not None
        return found.quantiles("ttft_s", nearest_ranks(SHARES))

    return ask


def day(requests: int, folder: Path) -> None:
    """Write a day of rollups, and run the queries on them."""
    engine = open_database(f"sqlite:///{folder}/day.db")
    begin(engine)
    began = time.process_time()
    fill_day(engine, requests)
    size_mb = sum(file.stat().st_size for file in folder.glob("day.db*")) / 1e6
    print(
        f"a day of {requests:,} requests ({requests // 1440:,} a minute), drawn and rolled up in"
        f" {time.process_time() - began:.0f} s of CPU: {size_mb:,.0f} MB"
    )
    line(
        "P50 to P99.9 of TTFT by minute and model, 24 h",
        best(ask_day(engine, ("model",), 60)),
        MAX_S,
    )
    line("the same by minute and tenant", best(ask_day(engine, ("tenant",), 60)), MAX_S)
    line("the same by model, over the whole day", best(ask_day(engine, ("model",), None)), MAX_S)
    engine.dispose()


def rows(number: int, folder: Path) -> None:
    """Write rows and marks (notes of the rollups to compute), compute the rollups, and read the
    rows."""
    engine = open_database(f"sqlite:///{folder}/rows.db")
    begin(engine)
    took_s = 0.0
    marks_s = 0.0
    for first in range(0, number, BATCH_ROWS):
        batch = [each_row(n) for n in range(first, min(number, first + BATCH_ROWS))]
        began = time.process_time()
        values = [row_of(row) for row in batch]
        with writing(engine) as connection:
            dialects.of(engine).inserting(engine, REQUESTS)(connection, values)
            marking = time.process_time()
            mark_minutes(connection, REQUEST_ROLLUPS, values)
            marks_s += time.process_time() - marking
        took_s += time.process_time() - began
    began = time.process_time()
    made = build_marked(engine, FROM_S + 30 * DAY_S).built
    rolled_s = time.process_time() - began
    each = 1e6 / number
    print(
        f"CPU per request: {took_s * each:.1f} µs to write, including {marks_s * each:.2f} µs "
        f"for marks; {rolled_s * each:.1f} µs to roll up later "
        f"({(marks_s + rolled_s) / took_s:.0%} of writing), {made:,} rollups"
    )
    ever = Window(0, 2**63 - 1)
    page = tuple(stores.PAGE)
    many = tuple(dict.fromkeys([*page, *(c for c in REQUEST_COLUMNS if c not in IDS)]))[:MANY]
    print(f"rows are read by the reader process: {slow_because(engine) or 'yes'}")
    engine.dispose()  # this also ends the reader process
    began = time.perf_counter()
    request_columns(engine, ever, page)
    print(f"the first query, which starts the reader process: {time.perf_counter() - began:.2f} s")
    for columns in (page, many):
        took = best(partial(request_columns, engine, ever, columns), rounds=5)
        line(f"{number:,} rows of {len(columns)} columns as Arrow", took, ROWS_MAX_S)
    took = best(lambda: request_table(engine, ever, columns=page), rounds=3)
    line("the same 8, row by row (request_table)", took, ROWS_MAX_S)
    engine.dispose()


_PARTS: dict[str, Any] = dict.fromkeys((*PREFILL_PARTS, *DECODE_PARTS), 0.1)


def each_row(number: int) -> RequestTimeline:
    """A request with every part of its phases. A hundred requests arrive per second."""
    row: RequestTimeline = stores.request(number)
    return replace(
        row,
        received_unix_ns=FROM_S * 10**9 + number * 10_000_000,
        **_PARTS,
    )


def main() -> None:
    """Run both measurements."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        day(given.requests, Path(folder))
        rows(given.rows, Path(folder))


if __name__ == "__main__":
    main()
