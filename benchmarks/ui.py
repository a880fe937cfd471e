"""How long the explorer's pages take in a browser, with a million requests in the window.

    python benchmarks/ui.py [--requests 1000000] [--rounds 5] [--page hurt]

A day of requests goes into SQLite by the product's own code, rolled up and counted as `tailspan
up` leaves them; then Debian's Chromium opens each page. Every round looks at another minute, so
that nothing of it has been read before; then it is the same address once more, as a second viewer
opens it. CPU is that of the explorer's process and those it reads through, for the answer: what
is left where other work shares the machine.
"""

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import stores  # type: ignore[import-not-found]  # noqa: E402  # found by the line above

from alerts.counting import keep_tally  # noqa: E402
from alerts.objectives import counted  # noqa: E402
from store import dialects  # noqa: E402
from store.database import open_database  # noqa: E402
from store.reaching import writing  # noqa: E402
from store.rollup_marks import begin, mark_minutes  # noqa: E402
from store.rollups import settle  # noqa: E402
from store.schema import REQUESTS, SAMPLES  # noqa: E402
from telemetry.engines import EngineSample  # noqa: E402
from telemetry.request_rows import row_of  # noqa: E402
from telemetry.requests import DECODE_PARTS, PREFILL_PARTS, Outcome  # noqa: E402
from ui.in_force import in_force  # noqa: E402
from ui.launch import launch  # noqa: E402
from ui.pages import FIRST, PAGES  # noqa: E402

DAY_S = 86_400
FIRST_PAINT_S, INTERACTION_S = 2.0, 1.0
BATCH_ROWS = 5_000
SAMPLE_EVERY_S = 5
REPLICAS = 4
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run")
READY = '[data-testid="stApp"][data-test-script-state="notRunning"]'
ANSWER = ".headline"
RANGED = [page.key for page in PAGES if page.of_a_range]
"""The pages of which another range can be chosen."""


def fill(url: str, number: int, end_s: int) -> None:
    """A day of requests until an instant, slower in its last hour, and the engines' samples."""
    rng = np.random.default_rng(7)
    engine = open_database(url)
    begin(engine)
    parts: dict[str, Any] = dict.fromkeys((*PREFILL_PARTS, *DECODE_PARTS), 0.0)
    step_ns = DAY_S * 10**9 // number
    first_ns = (end_s - DAY_S) * 10**9
    for first in range(0, number, BATCH_ROWS):
        many = min(BATCH_ROWS, number - first)
        at_ns = first_ns + (first + np.arange(many)) * step_ns
        late = at_ns > (end_s - 3_600) * 10**9
        queue = rng.lognormal(-4.5, 1.0, many) + late * rng.gamma(2.0, 0.3, many)
        prefill = 0.03 + rng.lognormal(-2.6, 0.6, many)
        output = np.clip(rng.geometric(1 / 120, many), 2, 1_000)
        decode = 0.012 * rng.lognormal(0, 0.2, many) * (output - 1)
        fate = rng.random(many)
        rows = [
            replace(
                stores.request(first + i),
                received_unix_ns=int(at_ns[i]),
                outcome=Outcome.ERROR if fate[i] < 0.002 else Outcome.STOP,
                **{**parts, "prefill_own_s": float(prefill[i]), "decode_own_s": float(decode[i])},
                frontend_s=0.004,
                queue_s=float(queue[i]),
                prefill_s=float(prefill[i]),
                decode_s=float(decode[i]),
                delivery_s=0.002,
                ttft_s=float(0.004 + queue[i] + prefill[i]),
                itl_max_s=float(0.04 + late[i] * 0.05),
                e2e_s=float(0.006 + queue[i] + prefill[i] + decode[i]),
                output_tokens=int(output[i]),
            )
            for i in range(many)
        ]
        values = [row_of(row) for row in rows]
        with writing(engine) as connection:
            dialects.of(engine).inserting(engine, REQUESTS)(connection, values)
            mark_minutes(connection, values)
    _samples(engine, end_s)
    settle(engine, end_s)
    for goodput in counted(in_force().objectives).values():
        keep_tally(engine, goodput, end_s)
    engine.dispose()


def _samples(engine: Engine, end_s: int) -> None:
    from store.rows import sample_values

    rng = np.random.default_rng(8)
    for start in range(end_s - DAY_S, end_s, 3_600):
        values = [
            sample_values(
                EngineSample(
                    replica=f"replica-{replica}",
                    engine=0,
                    process=1,
                    at_unix_ns=at * 10**9,
                    started_unix_ns=(end_s - DAY_S) * 10**9,
                    waiting=int(rng.poisson(3)),
                    running=int(rng.poisson(18)),
                    kv_usage_ratio=float(rng.uniform(0.4, 0.8)),
                )
            )
            for at in range(start, start + 3_600, SAMPLE_EVERY_S)
            for replica in range(REPLICAS)
        ]
        with writing(engine) as connection:
            dialects.of(engine).inserting(engine, SAMPLES)(connection, values)


class Cpu:
    """The processor time of a process and its children, from /proc."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __call__(self) -> float:
        """Seconds so far."""
        return self._of(self._pid) / os.sysconf("SC_CLK_TCK")

    def _of(self, pid: int) -> int:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            threads = [each.name for each in Path(f"/proc/{pid}/task").iterdir()]
        except OSError:
            return 0
        for thread in threads:
            if thread != str(pid):
                with suppress(OSError):
                    children += Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
        return sum(map(int, fields[11:15])) + sum(self._of(int(each)) for each in children)


@contextmanager
def explorer(url: str, folder: Path) -> Iterator[tuple[str, Cpu]]:
    """The explorer on a database: its address, and what it takes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    wanted = launch(port=port, database_url=url)
    with (folder / "explorer.log").open("wb") as log:
        process = subprocess.Popen(
            wanted.command, env={**os.environ, **wanted.environment}, stdout=log, stderr=log
        )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5):
                    break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        yield address, Cpu(process.pid)
    finally:
        process.terminate()
        process.wait(20)


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def opened(tab: Any, address: str) -> tuple[float, float]:
    """Seconds until the answer stands there, and until everything does."""
    began = time.perf_counter()
    tab.goto(address, wait_until="commit")
    tab.locator(ANSWER).first.wait_for()
    answered = time.perf_counter() - began
    _settled(tab)
    return answered, time.perf_counter() - began


def _settled(tab: Any) -> None:
    tab.wait_for_selector(READY)
    # Charts are drawn after the script has ended.
    tab.wait_for_function(
        "() => [...document.querySelectorAll('.stPlotlyChart')]"
        ".every(each => each.querySelector('.main-svg'))"
    )
    assert not tab.locator('[data-testid="stException"]').count(), "the page shows an exception"


def pressed(tab: Any) -> float:
    """Seconds from choosing a range until all of it is shown: what every page has."""
    stale = '[data-testid="stElementContainer"][data-stale="true"]'

    def press() -> None:
        tab.locator(".st-key-range").get_by_text("6h", exact=True).click()
        tab.wait_for_url("**last=6h**")
        _settled(tab)
        tab.wait_for_function(f"() => !document.querySelector('{stale}')")

    return timed(press)


def measure(address: str, cpu: Cpu, browser: Any, page: str, end_s: int, rounds: int) -> None:
    """A line for a page."""
    answers, whole, choices, again, took, chose = [], [], [], [], [], []
    for each in range(rounds):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        tab = context.new_page()
        tab.set_default_timeout(120_000)
        name = "" if page == FIRST else f"page={page}&"
        link = f"{address}/?{name}last=24h&to={end_s - 60 * each}"
        before = cpu()
        answered, shown = opened(tab, link)
        took.append(cpu() - before)
        answers.append(answered)
        whole.append(shown)
        before = cpu()
        choices.append(pressed(tab))
        chose.append(cpu() - before)
        again.append(opened(tab, link)[0])
        context.close()
    _line(page, answers, whole, choices, again, took, chose)


def _line(
    page: str,
    answers: list[float],
    whole: list[float],
    choices: list[float],
    again: list[float],
    took: list[float],
    chose: list[float],
) -> None:
    answer, choice = statistics.median(answers), statistics.median(choices)
    print(
        f"{page:<10} answer {answer:5.2f} s ({answer / FIRST_PAINT_S:.2f} of {FIRST_PAINT_S:.0f} s;"
        f" {min(answers):.2f} to {max(answers):.2f}; CPU {statistics.median(took):.2f}),"
        f" all {statistics.median(whole):5.2f} s; another range {choice:5.2f} s"
        f" ({choice / INTERACTION_S:.2f} of {INTERACTION_S:.0f} s; {min(choices):.2f} to"
        f" {max(choices):.2f}; CPU {statistics.median(chose):.2f});"
        f" a second viewer {statistics.median(again):.2f} s",
        flush=True,
    )


def main() -> None:
    """Print a line for each page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--page", choices=RANGED, action="append")
    parser.add_argument("--database", type=Path, help="keep it there, and use it again")
    given = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("skipped: there is no Chromium: apt-get install chromium")
        return
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        file = given.database or Path(scratch) / "ui.db"
        url = f"sqlite:///{file}"
        end_s = int(time.time()) // 60 * 60 - 120
        if file.exists():
            end_s = int(file.stat().st_mtime) // 60 * 60 - 120
        else:
            took = timed(lambda: fill(url, given.requests, end_s))
            os.utime(file, (end_s + 120, end_s + 120))
            print(f"{given.requests:,} requests of a day, made in {took:.0f} s")
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        with explorer(url, Path(scratch)) as (address, cpu):
            warm = browser.new_page()
            warm.goto(address)
            warm.locator("h1").first.wait_for()
            for page in given.page or RANGED:
                measure(address, cpu, browser, page, end_s, given.rounds)
        browser.close()


if __name__ == "__main__":
    main()
