"""Measure several collectors on one database: failures, and the CPU time per span.

    python benchmarks/collectors.py [--seed 1] [--seconds 100] [--telemetry clickhouse]

Three collectors receive requests while the error budgets of six objectives burn. Every 6 to 12 s, a
collector is killed and started again, or stopped for 25 s. The benchmark counts the webhook
messages, and the acknowledged requests that are missing or stored twice. It also measures the
takeover of leases.

Then one, two and three collectors receive the same 4,096 spans per second. The CPU time includes
all processes and PostgreSQL. For comparison, the same collectors run on separate databases. Those
collectors share only the machine. Each of them finds less of its data in the processor's caches.

By default, one PostgreSQL database has the telemetry and the state. With --telemetry, the state is
in a separate database. With ClickHouse, only the failures are measured, because its engine
(`rig/clickhouse_server.py`) runs one statement at a time.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))


from benchmarks._collector_failures import RunOutcome, run
from benchmarks._collectors import running
from benchmarks._ingest_sender import SPANS, SpanBatch, by_http
from benchmarks.ingest import cpu_s, spent_s
from rig.clickhouse_server import clickhouse_server
from rig.http_servers import running_http_server
from rig.postgresql import PostgreSQL

SPANS_PER_S = 4_096
WARM_UP_S, MEASURED_S = 5, 30


def main() -> None:
    """Print the two tables."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds",
        type=float,
        default=100,
        help="duration of the failures; 0 measures only the CPU time",
    )
    parser.add_argument(
        "--telemetry",
        choices=["postgresql", "clickhouse"],
        help="the database of the telemetry, with the state in a separate database",
    )
    given = parser.parse_args()
    with PostgreSQL() as server, tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        if given.seconds:
            dsn, url = _schema(server, "failures")
            urls = [url] if given.telemetry is None else [_schema(server, "rows")[1], url]
            if given.telemetry == "clickhouse":
                urls[0] = servers.enter_context(clickhouse_server(_folder(folder, "clickhouse")))
            at = _folder(folder, "failures")
            out = run(at, dsn, *urls, seed=given.seed, seconds=given.seconds)
            _show_failures(out, given.seed)
        if given.telemetry == "clickhouse":
            return
        print(
            f"\n{'':<12}{'one database':^36}{'a database each':^28}\n"
            f"{'collectors':<12}{'spans/s':>10}{'µs CPU/span':>13}{'PostgreSQL':>13}"
            f"{'µs CPU/span':>15}{'PostgreSQL':>13}  one / each (goal 1.00)"
        )
        for number in (1, 2, 3):
            found = {}
            for databases in {1, number}:
                at = _folder(folder, f"cpu{number}-{databases}")
                found[databases] = _cpu(server, at, number, databases, given.telemetry is not None)
            rate, own_us, database_us = found[1]
            _, each_us, each_database_us = found[number]
            share = (own_us + database_us) / (each_us + each_database_us)
            print(
                f"{number:<12}{rate:>10,.0f}{own_us + database_us:>13.0f}{database_us:>13.0f}"
                f"{each_us + each_database_us:>15.0f}{each_database_us:>13.0f}  × {share:.2f}",
                flush=True,
            )


def _show_failures(out: RunOutcome, seed: int) -> None:
    firing, resolved = (
        sum(key.endswith(f"/{transition}") for key in out.messages)
        for transition in ("firing", "resolved")
    )
    repeated = sum(out.messages.values()) - len(out.messages)
    slowest_s = max(out.takeovers_s, default=float("nan"))
    print(f"seed {seed}: {out.kills} kills, {out.stops} stops of three collectors")
    rows = [
        ("burns", f"{out.burns}", ""),
        ("messages about a start", f"{firing}", f"{out.burns}"),
        ("messages about an end", f"{resolved}", f"{out.burns}"),
        ("messages repeated with the same key", f"{repeated}", "0"),
        ("acknowledged requests", f"{out.acknowledged:,}", ""),
        ("lost", f"{out.lost}", "0"),
        ("stored twice", f"{out.doubled}", "0"),
        ("leases taken over", f"{len(out.takeovers_s)}", ""),
        ("slowest takeover, s", f"{slowest_s:.1f}", "30"),
    ]
    print(f"{'':<38}{'measured':>10}{'goal':>6}")
    for name, value, bar in rows:
        print(f"{name:<38}{value:>10}{bar:>6}", flush=True)


def _cpu(
    server: PostgreSQL, folder: Path, number: int, databases: int, state_apart: bool
) -> tuple[float, float, float]:
    with ExitStack() as stack:
        webhook = stack.enter_context(running_http_server())
        hook = f"{webhook.url}/hook"
        fleets = []
        for each in range(databases):
            name = f"{folder.name}-{each}".replace("-", "_")
            url = _schema(server, name)[1]
            state_url = _schema(server, f"{name}_state")[1] if state_apart else None
            at = _folder(str(folder), str(each))
            few = running(at, url, ["chat"], hook, number // databases, state_url)
            fleets.append(stack.enter_context(few))
        ports = [port for fleet in fleets for port in fleet.ports]
        programs = [program for fleet in fleets for program in fleet.programs]
        sent, stop = [0], threading.Event()
        thread = threading.Thread(target=_send, args=(ports, sent, stop))
        thread.start()
        try:
            time.sleep(WARM_UP_S)
            before = [cpu_s(each.process.pid) for each in programs]
            database_s, spans, began_s = _database_cpu_s(server), sent[0], time.monotonic()
            time.sleep(MEASURED_S)
            after = [cpu_s(each.process.pid) for each in programs]
            database_s = _database_cpu_s(server) - database_s
            spans, took_s = sent[0] - spans, time.monotonic() - began_s
        finally:
            stop.set()
            thread.join()
    own_s = sum(sum(spent_s(a, b).values()) for a, b in zip(before, after, strict=True))
    return spans / took_s, own_s / spans * 1e6, database_s / spans * 1e6


def _send(ports: list[int], sent: list[int], stop: threading.Event) -> None:
    chance = random.Random(1)
    batches = [SpanBatch(chance, number % 4) for number in range(8)]
    ways = [by_http(port) for port in ports]
    began_s = time.monotonic()
    for turn in range(10**9):
        if stop.wait(max(0.0, began_s + turn * SPANS / SPANS_PER_S - time.monotonic())):
            return
        if ways[turn % len(ways)](batches[turn % len(batches)].fresh()):
            sent[0] += SPANS


def _database_cpu_s(server: PostgreSQL) -> float:
    while True:
        try:
            return sum(cpu_s(server.pid).values())
        except FileNotFoundError:  # the connection's process has ended
            continue


def _schema(server: PostgreSQL, name: str) -> tuple[str, str]:
    url = server.new_url(name)
    return url.replace("+psycopg", ""), url


def _folder(under: str, name: str) -> Path:
    made = Path(under) / name
    made.mkdir()
    return made


if __name__ == "__main__":
    main()
