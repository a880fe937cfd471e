"""Run a command that ends when its parent ends: `python end_with_parent.py PARENT COMMAND …`.

The kernel ends the command when its parent ends, even if the parent is killed with SIGKILL. This
script sets the kernel option, and then executes the command. The option is not set in `preexec_fn`
of `subprocess`: this function runs Python code after the fork, which can deadlock if the parent has
threads.

Only Linux has this option. On other systems the command may outlive its parent. Source: prctl(2),
PR_SET_PDEATHSIG, which remains set after an exec.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: str, *command: str) -> None:
    """Set the kernel option for this process, and execute the command."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # the parent has already ended
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
