"""Compile the replay's loop in a child process, before a user requests a prediction."""

import logging
import subprocess
import time
from typing import Final

from telemetry import child_process

AFTER_S: Final = 30.0
"""Seconds to wait before the compilation. An earlier compilation slows the first page with data
(benchmarks/first_minute.py)."""
LONGEST_S: Final = 600.0
"""Time limit in seconds. At the lowest priority, the compiler needs 14 s of CPU time."""
_log: Final = logging.getLogger(__name__)


def compile_later(after_s: float = AFTER_S, longest_s: float = LONGEST_S) -> None:
    """Compile the replay's loop after `after_s` seconds, within `longest_s` seconds. Log errors."""
    time.sleep(after_s)
    try:
        child = child_process.start("replay.compilation")
    except OSError as error:
        _log.warning("The replay was not compiled in advance: %s", error)
        return
    try:
        child.wait(longest_s)
    except subprocess.TimeoutExpired:
        _log.warning(
            "The replay was not compiled in advance: the limit of %.0f s was reached", longest_s
        )
    finally:
        child_process.end(child)
