"""Measure how fast each database writes and reads requests through the store's code.

    python benchmarks/stores.py [--rows 200000]

SQLite is always measured, PostgreSQL if Debian's package is installed, and ClickHouse if chdb is
installed.
"""

import argparse
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from rig.clickhouse import ClickHouses
from rig.install import ProgramUnavailableError
from rig.postgresql import PostgreSQL
from store.database import open_database
from store.queries import request_table
from store.writer import Writer
from telemetry.requests import Basis, Outcome, RequestTimeline, Source
from telemetry.window import Window

BATCH_ROWS = 5_000
ROUNDS = 3
START_NS = 1_763_634_000 * 10**9
PAGE = ("received_unix_ns", "ttft_s", "tpot_s", "e2e_s", "queue_s", "tenant", "model", "outcome")


def request(number: int) -> RequestTimeline:
    """A request with all fields of an instrumented server."""
    return RequestTimeline(
        trace_id=f"{number * 0x9E3779B97F4A7C15 % 2**128:032x}",
        span_id=f"{number:016x}",
        request_id=f"chatcmpl-{number}",
        received_unix_ns=START_NS + number * 100_000,
        e2e_s=1.5,
        outcome=Outcome.STOP,
        source=Source.INSTRUMENTATION,
        basis=Basis.HTTP,
        frontend_s=0.01,
        queue_s=0.1 + number % 97 / 1000,
        prefill_s=0.2,
        decode_s=1.1,
        delivery_s=0.01,
        prefill_own_s=0.1,
        prefill_others_prefill_s=number % 83 / 1000,
        prefill_others_decode_s=0.01,
        prefill_preempted_s=0.0,
        prefill_stall_s=0.0,
        decode_own_s=0.7,
        decode_others_prefill_s=number % 79 / 1000,
        decode_others_decode_s=0.2,
        decode_preempted_s=0.0,
        decode_stall_s=0.01,
        config="c0ffee12",
        engine=0,
        cached_tokens=number % 50,
        preemptions=0,
        waiting_at_arrival=number % 5,
        running_at_arrival=number % 31,
        kv_usage_at_arrival=number % 71 / 100,
        ttft_s=0.3 + number % 89 / 1000,
        itl_max_s=0.1,
        model="llama",
        route="/v1/chat/completions",
        tenant=f"tenant-{number % 7}",
        replica=f"replica-{number % 4}",
        streamed=True,
        http_status=200,
        prompt_tokens=100 + number % 1000,
        output_tokens=55,
    )


@contextmanager
def urls(kind: str) -> Iterator[str]:
    """Yield the URL of a new database of this kind.

    Raises:
        ProgramUnavailableError: the database is not installed.
        ImportError: the driver is not installed.
    """
    with ExitStack() as stack:
        if kind == "PostgreSQL":
            yield stack.enter_context(PostgreSQL()).url()
            return
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if kind == "ClickHouse":
            import chdb

            assert chdb
            yield ClickHouses(folder).new()
        else:
            yield f"sqlite:///{folder}/tailspan.db"


SIZE = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT pg_total_relation_size('requests')",
    "clickhousedb": "SELECT sum(bytes_on_disk) FROM system.parts"
    " WHERE active AND table = 'requests' AND database = currentDatabase()",
}
"""For each database, the query that returns the size of the requests and their indices in bytes."""


def measure(url: str, rows: int) -> str:
    """Return rows written per second, rows read (as Arrow) per second, and bytes per row."""
    engine = open_database(url)
    batches = [
        [request(number) for number in range(first, first + BATCH_ROWS)]
        for first in range(0, rows, BATCH_ROWS)
    ]
    with Writer(engine) as writer:
        began = time.perf_counter()
        for done in [writer.submit(batch, []) for batch in batches[: len(batches) // 2]]:
            done.result()
        for done in [writer.submit(batch, []) for batch in batches[len(batches) // 2 :]]:
            done.result()
        written = rows / (time.perf_counter() - began)
    read = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        found = request_table(engine, Window(0, 2**63 - 1), columns=PAGE).num_rows
        read.append(found / (time.perf_counter() - began))
        assert found == rows
    with engine.connect() as connection:
        size = connection.exec_driver_sql(SIZE[engine.dialect.name]).scalar_one()
    engine.dispose()
    return f"{written:>12,.0f} {statistics.median(read):>12,.0f} {size / rows:>12,.0f}"


def main() -> None:
    """Print one line per database."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000, help="a multiple of 10,000")
    rows = parser.parse_args().rows
    print(f"{rows:,} requests, 8 columns out")
    print(f"{'':<12} {'rows/s in':>12} {'rows/s out':>12} {'bytes/row':>12}")
    for kind in ("SQLite", "PostgreSQL", "ClickHouse"):
        try:
            with urls(kind) as url:
                print(f"{kind:<12} {measure(url, rows)}", flush=True)
        except (ProgramUnavailableError, ImportError) as reason:
            print(f"{kind:<12} skipped: {reason}")
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB in memory")


if __name__ == "__main__":
    main()
