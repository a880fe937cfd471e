"""The sender, to a real collector: what was captured arrives, or is counted."""

import http.server
import logging
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
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.export import sender as sender_module
from tailspan_vllm.export.exporter import Exporter
from tailspan_vllm.export.sender import Sender
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.request.record_builder import RecordBuilder
from tailspan_vllm.settings import settings_from

from collector.server import Collector
from collector.testing import MemorySink, running
from rig.ports import free_port

TELL = RecordBuilder({}, b"x-tenant-id").in_flight


def a_record(number: int) -> RequestRecord:
    """A request of 100 ms, answered just now."""
    now = time.monotonic()
    return RequestRecord(
        received=now - 0.1,
        delivered=now,
        wall_offset_ns=time.time_ns() - round(now * 1e9),
        outcome="stop",
        basis="http",
        request_id=f"chatcmpl-{number}",
    )


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Sender]]:
    """Make a sender for an endpoint; closed at the end."""
    made: list[Sender] = []

    def make(endpoint: str, port: int | None = 8000, **environ: str) -> Sender:
        given = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            **environ,
        }
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        sender = Sender(settings_from(given))
        if port is not None:
            sender.serves_port(port)
        made.append(sender)
        return sender

    yield make
    for sender in made:
        sender.close()


@contextmanager
def collecting(port: int = 0) -> Iterator[tuple[MemorySink, Collector]]:
    """A running collector."""
    sink = MemorySink()
    with running(Collector(sink, grpc_port=0, http_port=port)) as collector:
        yield sink, collector


def until(condition: Callable[[], Any], patience_s: float = 20) -> None:
    """Wait for something that another thread brings about."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_submitted_arrives_and_closing_sends_the_rest(
    sending: Callable[..., Sender],
) -> None:
    """Flushed at the end of the process, whatever the interval."""
    with collecting() as (sink, collector):
        endpoint = f"http://127.0.0.1:{collector.http_port}"
        sender = sending(endpoint, OTEL_BSP_SCHEDULE_DELAY="60000")
        for number in range(20):
            sender.submit(partial(a_record, number))
        sender.close()
        assert {row.request_id for row in sink.requests} == {
            f"chatcmpl-{number}" for number in range(20)
        }


def test_grpc_takes_what_we_encode(sending: Callable[..., Sender]) -> None:
    """Its stub serialises a message of another class than the one it was made for."""
    with collecting() as (sink, collector):
        sender = sending(
            f"http://127.0.0.1:{collector.grpc_port}", OTEL_EXPORTER_OTLP_PROTOCOL="grpc"
        )
        sender.observe({0: EngineState(0, time.time_ns())}, lambda: None, lambda: None, TELL)
        for number in range(3):
            sender.submit(partial(a_record, number))
        until(lambda: len(sink.requests) == 3 and sink.samples)


def test_spans_do_not_follow_vllms_own(
    sending: Callable[..., Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM tells its children where its native spans go in a variable that is ours, too."""
    with collecting() as (sink, collector):
        sender = sending(f"http://127.0.0.1:{collector.http_port}")
        elsewhere = f"http://127.0.0.1:{free_port()}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", elsewhere)
        sender.submit(partial(a_record, 0))
        until(lambda: sink.requests)


def test_a_full_batch_does_not_wait_for_its_turn(sending: Callable[..., Sender]) -> None:
    """An interval of a minute is no reason to hold back a batch that is full."""
    with collecting() as (sink, collector):
        sender = sending(
            f"http://127.0.0.1:{collector.http_port}",
            OTEL_BSP_SCHEDULE_DELAY="60000",
            OTEL_BSP_MAX_EXPORT_BATCH_SIZE="4",
        )
        sender.submit(partial(a_record, 0))
        until(lambda: sink.requests)  # the first round is at once
        for number in range(1, 5):
            sender.submit(partial(a_record, number))
        until(lambda: len(sink.requests) == 5)
        assert len({row.span_id for row in sink.requests}) == 5


def test_every_second_is_told_however_rare_the_exports(sending: Callable[..., Sender]) -> None:
    """Samples between two exports travel together, each with its instant."""
    with collecting() as (sink, collector):
        sender = sending(f"http://127.0.0.1:{collector.http_port}", OTEL_BSP_SCHEDULE_DELAY="60000")
        sender.observe({0: EngineState(0, time.time_ns())}, lambda: None, lambda: None, TELL)
        sender.start()
        until(lambda: sink.samples)
        until(lambda: len(sender._reader.samples) >= 2)
        sender.close()
        assert len({sample.at_unix_ns for sample in sink.samples}) >= 3
    assert sink.samples[-1].process_cpu_s_total is not None
    assert sink.samples[-1].host_cpus is not None
    assert sink.samples[-1].core_cpu_s_total is None  # no engine core has said who it is


def test_a_full_queue_drops_and_counts(
    sending: Callable[..., Sender], caplog: pytest.LogCaptureFixture
) -> None:
    """Memory is bounded while the collector is away; one line says so, and one that it is back."""
    port = free_port()
    sender = sending(f"http://127.0.0.1:{port}", OTEL_BSP_MAX_QUEUE_SIZE="5")
    sender.observe({0: EngineState(0, time.time_ns())}, lambda: None, lambda: None, TELL)
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


def test_a_retried_span_keeps_its_id(sending: Callable[..., Sender]) -> None:
    """The store fails once, after the collector has read the batch: the repeat is one row."""
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
def test_a_switch_of_the_standard_keeps_spans_in(
    sending: Callable[..., Sender], switch: str
) -> None:
    """Disabled is disabled: nothing is queued and no thread runs."""
    value = "true" if switch == "OTEL_SDK_DISABLED" else "none"
    sender = sending("http://127.0.0.1:9", **{switch: value})
    sender.submit(partial(a_record, 1))
    assert not sender._reading.alive


def test_a_record_that_cannot_be_told_costs_no_other(sending: Callable[..., Sender]) -> None:
    """One without an instant is dropped; one with a strange value is told as well as can be."""
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
def test_an_engines_start_arrives_and_so_it_does_after_an_outage(
    sending: Callable[..., Sender], protocol: str
) -> None:
    """By either protocol, once; and once more when the collector has been away."""
    port = free_port()
    with collecting(port) as (sink, collector):
        there = collector.grpc_port if protocol == "grpc" else port
        sender = sending(f"http://127.0.0.1:{there}", OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
        state = EngineState(0, time.time_ns(), "m", "c0ffee00", arguments={"model.dtype": "bf16"})
        sender.observe({0: state}, lambda: None, lambda: None, TELL)
        sender.start()
        until(lambda: sink.starts)
        until(lambda: len({sample.at_unix_ns for sample in sink.samples}) > 3)
        assert len(sink.starts) == 1
        assert sink.starts[0].at_unix_ns == state.started_unix_ns
    if protocol == "grpc":
        return  # its exporter's patience is its own; once is enough to know it arrives
    until(lambda: sender._reports.away)
    with collecting(port) as (again, _):
        until(lambda: again.starts)
        assert again.starts == sink.starts


POISON = b"poison"


class Picky(http.server.ThreadingHTTPServer):
    """A collector that refuses any message with a certain text in it, and keeps the others."""

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
        """Read, and answer once that is not held back."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.held.wait(20)
        if POISON in body:
            self.server.refused += 1
        elif self.path == "/v1/traces":
            self.server.accepted.append(body)
        self.send_response(400 if POISON in body else 200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def picky() -> Iterator[Picky]:
    """A running one."""
    server = Picky()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.held.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_refused_request_costs_no_other_and_the_log_says_why(
    sending: Callable[..., Sender], picky: Picky, caplog: pytest.LogCaptureFixture
) -> None:
    """It used to stay at the head of the queue for ever, while the log said "no collector"."""
    sender = sending(f"http://127.0.0.1:{picky.server_port}")
    for number in range(200):
        record = a_record(number)
        if number % 50 == 7:
            record.request_id = f"{POISON.decode()}-{number}"
        sender.submit(partial(copy, record))
    until(lambda: sender._drops.snapshot().get("refused") == 4)
    until(lambda: not len(sender._served))
    told = b"".join(picky.accepted)
    assert all(f"chatcmpl-{number}".encode() in told for number in range(200) if number % 50 != 7)
    assert "refuses spans: HTTP 400" in caplog.text
    assert "no collector" not in caplog.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIMEOUT", "10s"),
        ("COMPRESSION", "zstd"),
        ("HEADERS", "x"),
        ("CERTIFICATE", "/not/there"),
        ("METRICS_ENDPOINT", "nonsense"),
        ("LOGS_ENDPOINT", "http://[half"),
    ],
)
def test_a_malformed_variable_does_not_stop_the_sender(
    sending: Callable[..., Sender], caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    """It used to end the sending thread, and nothing bounded what then waited."""
    variable = f"OTEL_EXPORTER_OTLP_{name}"
    with collecting() as (sink, collector):
        sender = sending(f"http://127.0.0.1:{collector.http_port}", **{variable: value})
        sender.submit(partial(a_record, 1))
        until(lambda: sink.requests)
    assert caplog.text.count(f"tailspan: {variable}") == 1


def test_a_thread_that_ends_is_started_again(
    sending: Callable[..., Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ended it; what waited meanwhile is sent."""
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


def test_the_link_is_read_while_an_export_waits(
    sending: Callable[..., Sender], picky: Picky
) -> None:
    """It used to wait for the collector, too: 2,280 of 2,800 accounts were lost in 14 s."""
    picky.held.clear()
    sender = sending(f"http://127.0.0.1:{picky.server_port}", OTEL_EXPORTER_OTLP_TIMEOUT="20")
    reads: list[float] = []
    read_link = sender._reader.read_link

    def read() -> None:
        reads.append(time.monotonic())
        read_link()

    sender._reader.read_link = read  # type: ignore[method-assign]  # counted
    sender.submit(partial(a_record, 1))
    until(lambda: sender._served.spans)
    before = len(reads)
    until(lambda: len(reads) > before + 20)
    assert not picky.accepted
    picky.held.set()
    until(lambda: picky.accepted)


def test_a_replica_is_not_named_before_its_port_is_known(sending: Callable[..., Sender]) -> None:
    """A second was not enough on a busy machine: rows and bills hung on the process id."""
    with collecting() as (sink, collector):
        sender = sending(f"http://127.0.0.1:{collector.http_port}", port=None)
        state = EngineState(0, time.time_ns(), "m", "c0ffee00")
        sender.observe({0: state}, lambda: None, lambda: None, TELL)
        sender.start()
        until(lambda: len(sender._reader.samples) >= 3)
        assert not sink.samples
        sender.serves_port(8300)
        until(lambda: len({sample.at_unix_ns for sample in sink.samples}) >= 3 and sink.starts)
        assert {row.replica.rpartition(":")[2] for row in sink.samples + sink.starts} == {"8300"}


def test_a_name_that_comes_too_late_is_used_from_then_on(
    sending: Callable[..., Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is bounded; the start is sent again under the new name."""
    monkeypatch.setattr(sender_module, "NAME_WAIT_S", 0.05)
    with collecting() as (sink, collector):
        sender = sending(f"http://127.0.0.1:{collector.http_port}", port=None)
        state = EngineState(0, time.time_ns(), "m", "c0ffee00")
        sender.observe({0: state}, lambda: None, lambda: None, TELL)
        sender.start()
        until(lambda: sink.starts)
        sender.serves_port(8300)
        until(lambda: len(sink.starts) == 2)
        assert sink.starts[1].replica.endswith(":8300")


def test_a_program_without_a_port_is_reported_with_its_first_request(
    sending: Callable[..., Sender],
) -> None:
    """An offline `LLM` builds no application."""
    with collecting() as (sink, collector):
        sender = sending(f"http://127.0.0.1:{collector.http_port}", port=None)
        sender.expect()
        sender.submit(partial(a_record, 1))
        until(lambda: sink.requests)


def test_a_flood_of_refused_requests_displaces_no_served_one(
    sending: Callable[..., Sender], picky: Picky
) -> None:
    """Each kind has a queue of its own; what does not fit is counted."""
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
    told = b"".join(picky.accepted)
    assert all(f"chatcmpl-{10_000 + number}".encode() in told for number in range(100))
