"""Reports each stage of a start to the server's first process, in case the start fails.

The first process reads the reports only if the server ends before it is ready.
"""

import os
import struct
import sys
import time
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final, NamedTuple

from tailspan_vllm.start_up.local_reports import LocalReports, send

_REPORT: Final = struct.Struct("<iiid40s")


class StartStage(IntEnum):
    """The stages that a process reports as complete, and the failure of a start."""

    PROCESS = 0
    """The engine core's process began."""
    EXECUTOR = 1
    """The engine core began to start its workers."""
    WORKER = 2
    """A worker's process is ready to initialise its device."""
    DEVICE = 3
    WEIGHTS = 4
    PROFILED = 5
    """A worker measured the memory that it needs."""
    READY = 6
    FAILED = 7
    """A method of the start raised an exception."""


class StartProgress(NamedTuple):
    """One report. `at` is in monotonic seconds. `error` is the name of an exception's class."""

    engine: int
    process: int
    stage: StartStage
    at: float
    error: str = ""


def _address(token: str) -> str:
    return f"\0tailspan-progress-{token}"


def note(
    token: str, config: Any, stage: StartStage, at: float | None = None, error: str = ""
) -> None:
    """Send a report to the first process. `at` is in monotonic seconds. None means now."""
    if sys.platform == "linux":
        now = time.monotonic() if at is None else at
        name = error.encode("ascii", "replace")[:40]
        send(_address(token), _REPORT.pack(engine_number(config), os.getpid(), stage, now, name))


class ProgressReports:
    """Receives the reports in the first process."""

    def __init__(self, token: str) -> None:
        self._reports = LocalReports(_address(token), _REPORT.size)

    def read(self) -> list[StartProgress]:
        """Return the reports that have arrived, and close the listener."""
        found = []
        for each in self._reports.read():
            engine, process, stage, at, name = _REPORT.unpack(each)
            with suppress(ValueError):  # an unknown stage
                error = name.rstrip(b"\0").decode("ascii", "replace")
                found.append(StartProgress(engine, process, StartStage(stage), at, error))
        return found


def engine_number(config: Any) -> int:
    """The number of the engine that has this configuration. 0 if the number is unknown."""
    parallel = getattr(config, "parallel_config", None)
    for name in ("data_parallel_index", "data_parallel_rank"):
        number = getattr(parallel, name, None)
        if isinstance(number, int) and 0 <= number < 2**31:
            return number
    return 0
