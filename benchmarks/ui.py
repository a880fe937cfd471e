"""Measure how long the explorer's pages take in a browser, with a million requests in the range.

    python benchmarks/ui.py [--requests 1000000] [--rounds 5] [--page overview]

Chromium opens each page over a day of requests in SQLite. Each round has a new profile and a
different minute. Then Chromium opens the same address again, to measure the time for a second
viewer. "answer" is the time until the page's first sentence, and "all" is the time until its charts
are drawn. Durations come from the page's own clock, because a measurement from outside waits until
the page is idle. The CPU time covers the explorer and its reader processes. The first line of the
output is about the start of the explorer: how long it reads the last day, and how long the Root
cause page takes if it is opened before the reading has ended.
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
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from _ui_day import fill  # type: ignore[import-not-found]  # noqa: E402  # found through sys.path

from server.explorer_launch import launch  # noqa: E402
from store.database import open_database  # noqa: E402
from store.queries import request_table  # noqa: E402
from telemetry.window import Window  # noqa: E402
from ui.frame.pages import FIRST, PAGES  # noqa: E402

FIRST_PAINT_S, INTERACTION_S = 2.0, 1.0
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run")
WIDE = {"width": 1280, "height": 900}
RANGED = [page.key for page in PAGES if page.of_a_range]
"""The pages that have a time range."""

LOOKING = """
window.looking = {
    whole: () => {
        const app = document.querySelector('[data-testid="stApp"]');
        const drawn = [...document.querySelectorAll('[class*="st-key-chart_"]')]
            .filter(each => each.checkVisibility())
            .every(each => each.querySelector('.main-svg'));
        const stale = '[data-testid="stElementContainer"][data-stale="true"]';
        return app?.dataset.testScriptState === 'notRunning' && drawn
            && document.querySelector('.headline') && !document.querySelector(stale);
    },
    // Resolves one frame after `until` becomes true.
    painted: until => new Promise(resolve => {
        const look = () => requestAnimationFrame(() => until()
            ? requestAnimationFrame(() => resolve(performance.timeOrigin + performance.now()))
            : look());
        look();
    }),
    after: (event, words) => {
        window.looking.done = new Promise(resolve => document.addEventListener(event, () => {
            const began = performance.timeOrigin + performance.now();
            const there = () => words.every(each => location.search.includes(each));
            const until = () => there() && window.looking.whole();
            window.looking.painted(until).then(ended => resolve((ended - began) / 1e3));
        }, {once: true, capture: true}));
    },
};
window.looking.answer = window.looking.painted(() => document.querySelector('.headline'));
"""


class Cpu:
    """CPU time of a process and its child processes, from /proc."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __call__(self) -> float:
        """The CPU seconds used so far."""
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
    """Run the explorer on a database. Yield its address and its CPU time."""
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


def opened(tab: Any, address: str) -> tuple[float, float]:
    """The seconds until the first sentence is painted, and until all charts are drawn."""
    began = time.time()
    tab.goto(address, wait_until="commit")
    answered = tab.evaluate("() => window.looking.answer")
    whole = tab.evaluate("() => window.looking.painted(window.looking.whole)")
    assert not tab.locator('[data-testid="stException"]').count(), "the page shows an exception"
    return answered / 1e3 - began, whole / 1e3 - began


def pressed(tab: Any) -> float:
    """The seconds from selecting a range until all charts are drawn."""
    tab.evaluate("() => window.looking.after('click', ['last=6h'])")
    tab.locator(".st-key-range").get_by_text("6h", exact=True).click()
    return float(tab.evaluate("() => window.looking.done"))


def dragged(tab: Any) -> float:
    """Return the seconds from dragging over a part of the heatmap until this part is explained."""
    area = tab.locator("[class*='st-key-chart_shape'] .nsewdrag").first.bounding_box()
    height = area["y"] + area["height"] / 2
    tab.mouse.move(area["x"] + area["width"] * 0.8, height)
    tab.mouse.down()
    tab.mouse.move(area["x"] + area["width"] * 0.95, height + 20, steps=10)
    tab.mouse.up()
    explain = tab.get_by_role("button", name="Explain it")
    explain.wait_for()
    tab.evaluate("() => window.looking.after('click', ['from=', 'to='])")
    explain.click()
    return float(tab.evaluate("() => window.looking.done"))


@dataclass
class RoundTimes:
    """The wall-clock seconds and the CPU seconds of each round."""

    by_clock: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def take(self, seconds: float, cpu: float) -> None:
        """Add a round."""
        self.by_clock.append(seconds)
        self.cpu.append(cpu)

    def summary(self, bar_s: float) -> str:
        """Median, share of the limit, minimum, maximum, and median CPU time as text."""
        took = statistics.median(self.by_clock)
        return (
            f"{took:5.2f} s ({took / bar_s:.2f} of {bar_s:.0f} s; {min(self.by_clock):.2f} to"
            f" {max(self.by_clock):.2f}; CPU {statistics.median(self.cpu):.2f})"
        )


def measure(
    browser: Any,
    cpu: Cpu,
    page: str,
    link: Callable[[int], str],
    actions: dict[str, Callable[[Any], float]],
    rounds: int,
) -> None:
    """Measure a page. Print a line for opening the page, and a line for each action."""
    answers, whole, again = RoundTimes(), [], []
    takes = {name: RoundTimes() for name in actions}
    for each in range(rounds):
        for name in actions or [""]:
            context = browser.new_context(viewport=WIDE)
            context.add_init_script(LOOKING)
            tab = context.new_page()
            tab.set_default_timeout(120_000)
            before = cpu()
            answered, shown = opened(tab, link(each))
            # Only the first opening is measured, because the page's data is cached afterwards.
            if name == next(iter(actions), ""):
                answers.take(answered, cpu() - before)
                whole.append(shown)
            before = cpu()
            if name in actions:
                takes[name].take(actions[name](tab), cpu() - before)
            again.append(opened(tab, link(each))[0])
            context.close()
    lines = [f"{name} {times.summary(INTERACTION_S)}" for name, times in takes.items()]
    print(
        f"{page:<10} answer {answers.summary(FIRST_PAINT_S)}, "
        f"all {statistics.median(whole):5.2f} s; "
        + "".join(f"{each}; " for each in lines)
        + f"a second viewer {statistics.median(again):.2f} s",
        flush=True,
    )


def at_rest(cpu: Cpu) -> None:
    """Wait until the explorer is idle."""
    before = cpu()
    while True:
        time.sleep(1)
        if cpu() - before < 0.05:
            return
        before = cpu()


def started(url: str, folder: Path, browser: Any, end_s: int) -> None:
    """Print the line of an explorer that has just started."""
    with explorer(url, folder) as (address, cpu):
        context = browser.new_context(viewport=WIDE)
        context.add_init_script(LOOKING)
        tab = context.new_page()
        tab.set_default_timeout(120_000)
        answered, _ = opened(tab, f"{address}/?page=root-cause&last=24h&to={end_s}")
        cold = cpu()
        context.close()
    with explorer(url, folder) as (_, cpu):
        began = time.perf_counter()
        at_rest(cpu)
        took = time.perf_counter() - began - 1
        print(
            f"root-cause, opened immediately after a start: answer {answered:.2f} s (CPU since the "
            f"start {cold:.2f}); after a start, reading the last day takes {took:.0f} s (CPU "
            f"{cpu():.2f})",
            flush=True,
        )


def requests_at(url: str, end_s: int, number: int) -> list[str]:
    """Return ids of requests from different minutes."""
    engine = open_database(url, create=False)
    names = []
    for each in range(1, number + 1):
        at_ns = (end_s - 7_200 - 600 * each) * 10**9
        found = request_table(
            engine,
            Window(at_ns, at_ns + 10**9),
            columns=["received_unix_ns", "trace_id", "span_id"],
            limit=1,
        ).to_pylist()[0]
        names.append(f"{found['received_unix_ns']}-{found['trace_id']}-{found['span_id']}")
    engine.dispose()
    return names


def main() -> None:
    """Print one line per page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--page", choices=[page.key for page in PAGES], action="append")
    parser.add_argument(
        "--database",
        type=Path,
        help="file in which the database is stored, and from which it is reused",
    )
    given = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("skipped: there is no Chromium: apt-get install chromium")
        return
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        file = given.database or Path(scratch) / "ui.db"
        url = f"sqlite:///{file.absolute()}"
        end_s = int(time.time()) // 60 * 60 - 120
        if file.exists():
            end_s = int(file.stat().st_mtime) // 60 * 60 - 120
        else:
            began = time.perf_counter()
            fill(url, given.requests, end_s)
            os.utime(file, (end_s + 120, end_s + 120))
            took = time.perf_counter() - began
            print(f"{given.requests:,} requests of a day, made in {took:.0f} s")
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        started(url, Path(scratch), browser, end_s)
        names = requests_at(url, end_s, given.rounds)
        with explorer(url, Path(scratch)) as (address, cpu):
            at_rest(cpu)

            def link(page: str, each: int) -> str:
                if page == "request":
                    return f"{address}/?page=request&request={names[each]}"
                name = "" if page == FIRST else f"page={page}&"
                return f"{address}/?{name}last=24h&to={end_s - 60 * each}"

            for page in given.page or [each.key for each in PAGES]:
                actions: dict[str, Callable[[Any], float]] = {}
                if page in RANGED:
                    actions["another range"] = pressed
                if page == "root-cause":
                    actions["a dragged range"] = dragged
                measure(browser, cpu, page, partial(link, page), actions, given.rounds)
        browser.close()


if __name__ == "__main__":
    main()
