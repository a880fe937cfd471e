import asyncio
import gzip
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest

from collector import intake
from collector.counters import Counters
from collector.errors import TooLargeError
from collector.intake import Intake
from collector.limits.sender_limits import CollectorLimits
from collector.listen.bearer_tokens import BearerTokens
from collector.normalise.batch import NormalisedBatch
from collector.otlp import http_body
from collector.otlp.http_body import MAX_MEMBERS, inflate
from collector.otlp.message_reader import LocalReader
from collector.server import Collector
from collector.signals import TRACES, Signal
from collector.testing import MemorySink
from tests.hostile.conftest import Collect, Connect, post, read_all, read_head

KIB = 1024
PROTOBUF = {"Content-Type": "application/x-protobuf"}


def _send(
    collector: Collector, body: bytes, source: str = "127.0.0.1", **headers: str
) -> HTTPResponse:
    connection = HTTPConnection(
        "127.0.0.1", collector.http_port, timeout=20, source_address=(source, 0)
    )
    connection.request("POST", "/v1/traces", body, {**PROTOBUF, **headers})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def _unknown(size: int) -> bytes:
    """Return a message with one unknown OTLP field, and nothing to store."""
    head = bytes([15 << 3 | 2, (size - 4) & 127 | 128, (size - 4) >> 7 & 127 | 128, size - 4 >> 14])
    return head + bytes(size - 4)


def test_bodies_are_charged_while_they_arrive(collect: Collect, connect: Connect) -> None:
    collector = collect(
        max_body_bytes=64 * KIB, max_waiting_bytes=200 * KIB, max_peer_waiting_bytes=100 * KIB
    )
    hostile = [
        connect(collector.http_port, post(64 * KIB) + bytes(40 * KIB), source="127.0.0.2")
        for _ in range(2)
    ]
    while collector.counters.report().waiting_bytes < 80 * KIB:
        time.sleep(0.01)
    third = connect(collector.http_port, post(64 * KIB) + bytes(40 * KIB), source="127.0.0.2")
    answer = read_head(third)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in answer.lower()
    assert collector.counters.report().waiting_bytes <= 100 * KIB
    assert _send(collector, _unknown(60 * KIB)).status == 200
    for connection in hostile:
        connection.close()
    while collector.counters.report().waiting_bytes:
        time.sleep(0.01)


def test_a_sender_has_so_many_messages_under_way(collect: Collect, connect: Connect) -> None:
    collector = collect(max_peer_waiting_messages=3)
    for _ in range(3):
        connect(collector.http_port, post(4), source="127.0.0.2")
    while collector.counters.report().waiting_messages < 3:
        time.sleep(0.01)
    assert _send(collector, b"", "127.0.0.2").status == 503
    assert _send(collector, b"").status == 200


@pytest.mark.parametrize("limit", ["STALL_S", "BODY_S"])
def test_a_body_that_does_not_arrive_times_out(
    collect: Collect, connect: Connect, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(http_body, "STALL_S", 0.2 if limit == "STALL_S" else 5.0)
    monkeypatch.setattr("collector.otlp.http_receiver.BODY_S", 0.5 if limit == "BODY_S" else 30.0)
    connection = connect(collect().http_port, post(1000))
    connection.settimeout(0.05)
    answer = b""
    while not answer:
        try:
            if limit == "BODY_S":
                connection.send(b"a")
            answer = connection.recv(4096)
        except TimeoutError:
            continue
    assert answer.startswith(b"HTTP/1.1 503")


def test_endless_empty_gzip_members_are_refused(collect: Collect) -> None:
    """100,000 empty gzip members contain no data, but take a second to decompress."""
    collector = collect()
    members = gzip.compress(b"")
    assert _send(collector, members * 100_000, **{"Content-Encoding": "gzip"}).status == 413
    assert _send(collector, members * MAX_MEMBERS, **{"Content-Encoding": "gzip"}).status == 200
    with pytest.raises(TooLargeError, match=f"more than {MAX_MEMBERS} gzip members"):
        inflate(members * (MAX_MEMBERS + 1), "gzip", KIB)


def test_bodies_leave_the_event_loop(collect: Collect, monkeypatch: pytest.MonkeyPatch) -> None:
    where = []

    def noting(body: bytes, encoding: str, most: int) -> bytes:
        where.append(threading.current_thread().name)
        return inflate(body, encoding, most)

    monkeypatch.setattr(intake, "inflate", noting)
    packed = gzip.compress(_unknown(10 * KIB))
    assert _send(collect(), packed, **{"Content-Encoding": "gzip"}).status == 200
    assert where == ["collector-reading_0"]


def test_decompressed_bytes_count_for_the_rate_limit(collect: Collect) -> None:
    collector = collect(max_peer_bytes_per_s=100 * KIB)
    packed = gzip.compress(_unknown(1000 * KIB))
    assert _send(collector, packed, **{"Content-Encoding": "gzip"}).status == 200
    answer = _send(collector, b"")
    assert answer.status == 429
    assert int(answer.headers["Retry-After"]) >= 8


def test_decompressed_bytes_use_memory(collect: Collect, trace_message: Callable[..., Any]) -> None:
    sink = MemorySink(held=True)
    collector = collect(sink, max_peer_waiting_bytes=150 * KIB)
    packed = gzip.compress(trace_message().SerializeToString() + _unknown(100 * KIB))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(_send, collector, packed, **{"Content-Encoding": "gzip"})
        assert sink.submitted.acquire(timeout=20)
        assert _send(collector, packed, **{"Content-Encoding": "gzip"}).status == 503
        sink.release()
        assert first.result().status == 200


class _Gate(LocalReader):
    """A reader that waits until the test sets `go`, and records the senders of its messages."""

    def __init__(self) -> None:
        self.started, self.go = threading.Event(), threading.Event()
        self.order: list[bytes] = []

    def read(self, signal: Signal, body: bytes, json: bool, now_unix_ns: int) -> NormalisedBatch:
        self.started.set()
        assert self.go.wait(20)
        self.order.append(body[-1:])
        return super().read(signal, b"", json, now_unix_ns)


def test_a_message_waits_for_one_of_each_other_sender() -> None:
    gate = _Gate()

    async def send() -> None:
        taking = Intake(MemorySink(), [], Counters(), lambda: 0, CollectorLimits(), gate)
        sent = [
            asyncio.create_task(taking.receive(TRACES, b"\x00a", peer="10.0.0.1")) for _ in range(5)
        ]
        await asyncio.to_thread(gate.started.wait, 20)
        sent += [
            asyncio.create_task(taking.receive(TRACES, b"\x00" + name, peer=f"10.0.1.{number}"))
            for number, name in enumerate((b"b", b"c"))
        ]
        for _ in range(10):
            await asyncio.sleep(0)  # until all messages are queued
        gate.go.set()
        await asyncio.gather(*sent)
        await taking.stop(1)

    asyncio.run(send())
    assert gate.order[:3] == [b"a", b"b", b"c"]
    assert len(gate.order) == 7


def test_pipelined_requests_are_answered_in_turn(collect: Collect, connect: Connect) -> None:
    connection = connect(collect().http_port, post(0) * 200 + post(0, "Connection: close"))
    assert read_all(connection).count(b"HTTP/1.1 200") == 201


def test_without_a_token_no_100_continue_is_sent(collect: Collect, connect: Connect) -> None:
    collector = collect(tokens=BearerTokens(["a-token-of-sixteen-characters"], "a test"))
    connection = connect(collector.http_port, post(10_000_000, "Expect: 100-continue"))
    assert read_head(connection).startswith(b"HTTP/1.1 401")


def test_a_head_that_is_too_large_is_refused(collect: Collect, connect: Connect) -> None:
    connection = connect(collect().http_port, post(0)[:-2] + b"X: " + b"a" * 20_000)
    assert read_head(connection).startswith(b"HTTP/1.1 400")
