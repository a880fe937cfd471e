"""Tests that the failed start of a real process reaches the collector."""

import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tailspan_vllm import names
from tailspan_vllm.start_up.progress import ProgressReports, StartStage, note

PROGRAM = """
import multiprocessing, os, sys
from types import SimpleNamespace
from tailspan_vllm.engine_core.link import TOKEN_VARIABLE
os.environ[TOKEN_VARIABLE] = {token!r}
from tailspan_vllm.start_up.hooks import install_on
from tailspan_vllm.start_up.instants import StartRecord
from tailspan_vllm.start_up.process import note_first_process
from tailspan_vllm.export.start_watch import StartWatch
assert note_first_process(os.environ)
StartWatch(os.environ).begin()
class Worker:
    vllm_config = SimpleNamespace(
        compilation_config=None, parallel_config=SimpleNamespace(data_parallel_index=3)
    )
    def load_model(self):
        {how}
    def determine_available_memory(self): pass
    def compile_or_warm_up_model(self): pass
class Wrapper:
    worker = Worker()
    def init_device(self): pass
class Executor:
    def __init__(self, vllm_config):
        wrapper = Wrapper()
        wrapper.init_device()
        wrapper.worker.load_model()
class Core:
    def __init__(self):
        Executor(Worker.vllm_config)
        self._initialize_kv_caches(Worker.vllm_config)
    def _initialize_kv_caches(self, vllm_config): pass
install_on(Executor, Core, Wrapper, {token!r}, StartRecord())
{start}
"""


@pytest.fixture
def collector() -> Iterator[SimpleNamespace]:
    received: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}", received=received)
    server.shutdown()
    thread.join()
    server.server_close()


def run(url: str, how: str, start: str = "Core()") -> subprocess.CompletedProcess[str]:
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TAILSPAN")},
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=chat-0",
    }
    program = PROGRAM.format(how=how, start=start, token=f"watch-{os.getpid()}")
    return subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60
    )


def attributes_of(collector: SimpleNamespace) -> dict[str, object]:
    (body,) = collector.received
    (spans,) = ExportTraceServiceRequest.FromString(body).resource_spans
    resource = {each.key: each.value.string_value for each in spans.resource.attributes}
    assert resource["service.instance.id"] == "chat-0"
    (span,) = spans.scope_spans[0].spans
    assert span.name == names.START
    found = {
        each.key: getattr(each.value, each.value.WhichOneof("value") or "")
        for each in span.attributes
    }
    parts = [value for value in found.values() if isinstance(value, float)]
    assert sum(parts) == pytest.approx((span.end_time_unix_nano - span.start_time_unix_nano) / 1e9)
    return found


def test_an_exception_is_sent_with_the_part_that_raised_it(collector: SimpleNamespace) -> None:
    ended = run(collector.url, "raise MemoryError('no memory')")
    assert "MemoryError: no memory" in ended.stderr
    found = attributes_of(collector)
    assert found[names.START_REACHED] == "weights"
    assert found[names.START_FAILURE] == "MemoryError"
    assert found[names.ENGINE] == 3
    assert found[names.START_WEIGHTS] >= 0  # type: ignore[operator]


def test_a_killed_engine_process_is_sent_as_the_end_of_the_server(
    collector: SimpleNamespace,
) -> None:
    start = (
        "child = multiprocessing.get_context('fork').Process(target=Core); child.start();"
        " child.join(); sys.exit(1)"
    )
    ended = run(collector.url, "os.kill(os.getpid(), 9)", start)
    assert ended.returncode == 1, ended.stderr
    found = attributes_of(collector)
    assert (found[names.START_REACHED], found[names.START_FAILURE]) == ("weights", "exit")


def test_a_start_that_succeeds_sends_nothing(collector: SimpleNamespace) -> None:
    assert run(collector.url, "pass").returncode == 0
    assert collector.received == []


def test_a_missing_collector_delays_the_end_by_no_more_than_the_limit() -> None:
    ended = run("http://127.0.0.1:9", "raise MemoryError('no memory')")
    assert "MemoryError: no memory" in ended.stderr


def test_a_report_has_the_engine_of_the_configuration() -> None:
    token = f"numbering-{os.getpid()}"
    reports = ProgressReports(token)
    for number in (2, -1, "x", None):
        parallel = SimpleNamespace(data_parallel_rank=number)
        note(token, SimpleNamespace(parallel_config=parallel), StartStage.READY, 1.0)
    note(token, None, StartStage.FAILED, error="A" * 60)
    found = reports.read()
    assert [each.engine for each in found] == [2, 0, 0, 0, 0]
    assert found[-1].error == "A" * 40
