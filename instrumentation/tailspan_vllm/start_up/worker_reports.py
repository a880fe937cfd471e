"""Sends the durations of a worker's start to its engine core."""

import os
import struct

from tailspan_vllm.start_up.instants import WorkerStart
from tailspan_vllm.start_up.local_reports import LocalReports, send

_REPORT = struct.Struct(f"<{len(WorkerStart._fields)}d")


def _address(token: str, engine_process: int) -> str:
    return f"\0tailspan-start-{token}-{engine_process}"


def send_report(token: str, report: WorkerStart) -> None:
    """Send a worker's report to its parent process, the engine core."""
    send(_address(token, os.getppid()), _REPORT.pack(*report))


class WorkerReports:
    """Receives the workers' reports in the engine core, while the workers start."""

    def __init__(self, token: str) -> None:
        self._reports = LocalReports(_address(token, os.getpid()), _REPORT.size)

    def read(self) -> list[WorkerStart]:
        """Return the reports that have arrived, and close the listener."""
        return [WorkerStart(*_REPORT.unpack(each)) for each in self._reports.read()]
