"""Run a command that ends when its parent ends: `python end_with_parent.py PARENT COMMAND …`.

On Linux, the kernel kills the command when the parent ends, even if the parent was killed.
`preexec_fn` of `subprocess` is not used, because Python code after a fork can deadlock if the
parent has threads. On other systems the command may outlive its parent. Source: prctl(2),
PR_SET_PDEATHSIG.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: str, *command: str) -> None:
    """Set the kernel option, and execute the command. The option stays set when the command
    replaces this program."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # the parent has already ended
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
