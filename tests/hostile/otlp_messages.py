import itertools
import urllib.request
from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.engine_state.hardware import Machine
from tailspan_vllm.engine_state.state import EngineState, EngineStateSample
from tailspan_vllm.otlp.log_events import EngineStartEvent, message_of
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.record import RequestRecord

from collector.server import Collector
from tests.instrumentation.otlp.sdk_metrics import metrics_of

S = 10**9
_ids = itertools.count()


def resource(replica: str, process: int = 7) -> Resource:
    return Resource(
        {names.SERVICE_INSTANCE_ID: replica, names.PROCESS_PID: process, names.SERVICE_NAME: "vllm"}
    )


def record(ended_unix_ns: int, ttft_s: float = 0.2, **changes: Any) -> RequestRecord:
    given: dict[str, Any] = {
        "received": 100.0,
        "arrived": 100.0,
        "queued": 100.0,
        "scheduled": 100.0,
        "first_token": 100.0 + ttft_s,
        "first_byte": 100.0 + ttft_s,
        "last_token": 104.0,
        "delivered": 104.0,
        "wall_offset_ns": ended_unix_ns - 104 * S,
        "outcome": "stop",
        "basis": "http",
        "request_id": f"chatcmpl-{next(_ids)}",
        "model": "llama",
        "engine": 0,
        "streamed": True,
        "http_status": 200,
        "prompt_tokens": 512,
        "output_tokens": 100,
    }
    return RequestRecord(**{**given, **changes})


def spans(records: Sequence[RequestRecord], replica: str) -> ExportTraceServiceRequest:
    of = resource(replica)
    return encode_spans([span_of(each, of) for each in records])


def samples(at_unix_ns: int, replica: str, **changes: Any) -> ExportMetricsServiceRequest:
    state = EngineState(
        engine=0,
        started_unix_ns=at_unix_ns - 60 * S,
        model="llama",
        gauges={names.WAITING: 3, names.RUNNING: 8},
        totals={names.STEPS: 1000, names.BUSY_TIME: 12.5},
    )
    for name, value in changes.items():
        setattr(state, name, value)
    return encode_metrics(
        metrics_of([EngineStateSample(at_unix_ns, state.snapshot({}, {}))], resource(replica))
    )


def start(
    at_unix_ns: int, replica: str, engine: int = 0, process: int = 7
) -> ExportLogsServiceRequest:
    return message_of(
        [
            EngineStartEvent(
                engine=engine,
                at_unix_ns=at_unix_ns,
                started_unix_ns=at_unix_ns,
                config="c0ffee00",
                model="llama",
                version="0.32.0",
                arguments={"scheduler.max_num_seqs": 16},
                machine=Machine("NVIDIA H100 80GB HBM3", 1, {}),
            )
        ],
        resource(replica, process),
    )


def post(collector: Collector, path: str, body: bytes) -> bytes:
    asked = urllib.request.Request(
        f"http://127.0.0.1:{collector.http_port}{path}",
        body,
        {"Content-Type": "application/x-protobuf"},
    )
    with urllib.request.urlopen(asked, timeout=30) as answer:
        found: bytes = answer.read()
    return found


def send_spans(
    collector: Collector, records: Sequence[RequestRecord], replica: str
) -> ExportTraceServiceResponse:
    answer = post(collector, "/v1/traces", spans(records, replica).SerializeToString())
    return ExportTraceServiceResponse.FromString(answer)
