import os
from collections import Counter

import pytest
from tailspan_vllm import guard
from tailspan_vllm.start_up import worker_reports
from tailspan_vllm.start_up.instants import WorkerStart
from tailspan_vllm.start_up.local_reports import send
from tailspan_vllm.start_up.worker_reports import WorkerReports, send_report

TOKEN = f"starting-{os.getpid()}"
REPORT = WorkerStart(0.5, 3.0, 2.0, 1.0)


@pytest.fixture(autouse=True)
def own_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be the parent of its workers."""
    monkeypatch.setattr(os, "getppid", os.getpid)
    monkeypatch.setattr(guard, "failures", Counter())


def test_the_reports_of_64_workers_arrive() -> None:
    reports = WorkerReports(TOKEN)
    for _ in range(64):
        send_report(TOKEN, REPORT)
    assert reports.read() == [REPORT] * 64


def test_without_a_listener_the_worker_continues() -> None:
    send_report(TOKEN, REPORT)
    reports = WorkerReports(TOKEN)
    assert reports.read() == []
    send_report(TOKEN, REPORT)


def test_reports_of_a_wrong_length_are_dropped_and_counted() -> None:
    reports = WorkerReports(TOKEN)
    for data in (b"", b"x", bytes(33), bytes(60_000)):
        send(worker_reports._address(TOKEN, os.getpid()), data)
    send_report(TOKEN, REPORT)
    assert reports.read() == [REPORT]
    assert guard.failures["start.refused"] == 4
