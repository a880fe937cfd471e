"""Compile the replay's loop at low priority, and store the compiled code on disk.

The explorer runs `python -m replay.compilation` as a child process, so that the first prediction
after an upgrade does not wait for the compiler. The child process ends when its parent ends.
"""

import logging
import time
from typing import Any, Final

from replay.loop import warm
from telemetry import child_process

NICE: Final = 19
_log: Final = logging.getLogger(__name__)


def compile_in_background() -> None:
    """Compile the loop if the compiled code is not on disk. Log errors instead of raising them."""
    try:
        if _code_folder() is None:
            _log.warning(
                "The replay's compiled code cannot be stored, because neither the installation nor"
                " the user's cache folder is writable. Each process that predicts a change"
                " compiles it, which takes about 15 s. Set NUMBA_CACHE_DIR to a writable folder."
            )
            return
        begun_s = time.monotonic()
        compiled = warm()
    except Exception as error:
        _log.warning(
            "The replay was not compiled in advance (%s: %s). The first prediction compiles it.",
            *(type(error).__name__, error),
        )
        return
    if compiled:
        _log.info("The replay was compiled in %.0f s.", time.monotonic() - begun_s)


def _code_folder() -> str | None:
    from replay import kernel

    run: Any = kernel.run
    found: str | None = run.stats.cache_path
    return found


def main() -> None:
    """Compile the loop at the lowest priority. Stop when standard input is closed."""
    child_process.lower_priority(NICE)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    child_process.end_with_parent()
    compile_in_background()


if __name__ == "__main__":
    main()
