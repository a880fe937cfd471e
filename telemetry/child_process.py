"""Start child processes that run modules of Tailspan.

A child does not import from the working directory. Ctrl-C reaches only the parent, which ends its
children.
"""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path


def command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of Tailspan with the current Python."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(added: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child."""
    return {**os.environ, "PYTHONSAFEPATH": "1", **(added or {})}


def start(
    module: str, *arguments: str, pass_fds: Collection[int] = (), answers: bool = False
) -> subprocess.Popen[bytes]:
    """Start a child that ends when its standard input is closed.

    Args:
        answers: whether to create a pipe for the child's standard output.

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


def end_with_parent() -> None:
    """End this process when its standard input is closed. The input is closed when the parent
    ends."""
    threading.Thread(target=_wait_for_closed_input, daemon=True).start()


def _wait_for_closed_input() -> None:
    # A buffered read would hold a lock that Python needs when it exits.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def lower_priority(nice: int) -> None:
    """Lower the priority of this process and of its session. Linux compares priorities of processes
    only within a session.

    Source: sched(7), "The autogroup feature".
    """
    reached = os.nice(nice)
    if os.getsid(0) != os.getpid():
        return
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(reached), encoding="ascii")


def limit_memory(max_bytes: int) -> None:
    """Limit the address space of this process, unless its limit is already lower."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        max_bytes = min(max_bytes, hard)
    with suppress(ValueError, OSError):  # macOS does not support this limit
        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a child, wait for its end, and close its pipes."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
