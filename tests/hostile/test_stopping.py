import asyncio
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import grpc
import pytest

from collector.errors import IntakeBusyError
from collector.normalise.batch import NormalisedBatch
from collector.otlp.message_reader import LocalReader, ProcessReader
from collector.server import Collector
from collector.signals import TRACES, Signal
from collector.testing import MemorySink
from tests.hostile.conftest import Connect, post, read_head, wait_for

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PROTOBUF = {"Content-Type": "application/x-protobuf"}
GRACE_S = 1.0
SOON_S = 8 * GRACE_S


class _Stuck(LocalReader):
    def __init__(self) -> None:
        self.started, self.closed = threading.Event(), threading.Event()

    def read(self, signal: Signal, body: bytes, json: bool, now_unix_ns: int) -> NormalisedBatch:
        self.started.set()
        assert self.closed.wait(20)
        raise IntakeBusyError("the process that reads messages ended; send again")

    def close(self) -> None:
        self.closed.set()


def _start(
    loop: asyncio.AbstractEventLoop, sink: MemorySink, reading: LocalReader | None = None
) -> Collector:
    async def make() -> Collector:
        collector = Collector(sink, grpc_port=0, http_port=0, reading=reading)
        await collector.start()
        return collector

    return wait_for(loop, make())


def _stop(loop: asyncio.AbstractEventLoop, collector: Collector) -> float:
    began = time.monotonic()
    wait_for(loop, collector.stop(GRACE_S))
    return time.monotonic() - began


def _send(collector: Collector, body: bytes = b"") -> HTTPResponse:
    connection = HTTPConnection("127.0.0.1", collector.http_port, timeout=20)
    connection.request("POST", "/v1/traces", body, PROTOBUF)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def _send_by_grpc(collector: Collector, body: bytes = b"") -> grpc.StatusCode:
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        try:
            channel.unary_unary(METHOD)(body, timeout=20)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
    return grpc.StatusCode.OK


def _waiting(collector: Collector, messages: int) -> None:
    while collector.counters.report().waiting_messages < messages:
        time.sleep(0.01)


def test_queued_messages_get_a_retryable_response(loop: asyncio.AbstractEventLoop) -> None:
    """OTLP forbids a retry after status 500."""
    reading = _Stuck()
    collector = _start(loop, MemorySink(), reading)
    with ThreadPoolExecutor(16) as pool:
        http = [pool.submit(_send, collector) for _ in range(8)]
        by_grpc = [pool.submit(_send_by_grpc, collector) for _ in range(8)]
        assert reading.started.wait(20)
        _waiting(collector, 16)
        assert _stop(loop, collector) < SOON_S
    for each in http:
        assert each.result().status == 503
        assert each.result().headers["Retry-After"] == "1"
    assert {each.result() for each in by_grpc} <= {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
    messages = collector.counters.report().messages
    assert messages["http", "traces", "failed"] == messages["grpc", "traces", "failed"] == 0
    assert collector.counters.report().waiting_bytes == 0


def test_a_stalled_body_is_retryable(loop: asyncio.AbstractEventLoop, connect: Connect) -> None:
    collector = _start(loop, MemorySink())
    connections = [connect(collector.http_port, post(1000) + b"a") for _ in range(4)]
    _waiting(collector, 4)
    assert _stop(loop, collector) < SOON_S
    for connection in connections:
        assert read_head(connection).startswith(b"HTTP/1.1 503")


def test_uncommitted_messages_get_a_retryable_response(
    loop: asyncio.AbstractEventLoop, trace_message: Callable[..., Any]
) -> None:
    """The rows may still be stored after the response. The sender then sends stored rows again."""
    sink = MemorySink(held=True)
    collector = _start(loop, sink)
    body = trace_message().SerializeToString()
    with ThreadPoolExecutor(2) as pool:
        http, by_grpc = (
            pool.submit(_send, collector, body),
            pool.submit(_send_by_grpc, collector, body),
        )
        _waiting(collector, 2)
        for _ in range(2):
            assert sink.submitted.acquire(timeout=20)
        assert _stop(loop, collector) < SOON_S
        assert http.result().status == 503
        assert by_grpc.result() is grpc.StatusCode.UNAVAILABLE


def test_messages_committed_in_time_are_acknowledged(
    loop: asyncio.AbstractEventLoop, trace_message: Callable[..., Any]
) -> None:
    sink = MemorySink(held=True)
    collector = _start(loop, sink)
    with ThreadPoolExecutor(2) as pool:
        sent = pool.submit(_send, collector, trace_message().SerializeToString())
        assert sink.submitted.acquire(timeout=20)
        stopping = pool.submit(_stop, loop, collector)
        while collector.ready:
            time.sleep(0.01)
        loop.call_soon_threadsafe(sink.release)
        assert sent.result().status == 200
        stopping.result()


@pytest.mark.parametrize("size", [0, 4 * 2**20], ids=["while it reads", "while it is given a body"])
def test_a_reader_process_ends_in_mid_message(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    def stuck(_: float) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen(["sleep", "60"], stdin=pipe, stdout=pipe)

    monkeypatch.setattr("collector.otlp.message_reader._started", stuck)
    reading = ProcessReader()
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(reading.read, TRACES, bytes(size), False, 0)
        while not sent.done():
            reading.close()
            time.sleep(0.05)
        with pytest.raises(IntakeBusyError, match="send again"):
            sent.result()
