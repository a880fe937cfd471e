"""A real `tailspan collect` on free ports of loopback, for tests that attack it or end it."""

import re
import subprocess
import time
from pathlib import Path
from signal import SIGKILL, Signals

from server import children

PATIENCE_S = 60.0
"""A safety bound: it starts in about four seconds."""


class Collecting:
    """A process; `with` ends it at the end, whatever happened.

    Args:
        folder: where its output goes.
        url: its database.
        words: options beside the ports.
    """

    def __init__(self, folder: Path, url: str, *words: str) -> None:
        self.output = folder / f"output-{time.monotonic_ns()}"
        ports = ("--grpc-port=0", "--http-port=0", "--metrics-port=0", "--gpus=off")
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                children.ourselves("collect", "--database", url, *ports, *words),
                cwd=folder,
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
            )

    def __enter__(self) -> "Collecting":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def said(self) -> str:
        """All that it has printed."""
        return self.output.read_text()

    def says(self, pattern: str) -> str:
        """Wait until it has printed that; the pattern's group, or all of it."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, self.said)) is None:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)
        return found[found.re.groups]

    @property
    def http(self) -> str:
        """Where OTLP over HTTP goes."""
        return self.says(r"(http://127\.0\.0\.1:\d+) \(HTTP")

    @property
    def metrics(self) -> str:
        """Where /metrics and /readyz are."""
        return self.says(r"(http://127\.0\.0\.1:\d+)/metrics")

    def end(self, number: Signals = SIGKILL) -> int:
        """Send a signal and wait for the end; the exit status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)
