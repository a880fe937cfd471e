"""Run a command that cannot outlive its parent: `python leash.py PARENT COMMAND …`.

The kernel ends the command when its parent ends, also after SIGKILL. The command requests this
itself, after the fork and before the exec. A request in the fork (`preexec_fn`) would run Python in
a process with threads, in which a lock may never be released. The alternative, a pipe to watch,
would need a thread in every command, or a third process that could itself be killed.

Only Linux supports this. On other systems the command runs without this protection. Source:
prctl(2), PR_SET_PDEATHSIG, which is kept across an exec.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: str, *command: str) -> None:
    """Tie this process to its parent, and execute the command."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # the parent has already ended
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
