"""Compare the CPU time of the plugin and of vLLM's own tracing in the processes of one server.

    python benchmarks/overhead_profile.py [--engines 2] [--pieces 20] [--seconds 15]

One real server has the plugin and native tracing. In `overhead.py`, differences between servers
hide small costs. The API servers and the engine cores are measured:

- The CPU times of the plugin's threads and of OpenTelemetry's export thread are read from their
  clocks.
- py-spy samples the Python stacks of the main threads. A sample counts for the package of its
  innermost frame. Frames of the standard library and of OpenTelemetry count for their caller.
  Waiting threads are left out. Consecutive samples with the same stack and line count once, because
  the thread waited for a core. A part's CPU time is its share of the samples, multiplied by the
  thread's CPU time.

Not counted: gRPC's own threads, which both exporters share, and the trace headers that native
tracing adds to each message between the processes. The intervals are bootstraps over the pieces.
Needs py-spy: pip install py-spy.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from itertools import cycle, groupby
from pathlib import Path
from shutil import which
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.overhead import (
    MeasuredServer,
    calls_of,
    interval,
    load,
    several_engines,
    sink_process,
    start,
)
from rig import load as load_client
from rig import serve
from rig.install import ensure
from rig.load import Call

RATE_HZ = 200
REQUESTS = 60
"""The number of requests that are sent again and again."""
PLUGIN, NATIVE, REST = "the plugin", "native tracing", "the rest"
API_SERVER, ENGINE_CORE = "API servers", "engine cores"
THREADS = {"tailspan-": PLUGIN, "Otel": NATIVE}
"""The beginnings of the names of threads."""
HOST_PACKAGES = ("/vllm/", "/fastapi/", "/starlette/", "/uvicorn/")
WAITS = re.compile(r"(^|\.)(wait|_blocking|select|poll) \(")
"""The innermost frames of threads that wait. py-spy reports some of these threads as active."""
SHOWN = 15
"""The number of functions that are printed."""

Place = tuple[str, str, str]
"""To what CPU time is assigned: a kind of process, a part of the server, and a function or
thread."""


def owner(frames: list[str]) -> tuple[str, str]:
    """Return the part of the server to which a stack belongs, and the frame that shows this.

    Args:
        frames: the frames as "function (file)", the innermost last.
    """
    for frame in reversed(frames):
        if "/tailspan_vllm/" in frame:
            return PLUGIN, frame
        if "/vllm/tracing" in frame or frame.startswith("do_tracing "):
            return NATIVE, frame
        if any(package in frame for package in HOST_PACKAGES):
            return REST, frame
    return REST, frames[-1]


def py_spy() -> str:
    """The path of py-spy."""
    program = which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        raise SystemExit("py-spy is not installed; install it: pip install py-spy")
    return program


class Process:
    """A process that runs the plugin."""

    def __init__(self, number: int, kind: str) -> None:
        self.number = number
        self.kind = kind
        self.threads: dict[int, str] = {}
        """The threads of both tracers: thread id of the operating system → name."""

    def read_threads(self) -> None:
        """Read the names of the threads."""
        command = [py_spy(), "dump", "--pid", str(self.number)]
        shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        names = dict(re.findall(r'^Thread (\d+) \([^)]*\): "(.*)"', shown, re.MULTILINE))
        self.threads = {
            int(number): name for number, name in names.items() if name.startswith((*THREADS,))
        }

    def cpu_s(self) -> dict[int, float]:
        """The CPU seconds of the main thread and of the tracers' threads."""
        used: dict[int, float] = {}
        for thread in (self.number, *self.threads):
            with suppress(OSError):  # the thread has ended
                text = Path(f"/proc/{self.number}/task/{thread}/schedstat").read_text()
                used[thread] = int(text.split()[0]) / 1e9
        return used


def main_samples(recorded: dict[str, Any], process: int) -> Counter[tuple[str, str]]:
    """Count the samples of a process' main thread by part and function.

    Args:
        recorded: in the format of speedscope, which has each thread's stacks in order of time.
    """
    names = [f"{each['name']} ({each['file']})" for each in recorded["shared"]["frames"]]
    found: Counter[tuple[str, str]] = Counter()
    for thread in recorded["profiles"]:
        if f"Thread {process} " not in thread["name"]:
            continue
        for stack, _ in groupby(thread["samples"]):
            frames = [names[index] for index in stack]
            if frames and not WAITS.search(frames[-1]):
                found[owner(frames)] += 1
    return found


def piece_of(processes: list[Process], seconds: int, folder: Path) -> Counter[Place]:
    """Sample all processes for some seconds. Return the CPU seconds of each `Place`."""
    before = [process.cpu_s() for process in processes]
    running = []
    for process in processes:
        command = [
            *(py_spy(), "record", "--format", "speedscope", "--rate", str(RATE_HZ)),
            *("--full-filenames", "--duration", str(seconds)),
            *("--output", str(folder / str(process.number)), "--pid", str(process.number)),
        ]
        recording = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        running.append(recording)
    for recording in running:
        recording.wait()
    piece: Counter[Place] = Counter()
    for process, then in zip(processes, before, strict=True):
        used = {thread: now - then.get(thread, now) for thread, now in process.cpu_s().items()}
        for thread, name in process.threads.items():
            part = next(part for begin, part in THREADS.items() if name.startswith(begin))
            piece[process.kind, part, f"thread {name}"] += used.get(thread, 0.0)  # type: ignore[assignment]
        file = folder / str(process.number)
        if not file.exists():  # a process without any sample leaves no file
            continue
        samples = main_samples(json.loads(file.read_text()), process.number)
        file.unlink()
        each_s = used[process.number] / max(1, samples.total())
        for (part, function), count in samples.items():
            piece[process.kind, part, function] += count * each_s  # type: ignore[assignment]
    return piece


def processes_of(server: MeasuredServer) -> list[Process]:
    """The API servers and engine cores, without the server's helper processes."""
    found = [Process(number, API_SERVER) for number in serve.front_ends(server.process)]
    for process in found:
        process.read_threads()
    cores = [Process(number, ENGINE_CORE) for number in serve.engine_cores(server.process)]
    return [process for process in found if process.threads] + cores


def main() -> None:
    """Measure and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--pieces", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=15, help="duration of each piece")
    parser.add_argument("--tokens", type=int, default=32, help="output tokens per request")
    parser.add_argument("--concurrency", type=int, default=8)
    given = parser.parse_args()
    ensure()
    calls = calls_of(random.Random(1), REQUESTS, given.tokens, {})
    stop = threading.Event()
    ended: list[int] = []
    """The status of each request."""

    def send(mine: list[Call]) -> None:
        for call in cycle(mine):
            if stop.is_set():
                return
            ended.append(load_client.send(server.port, call).status or 0)

    with sink_process() as endpoint, tempfile.TemporaryDirectory() as folder:
        tracing = ["--otlp-traces-endpoint", endpoint]
        server = start("tailspan", endpoint, [], [*tracing, *several_engines(given.engines)])
        try:
            load(server, calls, given.concurrency)  # warm up
            processes = processes_of(server)
            senders = [
                threading.Thread(target=send, args=(calls[first :: given.concurrency],))
                for first in range(given.concurrency)
            ]
            for sender in senders:
                sender.start()
            began_s = time.monotonic()
            try:
                pieces = [
                    piece_of(processes, given.seconds, Path(folder)) for _ in range(given.pieces)
                ]
            finally:
                requests, took_s = len(ended), time.monotonic() - began_s
                stop.set()
                for sender in senders:
                    sender.join()
        finally:
            serve.stop(server.process)
    if set(ended) != {200}:
        raise SystemExit("the server failed a request")
    report(pieces, requests, took_s)


def report(pieces: list[Counter[Place]], requests: int, took_s: float) -> None:
    """Print the CPU times per request, the ratios with their confidence intervals, and the most
    expensive functions."""
    every = Counter[Place]()
    for piece in pieces:
        every.update(piece)
    print(f"{requests:,} requests, {requests / took_s:.1f}/s; µs of CPU per request:")
    for kind in (API_SERVER, ENGINE_CORE):
        print(f"  {kind}: {1e6 * _sum(every, kinds=(kind,)) / requests:,.0f} in all")
        for part in (PLUGIN, NATIVE):
            in_threads = 1e6 * _sum(every, part, (kind,), "thread ") / requests
            in_all = 1e6 * _sum(every, part, (kind,)) / requests
            print(f"    {part}: {in_all - in_threads:.0f}, and {in_threads:.0f} in its threads")
    for kinds in ((API_SERVER,), (API_SERVER, ENGINE_CORE)):
        columns = [[_sum(piece, part, kinds) for piece in pieces] for part in (PLUGIN, NATIVE)]
        low, high = interval(columns, _ratio)
        ratio = f"{_ratio(columns):.2f} [{low:.2f}, {high:.2f}]"
        print(f"{PLUGIN} / {NATIVE}, {' and '.join(kinds)}: {ratio} (goal 0.50)")
    for part in (PLUGIN, NATIVE):
        print(f"\nµs per request of {part} by function:")
        mine = Counter({place: used_s for place, used_s in every.items() if place[1] == part})
        for (kind, _, frame), used_s in mine.most_common(SHOWN):
            function, _, file = frame.partition(" (")
            shown = f"{function}  {'/'.join(file.split('/')[-2:]).rstrip(')')}"
            print(f"{1e6 * used_s / requests:>8.1f}  {kind}: {shown}")


def _sum(
    piece: Counter[Place],
    part: str | None = None,
    kinds: tuple[str, ...] = (API_SERVER, ENGINE_CORE),
    begins: str = "",
) -> float:
    return sum(
        used_s
        for (kind, of, function), used_s in piece.items()
        if kind in kinds and part in (None, of) and function.startswith(begins)
    )


def _ratio(columns: list[list[float]]) -> float:
    return sum(columns[0]) / max(1e-9, sum(columns[1]))


if __name__ == "__main__":
    main()
