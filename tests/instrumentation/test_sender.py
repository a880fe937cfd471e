"""The sender, to a real collector: what was captured arrives, or is counted."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any

import numpy
import pytest
from tailspan_vllm.metrics import EngineState
from tailspan_vllm.record import RequestRecord
from tailspan_vllm.sender import Sender
from tailspan_vllm.settings import settings_from

from collector.server import Collector
from collector.testing import MemorySink, running
from rig.ports import free_port


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

    def make(endpoint: str, **environ: str) -> Sender:
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
        sender.serves_port(8000)
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
        sender.observe({0: EngineState(0, time.time_ns())}, at_end=lambda: None)
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
        sender.observe({0: EngineState(0, time.time_ns())}, at_end=lambda: None)
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
    sender.observe({0: EngineState(0, time.time_ns())}, at_end=lambda: None)
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
        sender.observe({0: state}, at_end=lambda: None)
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
