from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from tailspan_vllm import names
from tailspan_vllm.engine_state.hardware import Machine
from tailspan_vllm.engine_state.state import EngineState, EngineStateSample
from tailspan_vllm.otlp.log_events import EngineStartEvent, message_of
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.parts import HeldParts, KvLoad, RequestPhaseParts, RequestQueueParts
from tailspan_vllm.request.record import RequestRecord

from tests.instrumentation.otlp.sdk_metrics import metrics_of

NOW_UNIX_NS = 1_790_000_000 * 10**9


class WallClock:
    def __init__(self, unix_ns: int) -> None:
        self.unix_ns = unix_ns

    def __call__(self) -> int:
        return self.unix_ns


class Party(NamedTuple):
    """The certificate, key and authority files of a client or a server."""

    certificate: Path
    key: Path


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


@pytest.fixture
def issue(authority: trustme.CA, tmp_path: Path) -> Callable[..., Party]:
    def make(name: str = "127.0.0.1", **about: Any) -> Party:
        issued = about.pop("by", authority).issue_cert(name, **about)
        files = Party(tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
        for number, pem in enumerate(issued.cert_chain_pems):
            pem.write_to_path(files.certificate, append=number > 0)
        issued.private_key_pem.write_to_path(files.key)
        return files

    return make


@pytest.fixture
def now_unix_ns() -> int:
    return NOW_UNIX_NS


@pytest.fixture
def resource() -> Resource:
    return Resource(
        {
            names.SERVICE_NAME: "vllm",
            names.SERVICE_INSTANCE_ID: "replica-1",
            names.CLOUD_REGION: "eu-north-1",
            names.PROCESS_PID: 4242,
        }
    )


@pytest.fixture
def record() -> Callable[..., RequestRecord]:
    """Return a function that makes a request record of 1.5 s."""

    def make(**changes: Any) -> RequestRecord:
        given: dict[str, Any] = {
            "received": 100.0,
            "arrived": 100.01,
            "handed": 100.046,
            "queued": 100.05,
            "scheduled": 100.25,
            "first_token": 100.5,
            "first_byte": 100.51,
            "last_token": 101.45,
            "delivered": 101.5,
            "wall_offset_ns": NOW_UNIX_NS - 200 * 10**9,
            "outcome": "stop",
            "basis": "http",
            "request_id": "chatcmpl-1",
            "model": "llama",
            "tenant": "acme",
            "route": "/v1/chat/completions",
            "engine": 0,
            "streamed": True,
            "http_status": 200,
            "prompt_tokens": 512,
            "cached_tokens": 128,
            "external_cached_tokens": 32,
            "kv_load": KvLoad(2**40, "host"),
            "output_tokens": 20,
            "preemptions": 0,
            "itl_max_s": 0.08,
            "others_prefill_tokens_max": 300,
            "billed_s": 0.3,
            "wasted_s": 0.01,
            "queue_parts": RequestQueueParts(0.1, 0.0, 0.0, 0.06, 0.04),
            "held_parts": HeldParts(0.01, 0.02, 0.03),
            "prefill_parts": RequestPhaseParts(0.04, 0.01, 0.0, 0.0, 0.0),
            "decode_parts": RequestPhaseParts(0.2, 0.05, 0.05, 0.0, 0.0),
            "waiting_at_arrival": 3,
            "running_at_arrival": 8,
            "kv_usage_at_arrival": 0.4,
        }
        return RequestRecord(**{**given, **changes})

    return make


@pytest.fixture
def span(record: Callable[..., RequestRecord], resource: Resource) -> Callable[..., ReadableSpan]:
    return lambda **changes: span_of(record(**changes), resource)


@pytest.fixture
def trace_message(span: Callable[..., ReadableSpan]) -> Callable[..., ExportTraceServiceRequest]:
    return lambda **changes: encode_spans([span(**changes)])


@pytest.fixture
def metrics(resource: Resource) -> Callable[..., MetricsData]:
    def make(**changes: Any) -> MetricsData:
        state = EngineState(
            engine=0,
            started_unix_ns=NOW_UNIX_NS - 60 * 10**9,
            model="llama",
            gauges={
                names.WAITING: 3,
                names.RUNNING: 8,
                names.KV_USAGE: 0.5,
                names.LONGEST_STEP: 0.02,
            },
            totals={
                names.STEPS: 1000,
                names.BUSY_TIME: 12.5,
                names.PREFILL_TOKENS: 5000,
                names.DECODE_TOKENS: 900,
                names.PREFIX_CACHE_QUERIES: 4000,
                names.PREFIX_CACHE_HITS: 1000,
                names.ENGINE_PREEMPTIONS: 2,
            },
        )
        for name, value in changes.items():
            setattr(state, name, value)
        return metrics_of(
            [EngineStateSample(NOW_UNIX_NS, state.snapshot({names.SPANS_DROPPED: 0}, {}))], resource
        )

    return make


@pytest.fixture
def metrics_message(
    metrics: Callable[..., MetricsData],
) -> Callable[..., ExportMetricsServiceRequest]:
    return lambda **changes: encode_metrics(metrics(**changes))


@pytest.fixture
def events_message(resource: Resource) -> Callable[..., ExportLogsServiceRequest]:
    def make(**changes: Any) -> ExportLogsServiceRequest:
        given: dict[str, Any] = {
            "engine": 0,
            "at_unix_ns": NOW_UNIX_NS - 60 * 10**9,
            "started_unix_ns": NOW_UNIX_NS - 60 * 10**9,
            "config": "c0ffee00",
            "model": "llama",
            "version": "0.32.0",
            "arguments": {
                "scheduler.max_num_seqs": 16,
                "scheduler.policy": "fcfs",
                "cache.enable_prefix_caching": True,
                "cache.gpu_memory_utilization": 0.9,
            },
            "machine": Machine("NVIDIA H100 80GB HBM3", 2, {"layers": 32}, 95.5),
        }
        return message_of([EngineStartEvent(**{**given, **changes})], resource)

    return make
