"""Start and stop the child processes of `tailspan up`: the explorer and the simulator.

If the parent is killed, server/end_with_parent.py ends the children.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from store.private_files import FILE_MODE, FOLDER_MODE, create
from telemetry import child_process
from telemetry.printable import printable

STOP_S = 10.0
_END_WITH_PARENT = Path(__file__).with_name("end_with_parent.py")
_LOG_END_BYTES = 8_192
_WIDEST = 200


class ChildError(Exception):
    """A child process cannot be started."""


class Child:
    """A running child process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._process.returncode is None

    async def wait(self) -> int:
        """Wait for the end of the process. Return its exit status, or the negative number of the
        signal that ended it."""
        return await self._process.wait()

    async def stop(self, within_s: float = STOP_S) -> None:
        """Terminate the process, and kill it if it does not end within `within_s` seconds."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(within_s):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        """Kill the process."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def last_words(self, lines: int = 8) -> str:
        """The end of the log, without characters that control a terminal."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(log.seek(0, os.SEEK_END) - _LOG_END_BYTES, 0))
                end = log.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(printable(line, _WIDEST) for line in end.splitlines()[-lines:])


async def start(
    name: str, command: Sequence[str], environment: Mapping[str, str], log: Path
) -> Child:
    """Start a child in its own session, so that Ctrl-C does not reach it.

    Args:
        command: the command line, with the full path of the program.
        environment: variables to add to the parent's environment.
        log: the file for the output. It is overwritten.

    Raises:
        ChildError: the log cannot be written, or the program cannot be run.
    """
    try:
        with _open_log(log) as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(_END_WITH_PARENT), str(os.getpid()), *command),
                env=child_process.environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise ChildError(f"cannot start the {name} with its log in {log}: {error}") from error
    return Child(name, process, log)


def _open_log(log: Path) -> IO[bytes]:
    log.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    create(log)
    # Earlier versions let other users read the log.
    log.chmod(FILE_MODE)
    # Append, because two processes that write the same log must not overwrite each other's lines.
    output = log.open("ab")
    output.truncate(0)
    return output


def own_command(*arguments: str) -> tuple[str, ...]:
    """The command line of a `tailspan` command in the same environment."""
    return (sys.executable, "-c", "from cli.main import main; main()", *arguments)
