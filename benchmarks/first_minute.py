"""Measure how soon after `tailspan up --simulate` the explorer shows the incident and its cause.

    python benchmarks/first_minute.py [--rounds 3]

Each round starts Tailspan on an empty SQLite database and checks its state four times per second.
The exit status is 1 if the median time until the cause is shown exceeds its limit.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from sqlalchemy import Engine  # noqa: E402

from rig.ports import free_port  # noqa: E402
from rig.program import Tailspan  # noqa: E402
from store.alerting.incidents import read_overlapping  # noqa: E402
from store.database import open_database  # noqa: E402
from store.queries import newest_request_unix_ns  # noqa: E402
from telemetry.store_errors import StoreError  # noqa: E402
from ui.frame.context import Context  # noqa: E402
from ui.frame.objectives import read_objectives  # noqa: E402
from ui.frame.pages import BY_KEY, FIRST  # noqa: E402
from ui.frame.view import RANGES_S, View  # noqa: E402
from ui.views.overview import page  # noqa: E402

BAR_S = 10.0
GIVE_UP_S = 180.0
LOOK_S = 0.25
EVENTS = ("explorer answers", "first requests visible", "incident in the store", "cause known")
PROCESSES = {
    "serving.process": "explorer",
    "simulate --endpoint": "simulator",
    "message_reader": "span reader",
}
"""The processes to measure: a part of the command line, and the name to print."""


def main() -> int:
    """Print the seconds until each event, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print(f"load of the last minute at the start: {os.getloadavg()[0]:.1f}", flush=True)
    seen: dict[str, list[float]] = {event: [] for event in EVENTS}
    used: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="first-minute-") as folder:
            reached, spent = measure(Path(folder))
        for event, seconds in reached.items():
            seen[event].append(seconds)
        for process, seconds in spent.items():
            used.setdefault(process, []).append(seconds)
        line = "  ".join(f"{event} {seconds:.1f} s" for event, seconds in reached.items())
        print(f"{line}  (load {os.getloadavg()[0]:.1f})", flush=True)
    print(f"\n| {'since the start':<24} | median of {rounds} | limit |\n|---|---|---|")
    for event, times in seen.items():
        bar = f"{BAR_S:.0f} s" if event == EVENTS[-1] else ""
        print(f"| {event:<24} | {statistics.median(times):.1f} s | {bar} |")
    for process, times in used.items():
        print(f"| {f'CPU until then: {process}':<24} | {statistics.median(times):.1f} s | |")
    return int(statistics.median(seen[EVENTS[-1]]) > BAR_S)


def measure(folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Start Tailspan once, and measure.

    Returns: the seconds until each event, and the CPU seconds of each process until the last event.

    Raises:
        TimeoutError: an event did not happen within the time limit.
    """
    explorer, url = free_port(), f"sqlite:///{folder / 'tailspan.db'}"
    words = ("up", "--simulate", f"--database={url}", f"--explorer-port={explorer}")
    began = time.monotonic()
    product = Tailspan(folder, *words)
    with ExitStack() as cleanup:
        cleanup.callback(product.stop)
        looks: dict[str, Callable[[], bool]] = {
            EVENTS[0]: lambda: answers(f"http://127.0.0.1:{explorer}/_stcore/health"),
        }
        reached: dict[str, float] = {}
        wait_for(looks, reached, began)
        engine = open_database(url, create=False)
        cleanup.callback(engine.dispose)
        looks |= {
            EVENTS[1]: lambda: has_recent_requests(engine),
            EVENTS[2]: lambda: has_incident(engine),
        }
        wait_for(looks, reached, began)
        looks[EVENTS[3]] = lambda: names_a_cause(engine)
        wait_for(looks, reached, began)
        return reached, cpu_s(product.process.pid)


def wait_for(looks: dict[str, Callable[[], bool]], reached: dict[str, float], began: float) -> None:
    """Record when each event happens, and return when all events have happened."""
    while missing := [event for event in looks if event not in reached]:
        for event in missing:
            if looks[event]():
                reached[event] = time.monotonic() - began
        if time.monotonic() - began > GIVE_UP_S:
            raise TimeoutError(f"{missing[0]}: not within {GIVE_UP_S:.0f} s")
        if len(missing) > len([each for each in missing if each in reached]):
            time.sleep(LOOK_S)


def answers(url: str) -> bool:
    """Return whether the explorer responds."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def has_recent_requests(engine: Engine) -> bool:
    """Return whether the Overview page shows requests in its default range."""
    newest_ns = newest_request_unix_ns(engine)
    return newest_ns is not None and newest_ns > time.time_ns() - RANGES_S["15m"] * 10**9


def has_incident(engine: Engine) -> bool:
    """Return whether an incident of severity page is open."""
    now_s = int(time.time())
    found = read_overlapping(engine, now_s - 3_600, now_s)
    return any(row.severity == "page" and row.ended_unix_s is None for row in found)


def names_a_cause(engine: Engine) -> bool:
    """Return whether the Overview page would show the cause of the incident."""
    view = View()
    context = Context(engine, BY_KEY[FIRST], view, time.time_ns(), UTC, read_objectives())
    try:
        return page.read(context).cause is not None
    except StoreError:
        return False


def cpu_s(pid: int) -> dict[str, float]:
    """The CPU time of a process and its descendants, for each process name."""
    found = {"collector, evaluator": _own_s(pid)}
    for child in _descendants(pid):
        words = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
        name = next((name for part, name in PROCESSES.items() if part in words), "others")
        found[name] = found.get(name, 0.0) + _own_s(child)
    return {**found, "all": sum(found.values())}


def _descendants(pid: int) -> list[int]:
    children = [
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text().split()
    ]
    return children + [each for child in children for each in _descendants(child)]


def _own_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
