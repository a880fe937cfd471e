"""Measure how fast PostgreSQL deletes the old rows of a day: by dropping a partition, and in
batches of rows.

    python benchmarks/retention.py [--rows 200000]

The benchmark writes a day of requests, three weeks old, into two databases. It drops the day in one
database. In the other database, it deletes the same rows in batches, without the usual pauses.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Engine

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import stores  # type: ignore[import-not-found]  # noqa: E402  # found through sys.path

from rig.postgresql import PostgreSQL  # noqa: E402
from store import dialects  # noqa: E402
from store.database import open_database  # noqa: E402
from store.dialects.postgresql_days import DAY_NS  # noqa: E402
from store.retention import BATCH_ROWS, PAUSE_S, _one_batch  # noqa: E402
from store.schema import REQUESTS  # noqa: E402
from store.writer import Writer  # noqa: E402

TODAY = time.time_ns() // DAY_NS
BEFORE_NS = (TODAY - 7) * DAY_NS
WRITTEN_AT_ONCE = 5_000


@contextmanager
def database(server: PostgreSQL) -> Iterator[Engine]:
    """Yield a new database."""
    engine = open_database(server.new_url())
    yield engine
    engine.dispose()


def write(engine: Engine, day: int, rows: int) -> float:
    """Write requests of one day. Return the rows per second of CPU time of this process."""
    took_s = 0.0
    with Writer(engine) as writer:
        for first in range(0, rows, WRITTEN_AT_ONCE):
            batch = [
                replace(stores.request(number), received_unix_ns=day * DAY_NS + number * 100_000)
                for number in range(first, first + WRITTEN_AT_ONCE)
            ]
            began = time.process_time()
            writer.submit(batch, []).result(60)
            took_s += time.process_time() - began
    return rows / took_s


def delete_in_batches(engine: Engine) -> None:
    """Delete the old rows in batches, without pauses."""
    instant = REQUESTS.c.received_unix_ns
    while _one_batch(engine, REQUESTS, instant, BEFORE_NS, BATCH_ROWS):
        pass


def took(work: Callable[[], object]) -> float:
    """Return the duration in seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Print the durations."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000, help="a multiple of 5,000")
    rows = parser.parse_args().rows
    with PostgreSQL() as server:
        with database(server) as engine:
            rate = write(engine, TODAY - 21, rows)
            print(f"{rows:,} requests of a day, written with {rate:,.0f} rows per CPU second")
            write(engine, TODAY, rows)
            drop = dialects.of(engine).drop_days
            drop_s = took(lambda: drop(engine, REQUESTS, BEFORE_NS))
            print(f"the day is dropped in {drop_s * 1e3:,.0f} ms")
        with database(server) as engine:
            write(engine, TODAY - 21, rows)
            write(engine, TODAY, rows)
            batch_s = took(lambda: delete_in_batches(engine))
            pauses_s = -(-rows // BATCH_ROWS) * PAUSE_S
            print(f"deleted in batches in {batch_s:,.1f} s, and {pauses_s:,.1f} s of pauses")


if __name__ == "__main__":
    main()
