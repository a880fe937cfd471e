import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.errors import IntakeBusyError, MalformedError, TooLargeError, UnreadableError
from collector.normalise.otlp_envelope import MAX_PARTS
from collector.otlp.json_mapping import MAX_VALUES
from collector.otlp.message_reader import LocalReader, ProcessReader, serve
from collector.signals import LOGS, METRICS, SIGNALS, TRACES, Signal
from probe.otlp_spans import message
from tests.cache_spans import SHAPES, of_every_cache
from tests.cache_spans import message as cached
from tests.probe.results import EXAMPLE

Message = Callable[..., ExportTraceServiceRequest]


@pytest.fixture
def apart() -> Iterator[ProcessReader]:
    """Return a reader process, which starts at its first use."""
    reading = ProcessReader()
    yield reading
    reading.close()


def _mixed(trace_message: Message) -> bytes:
    """Return a message with a valid span, a refused one, a skipped one, and a truncated text."""
    message = trace_message(tenant="t" * 300)
    spans = message.resource_spans[0].scope_spans[0].spans
    spans.append(spans[0])
    spans[1].trace_id = b""
    spans.add()
    return message.SerializeToString()


def test_the_rows_are_those_read_here(
    apart: ProcessReader, trace_message: Message, now_unix_ns: int
) -> None:
    body = _mixed(trace_message)
    here = LocalReader().read(TRACES, body, False, now_unix_ns)
    for _ in range(2):
        there = apart.read(TRACES, body, False, now_unix_ns)
        assert there == here
    assert there.requests[0].outcome is here.requests[0].outcome
    assert there.complaint == "1 missing_id, 1 missing_outcome"


def test_probes_are_those_read_here(apart: ProcessReader, trace_message: Message) -> None:
    now_unix_ns = EXAMPLE.at_unix_ns + 10**9
    body = message("eu-west", [EXAMPLE]) + trace_message().SerializeToString()
    here = LocalReader().read(TRACES, body, False, now_unix_ns)
    assert here.probes == [EXAMPLE]
    assert apart.read(TRACES, body, False, now_unix_ns) == here


def test_lookups_are_those_read_here(apart: ProcessReader, trace_message: Message) -> None:
    at_unix_ns = EXAMPLE.at_unix_ns
    body = cached(*of_every_cache(at_unix_ns)).SerializeToString()
    body += trace_message().SerializeToString()
    here = LocalReader().read(TRACES, body, False, at_unix_ns + 10**9)
    assert len(here.lookups) == 2 * len(SHAPES)
    assert here.requests
    assert apart.read(TRACES, body, False, at_unix_ns + 10**9) == here


def test_errors_are_returned_unchanged(apart: ProcessReader, now_unix_ns: int) -> None:
    for body, json, error in (
        (b"\xff" * 9, False, MalformedError),
        (b"{", True, MalformedError),
        (b"\x0a\x00" * (MAX_PARTS + 1), False, TooLargeError),
    ):
        with pytest.raises(error):
            apart.read(TRACES, body, json, now_unix_ns)
    assert apart.read(TRACES, b"", False, now_unix_ns).empty


def test_a_process_that_ends_is_replaced(
    apart: ProcessReader, trace_message: Message, now_unix_ns: int
) -> None:
    """The message is read again, because another message may have ended the process."""
    body = trace_message().SerializeToString()
    apart.read(TRACES, body, False, now_unix_ns)
    process = apart._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert apart.read(TRACES, body, False, now_unix_ns).accepted == 1
    assert (apart.task.failures, apart.task.problem) == (1, None)


def starting(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    started = subprocess.Popen

    def start(_command: object, **about: Any) -> Any:
        return started([sys.executable, "-c", program], **about)

    monkeypatch.setattr(subprocess, "Popen", start)


def test_a_message_that_ends_the_process_twice_is_refused_for_good(
    apart: ProcessReader, monkeypatch: pytest.MonkeyPatch, now_unix_ns: int
) -> None:
    """After a retryable response, the sender would repeat the message for ever."""
    poisoned = (
        "import os, sys; from collector.otlp import message_reader as r; real = r.LocalReader.read;"
        "r.LocalReader.read = lambda *a: os.abort() if a[2] == b'poison' else real(*a);"
        "r.serve(sys.stdin.buffer, sys.stdout.buffer)"
    )
    starting(monkeypatch, poisoned)
    with pytest.raises(UnreadableError, match="ended twice") as raised:
        apart.read(TRACES, b"poison", False, now_unix_ns)
    assert raised.value.retry_after_s is None
    assert apart.task.failures == 2
    assert apart.read(TRACES, b"", False, now_unix_ns).empty
    assert apart.task.problem is None


def test_a_message_that_causes_an_exception_is_refused_without_its_content(
    apart: ProcessReader,
    monkeypatch: pytest.MonkeyPatch,
    now_unix_ns: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    starting(
        monkeypatch,
        "import sys; from collector.otlp import message_reader as r; real = r.LocalReader.read;"
        "r.LocalReader.read = lambda *a: {}[a[2]] if a[2] == b'secret' else real(*a);"
        "r.serve(sys.stdin.buffer, sys.stdout.buffer)",
    )
    assert apart.read(TRACES, b"", False, now_unix_ns).empty
    process = apart._process
    with pytest.raises(UnreadableError, match="it is refused"):
        apart.read(TRACES, b"secret", False, now_unix_ns)
    assert "KeyError in" in caplog.text
    assert "secret" not in caplog.text
    assert apart.read(TRACES, b"", False, now_unix_ns).empty
    assert apart._process is process
    assert apart.task.failures == 1


def test_a_message_that_takes_too_long_ends_the_process(
    apart: ProcessReader, monkeypatch: pytest.MonkeyPatch, now_unix_ns: int
) -> None:
    """An alarm ends the reader process, and the message is refused."""
    starting(
        monkeypatch,
        "import signal, sys, time; from collector.otlp import message_reader as r; r.MAX_S = 1;"
        "r.LocalReader.read = lambda *a: time.sleep(60);"
        "r.serve(sys.stdin.buffer, sys.stdout.buffer, None, signal.alarm)",
    )
    begun = time.monotonic()
    with pytest.raises(UnreadableError, match="ended twice"):
        apart.read(TRACES, b"", False, now_unix_ns)
    assert time.monotonic() - begun < 30


def test_a_failed_process_start_is_tried_again(
    apart: ProcessReader, monkeypatch: pytest.MonkeyPatch, now_unix_ns: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(IntakeBusyError, match="cannot be started: Resource"):
        apart.read(TRACES, b"", False, now_unix_ns)
    assert apart.task.problem == "BlockingIOError"
    monkeypatch.undo()
    assert apart.read(TRACES, b"", False, now_unix_ns).empty
    assert apart.task.problem is None


def test_the_reader_process_ends_with_its_input(
    apart: ProcessReader, trace_message: Message, now_unix_ns: int
) -> None:
    apart.read(TRACES, trace_message().SerializeToString(), False, now_unix_ns)
    process = apart._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=30) == 0


def test_half_a_message_is_not_answered() -> None:
    answers = io.BytesIO()
    serve(io.BytesIO(b"\x01"), answers)
    assert answers.getvalue() == b""


def test_every_signal_is_read_there(
    apart: ProcessReader,
    metrics_message: Callable[..., Any],
    events_message: Callable[..., Any],
    now_unix_ns: int,
) -> None:
    for each, body in (
        (METRICS, metrics_message().SerializeToString()),
        (LOGS, events_message().SerializeToString()),
    ):
        there = apart.read(each, body, False, now_unix_ns)
        assert there == LocalReader().read(each, body, False, now_unix_ns)
        assert there.accepted


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: signal.name)
def test_a_message_that_takes_too_long_is_refused(signal: Signal, now_unix_ns: int) -> None:
    reading = ProcessReader(max_cpu_s=0.02)
    try:
        costly = b"[" + b"{}," * (MAX_VALUES // 2 - 1) + b"{}]"
        with pytest.raises(TooLargeError, match=r"took more than 0.02 s; send smaller batches"):
            reading.read(signal, costly, True, now_unix_ns)
        process = reading._process
        assert reading.read(signal, b"", False, now_unix_ns).empty
        assert reading._process is process
    finally:
        reading.close()
