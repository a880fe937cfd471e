"""The processes that `tailspan up` starts beside itself: the explorer, and the simulator."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

STOP_S = 10.0


class Child:
    """A process of ours. It is asked to end when we do, and made to when it does not."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path | None) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def running(self) -> bool:
        """Whether it has yet to end."""
        return self._process.returncode is None

    async def wait(self) -> int:
        """Wait for its end; its exit status."""
        return await self._process.wait()

    async def stop(self) -> None:
        """End it, politely first."""
        if not self.running:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def last_words(self, lines: int = 8) -> str:
        """The end of its log, where it has one."""
        if self.log is None or not self.log.is_file():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


async def start(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path | None = None,
) -> Child:
    """Start a child in a session of its own, so that Ctrl-C reaches it through us alone.

    Args:
        name: what to call it in messages.
        command: its command line.
        environment: variables added to ours.
        log: where its output goes; None leaves it on ours.
    """
    output: IO[bytes] | None = None
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        output = log.open("wb")
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            start_new_session=True,
        )
    finally:
        if output is not None:
            output.close()
    return Child(name, process, log)


def ourselves(*arguments: str) -> tuple[str, ...]:
    """The command line of another `tailspan` verb, in this same environment."""
    return (sys.executable, "-c", "from cli.main import main; main()", *arguments)
