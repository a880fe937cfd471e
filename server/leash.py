"""Become a command that cannot outlive its parent: `python leash.py PARENT COMMAND …`.

The kernel ends the command when its parent ends, however that ends, SIGKILL included. Each
command asks for it itself, here, after it was forked and before it becomes what it is to
be: asking in the fork (`preexec_fn`) would run Python between fork and exec of a process
with threads, where any lock may be held for ever. A pipe to watch would need a thread in every
command, or a third process that could itself be killed.

Linux alone has this; elsewhere the command is run as it is.
Source: prctl(2), PR_SET_PDEATHSIG, which is kept across an exec.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: str, *command: str) -> None:
    """Tie this process to its parent, and become the command."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # it ended before we asked
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
