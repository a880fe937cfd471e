"""The OTLP signals that are received: one row each, shared by both transports."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from collector.errors import MalformedError
from collector.normalise.batch import Batch
from collector.normalise.points import normalise_points
from collector.normalise.spans import normalise_spans
from collector.reasons import Skip


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal: where it is sent, how a message is read, how it is answered."""

    name: str
    http_path: str
    grpc_service: str
    skips: tuple[Skip, ...]
    read: Callable[[bytes, int], Batch]
    """A message and the present (unix ns) in, what it held out; raises MalformedError."""
    answer: Callable[[Batch], bytes]


_Message = TypeVar("_Message", bound=Message)


def _decoded(kind: type[_Message], body: bytes) -> _Message:
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise MalformedError(f"not a protobuf {kind.DESCRIPTOR.full_name}: {error}") from error


def _read_spans(body: bytes, now_unix_ns: int) -> Batch:
    return normalise_spans(_decoded(ExportTraceServiceRequest, body), now_unix_ns)


def _answer_spans(batch: Batch) -> bytes:
    if not batch.refused:
        return ExportTraceServiceResponse().SerializeToString()
    return ExportTraceServiceResponse(
        partial_success=ExportTracePartialSuccess(
            rejected_spans=batch.refused.total(), error_message=batch.complaint
        )
    ).SerializeToString()


def _read_points(body: bytes, now_unix_ns: int) -> Batch:
    return normalise_points(_decoded(ExportMetricsServiceRequest, body), now_unix_ns)


def _answer_points(batch: Batch) -> bytes:
    if not batch.refused:
        return ExportMetricsServiceResponse().SerializeToString()
    return ExportMetricsServiceResponse(
        partial_success=ExportMetricsPartialSuccess(
            rejected_data_points=batch.refused.total(), error_message=batch.complaint
        )
    ).SerializeToString()


TRACES: Final = Signal(
    name="traces",
    http_path="/v1/traces",
    grpc_service=trace_service_pb2.DESCRIPTOR.services_by_name["TraceService"].full_name,
    skips=(Skip.NOT_A_REQUEST,),
    read=_read_spans,
    answer=_answer_spans,
)
METRICS: Final = Signal(
    name="metrics",
    http_path="/v1/metrics",
    grpc_service=metrics_service_pb2.DESCRIPTOR.services_by_name["MetricsService"].full_name,
    skips=(Skip.NOT_OURS, Skip.UNKNOWN_METRIC, Skip.NO_RECORDED_VALUE),
    read=_read_points,
    answer=_answer_points,
)
SIGNALS: Final = (TRACES, METRICS)
