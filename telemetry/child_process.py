"""Start Tailspan's own child processes.

A child does not import modules from the working directory, because a folder there may have the name
of a package of Tailspan. Ctrl-C in the terminal reaches only the parent, which ends its children.
"""

import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of Tailspan with the current Python."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(added: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a child: the current environment and additional variables."""
    return {**os.environ, "PYTHONSAFEPATH": "1", **(added or {})}


def start(
    module: str, *arguments: str, pass_fds: Collection[int] = (), answers: bool = False
) -> subprocess.Popen[bytes]:
    """Start a child that reads standard input, and ends when standard input is closed.

    Args:
        module: the module to run.
        arguments: the module's arguments.
        pass_fds: file descriptors that the child inherits.
        answers: whether to connect the child's standard output to a pipe.

    Raises:
        OSError: the child cannot be started.
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
            with suppress(OSError):  # the child has not read all of its input
                stream.close()
