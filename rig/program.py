"""A program that runs during a test or a benchmark."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from signal import SIGTERM, Signals
from typing import Any, Self

PATIENCE_S = 60.0
"""Time limit in seconds for output or for the end. Tailspan starts in about four seconds."""
FREE_PORTS = ("--grpc-port=0", "--http-port=0", "--metrics-port=0")
_PORTS = {
    "grpc": r":(\d+) \(gRPC",
    "http": r":(\d+) \(HTTP",
    "metrics": r":(\d+)/metrics",
    "explorer": r"  Explorer   http://[^/]*:(\d+)",
}


class ProgramError(Exception):
    """A program ended too early, or did not print the expected text in time."""


class Program:
    """A running program, for use in a `with` statement.

    Args:
        folder: the working directory, which also contains the program's output.
        environ: environment variables in addition to the variables of this process.
    """

    def __init__(
        self, folder: Path, *command: str, environ: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        self.folder = folder
        self.output = folder / f"{Path(command[0]).name}-{time.monotonic_ns()}.out"
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                **options,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def printed(self) -> str:
        """The output until now."""
        return self.output.read_text(errors="replace")

    def wait_for(self, pattern: str, within_s: float = PATIENCE_S) -> str:
        """Wait until the output matches a pattern. Return the last group of the match. If the
        pattern has no group, return the whole match.

        Raises:
            ProgramError: the program ended first, or the time limit was exceeded.
        """
        deadline = time.monotonic() + within_s
        while (found := re.search(pattern, self.printed)) is None:
            ended = self.process.poll()
            if ended is not None and re.search(pattern, self.printed) is None:
                raise self.error(f"ended with {ended} before it printed {pattern!r}")
            if time.monotonic() > deadline:
                raise self.error(f"did not print {pattern!r} within {within_s:g} s")
            time.sleep(0.02)
        return found[found.re.groups]

    def ends(self, number: Signals | None = None) -> int:
        """Wait for the end of the program, and return its exit status. Send a signal first if one
        is given."""
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def stop(self, within_s: float = 30) -> None:
        """Ask the program to end. Kill the program if it does not end."""
        if self.process.poll() is None:
            self.process.send_signal(SIGTERM)
            try:
                self.process.wait(within_s)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Kill the program."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def error(self, what: str) -> ProgramError:
        """An error with `what` and the last lines of the output."""
        lines = "\n".join(self.printed.splitlines()[-30:])
        return ProgramError(f"{self.output.stem} {what}. Its last lines:\n{lines}")


class Tailspan(Program):
    """A running `tailspan up` or `tailspan collect`. It uses free ports unless ports are given.

    Args:
        words: the subcommand and its options.
        environ: environment variables in addition to the variables of this process.
    """

    def __init__(
        self, folder: Path, *words: str, environ: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        given = {word.partition("=")[0] for word in words}
        free = [word for word in FREE_PORTS if word.partition("=")[0] not in given]
        super().__init__(folder, *tailspan_command(*words, *free), environ=environ, **options)

    def port(self, of: str) -> int:
        """The port of a component: "grpc", "http", "metrics" or "explorer"."""
        return int(self.wait_for(_PORTS[of]))

    def address(self, of: str) -> str:
        """The URL of a component."""
        return f"http://127.0.0.1:{self.port(of)}"

    def is_up(self) -> Self:
        """Wait until all components are up."""
        self.wait_for("Ctrl-C stops it")
        return self


def tailspan_command(*words: str) -> tuple[str, ...]:
    """The command line of one of Tailspan's commands."""
    return (str(Path(sys.executable).with_name("tailspan")), *words)
