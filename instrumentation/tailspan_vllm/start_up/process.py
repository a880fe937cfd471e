"""Stores in the environment when a server's first process began, for its child processes.

The times are on the monotonic clock, which all processes of a machine share.
"""

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tailspan_vllm.engine_state.cpu_time import own_age_s
from tailspan_vllm.engine_state.hardware import MAX_LOADING_S

START_VARIABLE: Final = "TAILSPAN_START"
MAX_ANCESTORS: Final = 64


class FirstProcess(NamedTuple):
    """When the first process began, and when it had loaded the plugin, in monotonic seconds."""

    began: float
    plugin: float
    began_unix_ns: int


def note_first_process(environ: "os._Environ[str]") -> bool:
    """Store this process's start time, unless a parent process has stored one. Return whether it
    was stored.

    Nothing is stored without /proc, or if the process is older than the longest plausible start.
    """
    if START_VARIABLE in environ:
        return False
    age_s, now, now_unix_ns = own_age_s(), time.monotonic(), time.time_ns()
    if age_s is None or age_s > MAX_LOADING_S:
        return False
    environ[START_VARIABLE] = f"{now - age_s!r} {now!r} {now_unix_ns - round(age_s * 1e9)}"
    return True


def first_process(environ: Mapping[str, str]) -> FirstProcess | None:
    """The times that `note_first_process` has stored, or None."""
    try:
        began, plugin, began_unix_ns = environ.get(START_VARIABLE, "").split()
        found = FirstProcess(float(began), float(plugin), int(began_unix_ns))
    except ValueError:
        return None
    return found if math.isfinite(found.began) and math.isfinite(found.plugin) else None


def descends_from_process_1(proc: Path = Path("/proc")) -> bool:
    """Return whether this process descends from process 1. A process that was started by `kubectl
    exec` does not."""
    process = "self"
    for _ in range(MAX_ANCESTORS):
        try:
            text = (proc / process / "stat").read_text()
            number, parent = text.split(" ", 1)[0], text.rpartition(")")[2].split()[1]
        except (OSError, ValueError, IndexError):
            return False
        if number == "1":
            return True
        process = parent
    return False


def this_process_began() -> float | None:
    """Return when this process started, in monotonic seconds, or None if unavailable."""
    age_s = own_age_s()
    return None if age_s is None else time.monotonic() - age_s
