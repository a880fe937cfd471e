import http.server
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any

import numpy
import pytest
from tailspan_vllm import guard
from tailspan_vllm.engine_core.link import TOKEN_VARIABLE, EngineEnd
from tailspan_vllm.engine_core.link_messages import encode_account, encode_sample
from tailspan_vllm.engine_core.step_ledger import RequestEngineTime
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.export import restarting_thread
from tailspan_vllm.export import sender as sender_module
from tailspan_vllm.export.exporter import Exporter
from tailspan_vllm.export.retry import Backoff
from tailspan_vllm.export.sender import OtlpSender
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.request.record_builder import RecordBuilder
from tailspan_vllm.settings import settings_from

from collector.server import Collector
from collector.testing import MemorySink, running
from rig.ports import free_port

BUILD = RecordBuilder({}, b"x-tenant-id").in_flight


def a_record(number: int) -> RequestRecord:
    now = time.monotonic()
    return RequestRecord(
        received=now - 0.1,
        delivered=now,
        wall_offset_ns=time.time_ns() - round(now * 1e9),
        outcome="stop",
        basis="http",
        request_id=f"chatcmpl-{number}",
    )


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample, retry and restart more often than in a server."""
    monkeypatch.setattr(sender_module, "SAMPLE_S", 0.1)
    monkeypatch.setattr(sender_module, "READ_S", 0.02)
    monkeypatch.setattr(restarting_thread, "FIRST_PAUSE_S", 0.05)
    defaults = Backoff.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "first_s", 0.1)


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., OtlpSender]]:
    made: list[OtlpSender] = []

    def make(endpoint: str, port: int | None = 8000, **environ: str) -> OtlpSender:
        given = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            **environ,
        }
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        sender = OtlpSender(settings_from(given))
        if port is not None:
            sender.serves_port(port)
        made.append(sender)
        return sender

    yield make
    for sender in made:
        sender.close()


@contextmanager
def collecting(port: int = 0) -> Iterator[tuple[MemorySink, Collector]]:
    sink = MemorySink()
    with running(Collector(sink, grpc_port=0, http_port=port)) as collector:
        yield sink, collector


def until(condition: Callable[[], Any], patience_s: float = 20) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_records_arrive_and_closing_sends_the_rest(sending: Callable[..., OtlpSender]) -> None:
    with collecting() as (sink, collector):
        endpoint = f"http://127.0.0.1:{collector.http_port}"
        sender = sending(endpoint, OTEL_BSP_SCHEDULE_DELAY="60000")
        for number in range(20):
            sender.submit(partial(a_record, number))
        sender.close()
        assert {row.request_id for row in sink.requests} == {
            f"chatcmpl-{number}" for number in range(20)
        }


def test_grpc_takes_what_we_encode(sending: Callable[..., OtlpSender]) -> None:
    """The generated stub must accept the sender's own message class."""
    with collecting() as (sink, collector):
        sender = sending(
            f"http://127.0.0.1:{collector.grpc_port}", OTEL_EXPORTER_OTLP_PROTOCOL="grpc"
        )
        sender.observe({0: EngineState(0, time.time_ns())}, lambda: None, lambda: None, BUILD)
        for number in range(3):
            sender.submit(partial(a_record, number))
        until(lambda: len(sink.requests) == 3 and sink.samples)


def test_spans_do_not_follow_vllms_own(
    sending: Callable[..., OtlpSender], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin also reads the variable that vLLM sets for its own spans."""
    with collecting() as (sink, collector):
        sender = sending(f"http://127.0.0.1:{collector.http_port}")
        elsewhere = f"http://127.0.0.1:{free_port()}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", elsewhere)
        sender.submit(partial(a_record, 0))
        until(lambda: sink.requests)


def test_a_full_batch_does_not_wait_for_its_turn(sending: Callable[..., OtlpSender]) -> None:
    with collecting() as (sink, collector):
        sender = sending(
            f"http://127.0.0.1:{collector.http_port}",
            OTEL_BSP_SCHEDULE_DELAY="60000",
            OTEL_BSP_MAX_EXPORT_BATCH_SIZE="4",
        )
        sender.submit(partial(a_record, 0))
        until(lambda: sink.requests)  # the first round has no delay
        for number in range(1, 5):
            sender.submit(partial(a_record, number))
        until(lambda: len(sink.requests) == 5)
        assert len({row.span_id for row in sink.requests}) == 5


def test_every_interval_has_a_sample(sending: Callable[..., OtlpSender]) -> None:
    with collecting() as (sink, collector):
        sender = sending(f"http://127.0.0.1:{collector.http_port}", OTEL_BSP_SCHEDULE_DELAY="60000")
        sender.observe({0: EngineState(0, time.time_ns())}, lambda: None, lambda: None, BUILD)
        sender.start()
        until(lambda: sink.samples)
        until(lambda: len(sender._reader.samples) >= 2)
        sender.close()
        assert len({sample.at_unix_ns for sample in sink.samples}) >= 3
    assert sink.samples[-1].process_cpu_s_total is not None
    assert sink.samples[-1].host_cpus is not None
    assert sink.samples[-1].core_cpu_s_total is None  # no engine core is connected yet


def test_a_full_queue_drops_and_counts(
    sending: Callable[..., OtlpSender], caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    sender = sending(f"http://127.0.0.1:{port}", OTEL_BSP_MAX_QUEUE_SIZE="5")
    sender.observe({0: EngineState(0, time.time_ns())}, lambda: None, lambda: None, BUILD)
    with caplog.at_level(logging.WARNING):
        for number in range(12):
            sender.submit(partial(a_record, number))
        until(lambda: "no collector at" in caplog.text)
        with collecting(port) as (sink, _):
            until(lambda: len(sink.requests) >= 5 and sink.samples)
            until(lambda: "is back" in caplog.text)
            assert sorted(row.request_id or "" for row in sink.requests) == [
                f"chatcmpl-{number}" for number in range(5)
            ]
            assert sink.samples[-1].spans_dropped_total == 7
            sender.close()
    ours = [record for record in caplog.records if "tailspan" in record.getMessage()]
    assert len(ours) == 2
    assert "Failed to export" not in caplog.text


def test_a_retried_span_keeps_its_id(sending: Callable[..., OtlpSender]) -> None:
    """The store fails after the collector read the batch. The retry must not add a second row."""
    with collecting() as (sink, collector):
        sink.failure = OSError("disk full")
        sender = sending(f"http://127.0.0.1:{collector.http_port}")
        sender.submit(partial(a_record, 1))
        assert sink.submitted.acquire(timeout=20)
        sink.failure = None
        until(lambda: sink.requests)
        sender.close()
        assert len({(row.trace_id, row.span_id) for row in sink.requests}) == 1


@pytest.mark.parametrize("switch", ["OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"])
def test_the_sdk_switch_stops_spans(sending: Callable[..., OtlpSender], switch: str) -> None:
    value = "true" if switch == "OTEL_SDK_DISABLED" else "none"
    sender = sending("http://127.0.0.1:9", **{switch: value})
    sender.submit(partial(a_record, 1))
    assert not sender._reading.alive


def test_a_thread_that_has_ended_is_started_again_by_the_next_request(
    sending: Callable[..., OtlpSender], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = sending("http://127.0.0.1:9")
    started: list[int] = []
    monkeypatch.setattr(sender, "start", lambda: started.append(sender._unread))
    for number in range(3):  # no thread runs, as in a forked process
        sender.submit(partial(a_record, number))
    assert started == [1, 2, 3]


def test_requests_are_completed_once_per_export(
    sending: Callable[..., OtlpSender], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "SAMPLE_S", 0.01)
    sender = sending("http://127.0.0.1:9", OTEL_BSP_SCHEDULE_DELAY="3600000")
    looks: list[bool] = []
    completed: list[int] = []
    monkeypatch.setattr(sender._reader, "look_at_engines", looks.append)
    monkeypatch.setattr(sender._reader, "complete", lambda *_: completed.append(len(looks)))
    sender.start()
    until(lambda: len(looks) > 5)
    assert completed == [1]


def test_an_unreadable_record_does_not_affect_the_others(
    sending: Callable[..., OtlpSender],
) -> None:
    with collecting() as (sink, collector):
        sender = sending(f"http://127.0.0.1:{collector.http_port}")
        broken, strange = a_record(1), a_record(2)
        broken.delivered = float("nan")
        strange.prompt_tokens = numpy.int32(7)  # type: ignore[assignment]  # not as promised
        strange.tenant = object()  # type: ignore[assignment]

        def untold() -> RequestRecord:
            raise ZeroDivisionError

        sender.submit(untold)
        for record in (broken, strange, a_record(3)):
            sender.submit(partial(copy, record))
        until(lambda: len(sink.requests) == 2)
        assert [row.request_id for row in sink.requests] == ["chatcmpl-2", "chatcmpl-3"]
        assert sink.requests[0].prompt_tokens == 7
        sender.close()


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_start_is_sent_after_an_outage(sending: Callable[..., OtlpSender], protocol: str) -> None:
    port = free_port()
    with collecting(port) as (sink, collector):
        there = collector.grpc_port if protocol == "grpc" else port
        sender = sending(f"http://127.0.0.1:{there}", OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
        state = EngineState(0, time.time_ns(), "m", "c0ffee00", arguments={"model.dtype": "bf16"})
        sender.observe({0: state}, lambda: None, lambda: None, BUILD)
        sender.start()
        until(lambda: sink.starts)
        until(lambda: len({sample.at_unix_ns for sample in sink.samples}) > 3)
        assert len(sink.starts) == 1
        assert sink.starts[0].at_unix_ns == state.started_unix_ns
    if protocol == "grpc":
        return  # the gRPC exporter has its own retries, so one start is enough
    until(lambda: sender._reports.unavailable)
    with collecting(port) as (again, _):
        until(lambda: again.starts)
        assert again.starts == sink.starts


POISON = b"poison"


class Picky(http.server.ThreadingHTTPServer):
    """A collector that rejects any message that contains a given text."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.accepted: list[bytes] = []
        self.refused = 0
        self.held = threading.Event()
        self.held.set()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Picky

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.held.wait(20)
        if POISON in body:
            self.server.refused += 1
        elif self.path == "/v1/traces":
            self.server.accepted.append(body)
        self.send_response(400 if POISON in body else 200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def picky() -> Iterator[Picky]:
    server = Picky()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.held.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_refused_request_does_not_affect_the_others_and_is_logged(
    sending: Callable[..., OtlpSender], picky: Picky, caplog: pytest.LogCaptureFixture
) -> None:
    sender = sending(f"http://127.0.0.1:{picky.server_port}")
    for number in range(200):
        record = a_record(number)
        if number % 50 == 7:
            record.request_id = f"{POISON.decode()}-{number}"
        sender.submit(partial(copy, record))
    until(lambda: sender._drops.snapshot().get("refused") == 4)
    until(lambda: not len(sender._served))
    body = b"".join(picky.accepted)
    assert all(f"chatcmpl-{number}".encode() in body for number in range(200) if number % 50 != 7)
    assert "refuses spans: HTTP 400" in caplog.text
    assert "no collector" not in caplog.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIMEOUT", "10s"),
        ("LOGS_ENDPOINT", "http://[half"),
    ],
)
def test_a_malformed_variable_does_not_stop_the_sender(
    sending: Callable[..., OtlpSender], caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    variable = f"OTEL_EXPORTER_OTLP_{name}"
    with collecting() as (sink, collector):
        sender = sending(f"http://127.0.0.1:{collector.http_port}", **{variable: value})
        sender.submit(partial(a_record, 1))
        until(lambda: sink.requests)
    assert caplog.text.count(f"tailspan: {variable}") == 1


def test_a_thread_that_ends_is_started_again(
    sending: Callable[..., OtlpSender], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = Exporter.send_spans, list[None]()

    def fails_at_first(self: Exporter, *given: Any) -> None:
        calls.append(None)
        if len(calls) == 1:
            raise SystemExit
        original(self, *given)

    monkeypatch.setattr(Exporter, "send_spans", fails_at_first)
    monkeypatch.setattr(guard, "failures", guard.failures.__class__())
    with collecting() as (sink, collector):
        sender = sending(f"http://127.0.0.1:{collector.http_port}")
        sender.submit(partial(a_record, 1))
        until(lambda: sink.requests)
    assert guard.failures["tailspan-sender"] == 1


def test_the_link_is_read_during_an_export(
    sending: Callable[..., OtlpSender], picky: Picky
) -> None:
    """When the link was not read during an export, 2,280 of 2,800 accounts were lost in 14 s."""
    picky.held.clear()
    sender = sending(f"http://127.0.0.1:{picky.server_port}", OTEL_EXPORTER_OTLP_TIMEOUT="20")
    reads: list[float] = []
    read_link = sender._reader.read_link

    def read(look: bool = False) -> None:
        reads.append(time.monotonic())
        read_link(look)

    sender._reader.read_link = read  # type: ignore[method-assign]  # counted
    sender.submit(partial(a_record, 1))
    until(lambda: sender._served.spans)
    before = len(reads)
    until(lambda: len(reads) > before + 10)
    assert not picky.accepted
    picky.held.set()
    until(lambda: picky.accepted)


@pytest.mark.parametrize(("messages", "again"), [(32, False), (33, True)])
def test_a_link_with_few_messages_is_read_only_when_the_engines_are_sampled(
    sending: Callable[..., OtlpSender], monkeypatch: pytest.MonkeyPatch, messages: int, again: bool
) -> None:
    monkeypatch.setattr(sender_module, "SAMPLE_S", 3600.0)
    monkeypatch.setattr(sender_module, "READ_S", 0.001)
    sender = sending("http://127.0.0.1:9", OTEL_BSP_SCHEDULE_DELAY="3600000")
    reads: list[int] = []

    def read(look: bool = False) -> None:
        reads.append(messages)
        sender._reader.messages = messages

    sender._reader.read_link = read  # type: ignore[method-assign]  # instead of a real link
    sender.start()
    until(lambda: reads)
    if again:
        until(lambda: len(reads) > 5)
    else:
        time.sleep(0.2)
        assert len(reads) == 1


def test_a_burst_after_a_rest_does_not_fill_the_link(
    sending: Callable[..., OtlpSender], monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 short requests run one after another between two samples."""
    monkeypatch.setattr(sender_module, "SAMPLE_S", 3600.0)
    token = f"burst-{os.getpid()}"
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    engine = EngineEnd(token, "engine-0")
    sender = sending("http://127.0.0.1:9", OTEL_BSP_SCHEDULE_DELAY="3600000")
    accounts = sender._reader._join._accounts
    sender.start()
    try:
        until(lambda: sender._reader.connected)
        for number in range(300):
            engine.put(encode_account(0, f"request-{number}", RequestEngineTime()))
            engine.flush()
            engine.send_to_one(encode_sample({"engine": 0, "totals": {}, "gauges": {}}))
            sender.submit(partial(a_record, number))
            if not (number + 1) % 20:
                until(lambda: len(accounts) > number - sender_module.BUSY_REQUESTS)  # noqa: B023
    finally:
        engine.close()


def test_a_replica_is_not_named_before_its_port_is_known(
    sending: Callable[..., OtlpSender],
) -> None:
    with collecting() as (sink, collector):
        sender = sending(f"http://127.0.0.1:{collector.http_port}", port=None)
        state = EngineState(0, time.time_ns(), "m", "c0ffee00")
        sender.observe({0: state}, lambda: None, lambda: None, BUILD)
        sender.start()
        until(lambda: len(sender._reader.samples) >= 3)
        assert not sink.samples
        sender.serves_port(8300)
        until(lambda: len({sample.at_unix_ns for sample in sink.samples}) >= 3 and sink.starts)
        assert {row.replica.rpartition(":")[2] for row in sink.samples + sink.starts} == {"8300"}


def test_a_late_replica_name_is_used_from_then_on(
    sending: Callable[..., OtlpSender], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "NAME_WAIT_S", 0.05)
    with collecting() as (sink, collector):
        sender = sending(f"http://127.0.0.1:{collector.http_port}", port=None)
        state = EngineState(0, time.time_ns(), "m", "c0ffee00")
        sender.observe({0: state}, lambda: None, lambda: None, BUILD)
        sender.start()
        until(lambda: sink.starts)
        sender.serves_port(8300)
        until(lambda: len(sink.starts) == 2)
        assert sink.starts[1].replica.endswith(":8300")


def test_a_program_without_a_port_is_reported(sending: Callable[..., OtlpSender]) -> None:
    """An offline `LLM` builds no HTTP application."""
    with collecting() as (sink, collector):
        sender = sending(f"http://127.0.0.1:{collector.http_port}", port=None)
        sender.expect()
        sender.submit(partial(a_record, 1))
        until(lambda: sink.requests)


def test_refused_requests_displace_no_other(
    sending: Callable[..., OtlpSender], picky: Picky
) -> None:
    picky.held.clear()
    sender = sending(f"http://127.0.0.1:{picky.server_port}", OTEL_BSP_MAX_QUEUE_SIZE="100")
    for number in range(1000):
        sender.submit(partial(a_record, number), "refused")
    for number in range(1000):
        sender.submit(partial(a_record, number), "unauthenticated")
    for number in range(100):
        sender.submit(partial(a_record, 10_000 + number))
    assert len(sender._refused) == 25
    assert len(sender._served) == 100
    drops = sender._drops.snapshot()
    assert sum(drops.values()) == 2000 - 25
    assert drops["unauthenticated"] >= 1000 - 70
    picky.held.set()
    until(lambda: not len(sender._served))
    body = b"".join(picky.accepted)
    assert all(f"chatcmpl-{10_000 + number}".encode() in body for number in range(100))
