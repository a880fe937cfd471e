"""An OpenTelemetry collector between senders and Tailspan: rotel, from its package on PyPI."""

import importlib.util
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.server import Collector
from collector.testing import MemorySink, running
from rig.ports import free_port
from rig.program import Program

pytestmark = pytest.mark.real

SAMPLES = Path(__file__).parent / "samples"
PATIENCE_S = 30.0
ROWS = ("requests", "samples", "starts", "gpus", "in_flight", "operations", "lookups")


def _agent() -> Path:
    found = importlib.util.find_spec("rotel")
    if found is None or found.origin is None:
        pytest.skip("the package rotel is not installed: pip install 'tailspan[rotel]'")
    agent = Path(found.origin).parent / "rotel-agent"
    if not os.access(agent, os.X_OK):
        pytest.skip(f"{agent.name} of the package rotel is not executable")
    return agent


def _sample(path: Path) -> tuple[str, bytes]:
    """Return the path and the body of a recorded message."""
    (message, *_) = json.loads(path.read_text())["messages"]
    if "resourceLogs" in message:
        return "/v1/logs", ParseDict(message, ExportLogsServiceRequest()).SerializeToString()
    return "/v1/traces", ParseDict(message, ExportTraceServiceRequest()).SerializeToString()


@pytest.fixture
def messages(
    trace_message: Callable[..., Any], events_message: Callable[..., Any]
) -> list[tuple[str, bytes]]:
    """Return the path and the body of messages of the plugin and of other senders."""
    return [
        ("/v1/traces", trace_message().SerializeToString()),
        ("/v1/logs", events_message().SerializeToString()),
        *(("/v1/metrics", path.read_bytes()) for path in sorted(SAMPLES.glob("tailspan-*.otlp"))),
        *(
            _sample(path)
            for path in sorted(SAMPLES.glob("*-*.json"))
            if not path.name.startswith("tailspan-")
        ),
    ]


def _post(port: int, messages: list[tuple[str, bytes]]) -> None:
    for path, body in messages:
        answer = httpx.post(
            f"http://127.0.0.1:{port}{path}",
            content=body,
            headers={"content-type": "application/x-protobuf"},
            timeout=10,
        )
        assert answer.status_code == 200, answer.text


def _rows(sink: MemorySink) -> dict[str, list[Any]]:
    return {kind: sorted(getattr(sink, kind), key=repr) for kind in ROWS}


@pytest.fixture(params=["grpc", "http"])
def between(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, MemorySink]]:
    """Start Tailspan's collector and a rotel that forwards to it.

    Returns:
        The port of rotel's OTLP over HTTP, and the sink behind Tailspan's collector.
    """
    sink, agent = MemorySink(), _agent()
    grpc_port, http_port = free_port(), free_port()
    with running(Collector(sink, grpc_port=0, http_port=0)) as collector:
        port = collector.grpc_port if request.param == "grpc" else collector.http_port
        command = (
            *(str(agent), "start", "--exporter", "otlp"),
            *("--otlp-grpc-endpoint", f"127.0.0.1:{grpc_port}"),
            *("--otlp-http-endpoint", f"127.0.0.1:{http_port}"),
            *("--otlp-exporter-protocol", request.param),
            *("--otlp-exporter-endpoint", f"http://127.0.0.1:{port}"),
            *("--batch-timeout", "200ms"),
        )
        with Program(tmp_path, *command) as program:
            _wait(lambda: _listens(http_port), lambda: program.printed)
            yield http_port, sink


def _listens(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/", timeout=2)
    except httpx.TransportError:
        return False
    return True


def _wait(done: Callable[[], bool], why: Callable[[], object]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until_s, why()
        time.sleep(0.05)


def test_no_row_is_lost_or_changed(
    between: tuple[int, MemorySink], messages: list[tuple[str, bytes]]
) -> None:
    """The rows equal those of messages that are sent to Tailspan directly."""
    direct = MemorySink()
    with running(Collector(direct, grpc_port=0, http_port=0)) as collector:
        _post(collector.http_port, messages)
    expected = _rows(direct)
    assert all(expected[kind] for kind in ROWS if kind not in ("in_flight", "lookups"))
    port, sink = between
    _post(port, messages)
    _wait(
        lambda: all(len(_rows(sink)[kind]) >= len(expected[kind]) for kind in ROWS),
        lambda: {kind: (len(_rows(sink)[kind]), len(expected[kind])) for kind in ROWS},
    )
    assert _rows(sink) == expected


def test_rows_arrive_after_the_database_has_failed(
    between: tuple[int, MemorySink], messages: list[tuple[str, bytes]]
) -> None:
    """Tailspan asks rotel to retry, and rotel sends the message again."""
    port, sink = between
    sink.failure = OSError("the disk is full")
    _post(port, messages[:1])
    assert sink.submitted.acquire(timeout=PATIENCE_S)
    sink.failure = None
    _wait(lambda: len(sink.requests) == 1, lambda: sink.requests)
