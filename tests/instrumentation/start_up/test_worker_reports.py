import os
import socket
import struct
from collections import Counter

import pytest
from tailspan_vllm import guard
from tailspan_vllm.start_up import worker_reports
from tailspan_vllm.start_up.instants import WorkerStart
from tailspan_vllm.start_up.worker_reports import WorkerReports, send_report

TOKEN = f"starting-{os.getpid()}"
REPORT = WorkerStart(0.5, 3.0, 2.0, 1.0)


@pytest.fixture(autouse=True)
def own_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be the parent of its workers."""
    monkeypatch.setattr(os, "getppid", os.getpid)
    monkeypatch.setattr(guard, "failures", Counter())


def test_reports_arrive() -> None:
    reports = WorkerReports(TOKEN)
    send_report(TOKEN, REPORT)
    send_report(TOKEN, REPORT)
    assert reports.read() == [REPORT, REPORT]


def test_without_a_listener_the_worker_continues() -> None:
    send_report(TOKEN, REPORT)
    reports = WorkerReports(TOKEN)
    assert reports.read() == []
    send_report(TOKEN, REPORT)


def test_a_full_buffer_does_not_block_the_worker() -> None:
    reports = WorkerReports(TOKEN)
    for _ in range(5_000):
        send_report(TOKEN, REPORT)
    found = reports.read()
    assert found
    assert set(found) == {REPORT}


def test_reports_of_a_wrong_length_are_dropped_and_counted() -> None:
    reports = WorkerReports(TOKEN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        for data in (b"", b"x", bytes(33), bytes(60_000)):
            end.sendto(data, worker_reports._address(TOKEN, os.getpid()))
    send_report(TOKEN, REPORT)
    assert reports.read() == [REPORT]
    assert guard.failures["start.refused"] == 4


def test_reports_of_another_user_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = WorkerReports(TOKEN)
    send_report(TOKEN, REPORT)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert reports.read() == []
    assert guard.failures["start.refused"] == 1


def test_a_report_without_credentials_is_not_ours() -> None:
    assert not worker_reports._is_ours([])
    data = struct.pack("3i", 1, os.geteuid(), 1)
    assert not worker_reports._is_ours([(socket.SOL_SOCKET, -1, data)])
    assert worker_reports._is_ours([(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, data)])
