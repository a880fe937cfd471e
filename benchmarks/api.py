"""Measure the response times of the JSON API, and by how much it slows down ingestion.

    python benchmarks/api.py [--rounds 9] [--seconds 20]

Tailspan runs without the explorer on a SQLite database with an hour of a simulated fleet.

- Time: `GET /api/v1/stats` for this hour, `tailspan stats --format json`, and a SELECT of the same
  columns, measured in rotation.
- Cost: the number of spans per second that are committed while zero, one or two explanations of the
  hour are computed at the same time.
"""

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import ingest  # type: ignore[import-not-found]  # noqa: E402  # found through sys.path

from rig.program import Tailspan, tailspan_command  # noqa: E402
from simulator.dataset import run as simulate  # noqa: E402
from simulator.fault import SimulatedFault  # noqa: E402
from simulator.fleet_config import FleetConfig  # noqa: E402
from simulator.workload import Workload  # noqa: E402
from store.database import open_database  # noqa: E402
from store.writer import Writer  # noqa: E402

HOUR_S: Final = 3_600
FLOOD_S: Final = 600
RATE_PER_S: Final = 4.0
COLUMNS: Final = "ttft_s, decode_s, itl_max_s, e2e_s, queue_s, outcome, output_tokens, source"
"""The columns that `stats` reads."""


class Running(NamedTuple):
    """A running Tailspan."""

    program: Tailspan
    database: Path
    api: str
    """Address of `/api/v1`."""


def main() -> None:
    """Run the measurements and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each time")
    parser.add_argument("--seconds", type=float, default=20, help="length of each load")
    given = parser.parse_args()
    print(f"load of the last minute at the start: {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tailspan-api-") as name, tailspan(Path(name)) as up:
        end_s = int(time.time())
        requests = store_hour(up.database, end_s)
        print(f"one hour of a simulated fleet: {requests:,} requests\n")
        times(up, end_s, given.rounds)
        costs(up, end_s, given.seconds)


@contextmanager
def tailspan(folder: Path) -> Iterator[Running]:
    """Run `tailspan up` without the explorer."""
    database = folder / "tailspan.db"
    words = ("--no-explorer", "--api-timeout=10m", f"--database=sqlite:///{database}")
    with Tailspan(folder, "up", *words) as program:
        program.is_up()
        yield Running(program, database, f"{program.address('metrics')}/api/v1")


def store_hour(database: Path, end_s: int) -> int:
    """Store an hour of a fleet in which one tenant sends bursts in the last ten minutes. Return the
    number of requests."""
    found = simulate(
        FleetConfig(
            workload=Workload(rate_per_s=RATE_PER_S),
            faults=(SimulatedFault(cause="tenant_flood", start_s=float(HOUR_S - FLOOD_S)),),
            started_unix_ns=(end_s - HOUR_S) * 10**9,
            duration_s=float(HOUR_S),
        )
    )
    engine = open_database(f"sqlite:///{database}")
    with Writer(engine) as writer:
        writer.submit(found.requests, found.samples, found.starts, found.gpus).result(300)
    engine.dispose()
    return len(found.requests)


def times(up: Running, end_s: int, rounds: int) -> None:
    """Print the response times of the API, the command and the SELECT, and the ratios of these
    times."""
    parameters = {"from": str(end_s - HOUR_S), "to": str(end_s)}
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    words = [f"--{key}={value}" for key, value in parameters.items()]
    words.append(f"--database=sqlite:///{up.database}")
    ways: dict[str, Callable[[], object]] = {
        "GET /api/v1/stats": lambda: get(f"{up.api}/stats?{query}"),
        "tailspan stats": lambda: subprocess.run(
            [*tailspan_command("stats"), *words, "--format=json"],
            check=True,
            capture_output=True,
            cwd=up.database.parent,
        ),
        "SELECT": lambda: select(up.database, end_s),
    }
    began = time.perf_counter()
    get(f"{up.api}/stats?{query}")
    print(f"first answer of the API, which starts a process: {time.perf_counter() - began:.2f} s")
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, ask in ways.items():
            began = time.perf_counter()
            ask()
            taken[way].append(time.perf_counter() - began)
    medians = {way: statistics.median(each) for way, each in taken.items()}
    least = medians["SELECT"]
    print(f"\n| way | median of {rounds} | range | relative to SELECT |\n|---|---|---|---|")
    for way, each in taken.items():
        spread = f"{min(each) * 1e3:.0f} to {max(each) * 1e3:.0f} ms"
        print(f"| {way} | {medians[way] * 1e3:.0f} ms | {spread} | {medians[way] / least:.1f} |")


def select(database: Path, end_s: int) -> list[tuple[object, ...]]:
    """Read the same requests with SQL."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        found = connection.execute(
            f"SELECT {COLUMNS} FROM requests WHERE received_unix_ns >= ? AND received_unix_ns < ?",
            ((end_s - HOUR_S) * 10**9, end_s * 10**9),
        ).fetchall()
    connection.close()
    return found


def costs(up: Running, end_s: int, seconds: float) -> None:
    """Print the spans per second that are committed without questions, and with questions."""
    query = f"last=10m&to={end_s}&metric=ttft"
    rates: dict[int, list[float]] = {0: [], 1: [], 2: []}
    answered = dict.fromkeys(rates, 0)
    for turn in (0, 1, 2, 2, 1, 0):
        with asking(f"{up.api}/explain?{query}", turn) as answers:
            before = ingest.rows(up.database, "requests")
            port, pid = up.program.port("http"), up.program.process.pid
            report, _ = ingest.send("http", port, seconds, pid)
            rows = ingest.rows(up.database, "requests") - before
            rates[turn].append(rows / report["seconds"])
            answered[turn] += len(answers)
    least = statistics.mean(rates[0])
    print("\n| questions at a time | spans/s | relative to none | answers |\n|---|---|---|---|")
    for turn, each in rates.items():
        both = ", ".join(f"{rate:,.0f}" for rate in each)
        mean = statistics.mean(each)
        print(f"| {turn} | {mean:,.0f} ({both}) | {mean / least:.2f} | {answered[turn]} |")


@contextmanager
def asking(url: str, at_once: int) -> Iterator[list[float]]:
    """Ask a question repeatedly on several connections at the same time. Yield the response
    times."""
    ending, took = threading.Event(), list[float]()

    def ask() -> None:
        while not ending.is_set():
            began = time.perf_counter()
            get(url)
            took.append(time.perf_counter() - began)

    threads = [threading.Thread(target=ask) for _ in range(at_once)]
    for each in threads:
        each.start()
    try:
        yield took
    finally:
        ending.set()
        for each in threads:
            each.join()


def get(url: str) -> bytes:
    """The response to a question."""
    with urllib.request.urlopen(url, timeout=600) as response:
        body: bytes = response.read()
    return body


if __name__ == "__main__":
    main()
