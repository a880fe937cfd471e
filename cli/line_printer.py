"""Print lines from a thread, so that a slow reader of the output never delays the program."""

import queue
import threading
from collections.abc import Callable
from typing import Final

import click

MAX_LINES: Final = 20_000
"""Maximum waiting lines (about 20 MB). Further lines are dropped and counted."""


class LinePrinter:
    """Prints lines in order. If the reader closes the output, the printer's thread calls
    `closed`."""

    def __init__(self, closed: Callable[[], object]) -> None:
        self._closed = closed
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="printer", daemon=True)
        self.dropped = 0
        self.broken: BrokenPipeError | None = None
        self._thread.start()

    def print(self, line: str) -> None:
        """Queue a line without waiting."""
        if self._lines.qsize() < MAX_LINES:
            self._lines.put(line)
        else:
            self.dropped += 1

    def close(self) -> None:
        """Wait until all lines are printed.

        Raises:
            BrokenPipeError: the reader has closed the output.
        """
        self._lines.put(None)
        self._thread.join()
        if self.broken is not None:
            raise self.broken

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            if self.broken is None:
                try:
                    click.echo(line)
                except BrokenPipeError as error:
                    self.broken = error
                    self._closed()
