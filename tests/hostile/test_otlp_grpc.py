import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from collector.listen.bearer_tokens import BearerTokens
from collector.otlp import grpc_receiver
from collector.server import Collector
from collector.testing import MemorySink
from tests.hostile.conftest import Collect, Connect, read_all

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
TOKEN = "the-token-of-a-hostile-test"
RETRY = ("google.rpc.retryinfo-bin", "grpc-status-details-bin")

Call = Callable[..., Any]


def _channel(collector: Collector) -> grpc.Channel:
    return grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}")


def _never(over: threading.Event) -> Iterator[bytes]:
    """Return a message that does not arrive during the test."""
    over.wait(20)
    yield from ()


def test_a_call_without_a_token_is_refused_before_its_message(collect: Collect) -> None:
    collector, over = collect(tokens=BearerTokens([TOKEN], "a test")), threading.Event()
    with _channel(collector) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            channel.stream_unary(METHOD)(_never(over), timeout=10)
        over.set()
        metadata = (("authorization", f"Bearer {TOKEN}"),)
        channel.unary_unary(METHOD)(b"", timeout=10, metadata=metadata)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    report = collector.counters.report()
    assert report.messages["grpc", "traces", "unauthenticated"] == 1
    assert report.waiting_bytes == report.waiting_messages == 0


def test_a_stalled_message_times_out(collect: Collect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_receiver, "READ_S", 0.2)
    collector, over = collect(), threading.Event()
    with _channel(collector) as channel:
        calls = [channel.stream_unary(METHOD).future(_never(over), timeout=20) for _ in range(20)]
        errors = [call.exception() for call in calls]
        over.set()
        channel.unary_unary(METHOD)(b"", timeout=10)
    assert {error.code() for error in errors} == {grpc.StatusCode.DEADLINE_EXCEEDED}
    assert all({key for key, _ in error.trailing_metadata()} >= set(RETRY) for error in errors)
    assert collector.counters.report().messages["grpc", "traces", "too_slow"] == 20
    assert collector.counters.report().waiting_bytes == 0


def test_stalled_messages_are_bounded(collect: Collect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_receiver, "READ_S", 5)
    most, over = 64 * 1024, threading.Event()
    collector = collect(max_body_bytes=most, max_waiting_bytes=8 * most)
    with _channel(collector) as channel:
        calls = [channel.stream_unary(METHOD).future(_never(over), timeout=20) for _ in range(50)]
        while collector.counters.report().waiting_messages < len(calls):
            assert collector.counters.report().waiting_bytes <= 4 * most
        assert 0 < collector.counters.report().waiting_bytes <= 4 * most
        over.set()
        for call in calls:
            call.cancel()


def test_the_concurrent_calls_of_a_sender_are_limited(collect: Collect) -> None:
    sink = MemorySink(held=True)
    collector, over = collect(sink, max_peer_waiting_messages=4), threading.Event()
    with _channel(collector) as channel:
        held = [channel.stream_unary(METHOD).future(_never(over), timeout=20) for _ in range(4)]
        while collector.counters.report().waiting_messages < 4:
            time.sleep(0.01)
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(METHOD)(b"", timeout=10)
        over.set()
        for call in held:
            call.exception()
        channel.unary_unary(METHOD)(b"", timeout=10)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert {key for key, _ in refused.value.trailing_metadata()} >= set(RETRY)
    assert collector.counters.report().messages["grpc", "traces", "busy"] == 1


def test_a_cancelled_call_releases_its_memory(collect: Collect) -> None:
    collector, over = collect(), threading.Event()
    with _channel(collector) as channel:
        for _ in range(10):
            calls = [channel.stream_unary(METHOD).future(_never(over)) for _ in range(100)]
            for call in calls:
                call.cancel()
        over.set()
        channel.unary_unary(METHOD)(b"", timeout=20)
    report = collector.counters.report()
    assert report.messages["grpc", "traces", "acknowledged"] == 1


def test_silent_and_excess_connections_are_closed(
    collect: Collect, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_receiver, "HANDSHAKE_S", 1)
    collector = collect(max_connections=4)
    silent = [connect(collector.grpc_port) for _ in range(8)]
    for connection in silent:
        read_all(connection)
    with _channel(collector) as channel:
        channel.unary_unary(METHOD)(b"", timeout=20, wait_for_ready=True)
