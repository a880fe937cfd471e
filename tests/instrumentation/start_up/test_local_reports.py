import multiprocessing
import os
import socket
import time
from collections import Counter
from pathlib import Path

import pytest
from tailspan_vllm import guard
from tailspan_vllm.start_up.local_reports import MAX_WAITING, LocalReports, send

ADDRESS = f"\0tailspan-local-{os.getpid()}"
LIMIT = int(Path("/proc/sys/net/core/somaxconn").read_text())


@pytest.fixture(autouse=True)
def no_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "failures", Counter())


def test_the_reports_of_a_thousand_workers_arrive_in_order() -> None:
    """A datagram socket keeps ten."""
    reports = LocalReports(ADDRESS, 4)
    number = min(MAX_WAITING, LIMIT)
    for each in range(number):
        send(ADDRESS, each.to_bytes(4, "big"))
    assert [int.from_bytes(each, "big") for each in reports.read()] == list(range(number))


def test_a_sender_never_waits() -> None:
    reports = LocalReports(ADDRESS, 1)
    began = time.monotonic()
    for _ in range(MAX_WAITING + 100):
        send(ADDRESS, b"x")
    assert time.monotonic() - began < 5
    assert len(reports.read()) >= min(MAX_WAITING, LIMIT)


def test_without_a_listener_a_report_is_lost() -> None:
    send(ADDRESS, b"x")
    assert LocalReports(ADDRESS, 1).read() == []


def test_a_connection_without_a_whole_report_is_counted() -> None:
    reports = LocalReports(ADDRESS, 4)
    silent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    silent.connect(ADDRESS)
    for data in (b"", b"x", bytes(60_000)):
        send(ADDRESS, data)
    send(ADDRESS, b"good")
    assert reports.read() == [b"good"]
    assert guard.failures["start.refused"] == 4
    silent.close()


def test_reports_of_another_user_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = LocalReports(ADDRESS, 1)
    send(ADDRESS, b"x")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert reports.read() == []
    assert guard.failures["start.refused"] == 1


def test_a_listener_that_nobody_reads_closes_its_end() -> None:
    reports = LocalReports(ADDRESS, 1)
    del reports
    assert LocalReports(ADDRESS, 1).read() == []


def test_a_fork_does_not_keep_the_listener_open() -> None:
    reports = LocalReports(ADDRESS, 1)
    context = multiprocessing.get_context("fork")
    begun, ended = context.Event(), context.Event()

    def wait() -> None:
        begun.set()
        ended.wait(60)

    child = context.Process(target=wait)
    child.start()
    assert begun.wait(60)
    reports.read()
    try:
        assert ADDRESS.replace("\0", "@") not in Path("/proc/net/unix").read_text()
    finally:
        ended.set()
        child.join()
