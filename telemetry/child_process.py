"""Python processes that Tailspan starts beside itself.

A child never imports from the working directory, which may hold a folder named like one of ours.
Ctrl-C in the terminal reaches only the parent, which decides when its children end.
"""

import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of ours in this environment."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(added: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a child: ours, and what is added."""
    return {**os.environ, "PYTHONSAFEPATH": "1", **(added or {})}


def start(
    module: str, *arguments: str, pass_fds: Collection[int] = (), answers: bool = False
) -> subprocess.Popen[bytes]:
    """Start a child that reads its standard input, and ends when that is closed.

    Args:
        module: what it runs.
        arguments: its arguments.
        pass_fds: file descriptors that it inherits.
        answers: whether its standard output is read.

    Raises:
        OSError: it cannot be started.
    """
    return subprocess.Popen(
        command(module, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if answers else None,
        pass_fds=tuple(pass_fds),
        env=environment(),
        start_new_session=True,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a child, wait for its end, and close its pipes."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):  # it had not read everything
                stream.close()
