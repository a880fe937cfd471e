"""Compare the CPU time of the plugin and of vLLM's own tracing in the same API servers.

    python benchmarks/overhead_profile.py [--engines 2] [--pieces 20] [--seconds 15]

One real server has the plugin and native tracing, and py-spy samples the Python stacks of its API
servers. Both run in the same processes, because in `overhead.py`, differences between servers hide
small costs.

A sample is assigned to the package of its innermost frame. Frames of the standard library and of
OpenTelemetry are assigned to their caller. Waiting threads and gRPC's own threads are left out.
Consecutive samples with the same stack and line count once, because the thread waited for a core.
The interval is a bootstrap over the pieces. Needs py-spy: pip install py-spy.
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
from itertools import groupby
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
from rig import serve
from rig.install import ensure

RATE_HZ = 200
REQUESTS = 60
"""The number of requests that are sent again and again."""
PLUGIN, NATIVE, REST = "the plugin", "native tracing", "the rest"
HOST_PACKAGES = ("/vllm/", "/fastapi/", "/starlette/", "/uvicorn/")
WAITS = re.compile(r"(^|\.)(wait|_blocking|select) \(")
"""The innermost frames of threads that wait. py-spy reports some of these threads as active."""
SHOWN = 15
"""The number of functions of the plugin that are printed."""


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
    # Only native tracing exports in a thread of OpenTelemetry.
    exports = any("/opentelemetry/" in frame for frame in frames)
    return (NATIVE if exports else REST), frames[-1]


class Profile:
    """The samples of one piece of the measurement, by part of the server."""

    def __init__(self) -> None:
        self.parts: Counter[str] = Counter()
        self.frames: Counter[tuple[str, str]] = Counter()

    def add(self, recorded: dict[str, Any]) -> None:
        """Add a process' samples in the format of speedscope, which has each thread's stacks in
        order of time."""
        names = [f"{each['name']} ({each['file']})" for each in recorded["shared"]["frames"]]
        for thread in recorded["profiles"]:
            for stack, _ in groupby(thread["samples"]):
                frames = [names[index] for index in stack]
                if not frames or WAITS.search(frames[-1]):
                    continue
                part, frame = owner(frames)
                self.parts[part] += 1
                self.frames[part, frame] += 1


def sampled(server: MeasuredServer, seconds: int, folder: Path) -> Profile:
    """Sample all API server processes for some seconds."""
    program = which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        raise SystemExit("py-spy is not installed; install it: pip install py-spy")
    running = []
    for process in server.front_ends:
        file = folder / str(process)
        command = [
            *(program, "record", "--format", "speedscope", "--rate", str(RATE_HZ)),
            *("--full-filenames", "--duration", str(seconds)),
            *("--output", str(file), "--pid", str(process)),
        ]
        py_spy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        running.append((file, py_spy))
    profile = Profile()
    for file, recording in running:
        recording.wait()
        if file.exists():  # a process without any sample leaves no file
            profile.add(json.loads(file.read_text()))
            file.unlink()
    return profile


def main() -> None:
    """Measure and print the ratio."""
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
    stop, requests = threading.Event(), 0

    def send() -> None:
        nonlocal requests
        while not stop.is_set():
            load(server, calls, given.concurrency)
            requests += len(calls)

    with sink_process() as endpoint, tempfile.TemporaryDirectory() as folder:
        tracing = ["--otlp-traces-endpoint", endpoint]
        server = start("tailspan", endpoint, [], [*tracing, *several_engines(given.engines)])
        try:
            load(server, calls, given.concurrency)  # warm up
            sender = threading.Thread(target=send)
            sender.start()
            began_s = time.monotonic()
            try:
                pieces = [sampled(server, given.seconds, Path(folder)) for _ in range(given.pieces)]
            finally:
                stop.set()
                sender.join()
                took_s = time.monotonic() - began_s  # py-spy takes seconds to begin each piece
        finally:
            serve.stop(server.process)
    report(pieces, requests / took_s)


def report(pieces: list[Profile], requests_per_s: float) -> None:
    """Print the ratio with its interval, and the most expensive functions."""
    columns = [[float(piece.parts[part]) for piece in pieces] for part in (PLUGIN, NATIVE)]
    counts = ", ".join(
        f"{sum(column):,.0f} samples of {part}"
        for column, part in zip(columns, (PLUGIN, NATIVE), strict=True)
    )
    total = sum(sum(piece.parts.values()) for piece in pieces)
    print(f"{counts}, of {total:,} samples, at {requests_per_s:.1f} requests/s")
    low, high = interval(columns, _ratio)
    print(f"{PLUGIN} / {NATIVE}: {_ratio(columns):.2f} [{low:.2f}, {high:.2f}] (goal 0.50)")
    frames = sum((piece.frames for piece in pieces), Counter[tuple[str, str]]())
    for part in (PLUGIN, NATIVE):
        print(f"\nsamples of {part} by function:")
        mine = Counter({frame: number for (of, frame), number in frames.items() if of == part})
        for frame, number in mine.most_common(SHOWN):
            function, _, file = frame.partition(" (")
            print(f"{number:>6}  {function}  {'/'.join(file.split('/')[-2:]).rstrip(')')}")


def _ratio(columns: list[list[float]]) -> float:
    return sum(columns[0]) / max(1.0, sum(columns[1]))


if __name__ == "__main__":
    main()
