"""The OTLP signals that the collector receives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
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

from collector.drop_reasons import Skip
from collector.normalise.batch import NormalisedBatch
from collector.normalise.engine_points import normalise_points
from collector.normalise.log_events import normalise_events
from collector.normalise.spans import normalise_spans


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal: its HTTP path, and the functions that read its messages and create the
    responses."""

    name: str
    http_path: str
    grpc_service: str
    skips: tuple[Skip, ...]
    request: type[Message]
    read: Callable[[bytes, int], NormalisedBatch]
    """Converts a protobuf message and its arrival (unix ns) to a batch.

    Raises MalformedError or TooLargeError.
    """
    answer: Callable[[NormalisedBatch], Message]


def _answer_spans(batch: NormalisedBatch) -> Message:
    if not batch.refused:
        return ExportTraceServiceResponse()
    return ExportTraceServiceResponse(
        partial_success=ExportTracePartialSuccess(
            rejected_spans=batch.refused.total(), error_message=batch.complaint
        )
    )


def _answer_points(batch: NormalisedBatch) -> Message:
    if not batch.refused:
        return ExportMetricsServiceResponse()
    return ExportMetricsServiceResponse(
        partial_success=ExportMetricsPartialSuccess(
            rejected_data_points=batch.refused.total(), error_message=batch.complaint
        )
    )


def _answer_events(batch: NormalisedBatch) -> Message:
    if not batch.refused:
        return ExportLogsServiceResponse()
    return ExportLogsServiceResponse(
        partial_success=ExportLogsPartialSuccess(
            rejected_log_records=batch.refused.total(), error_message=batch.complaint
        )
    )


TRACES: Final = Signal(
    name="traces",
    http_path="/v1/traces",
    grpc_service=trace_service_pb2.DESCRIPTOR.services_by_name["TraceService"].full_name,
    skips=(Skip.NOT_A_REQUEST,),
    request=ExportTraceServiceRequest,
    read=normalise_spans,
    answer=_answer_spans,
)
METRICS: Final = Signal(
    name="metrics",
    http_path="/v1/metrics",
    grpc_service=metrics_service_pb2.DESCRIPTOR.services_by_name["MetricsService"].full_name,
    skips=(Skip.NOT_OURS, Skip.UNKNOWN_METRIC, Skip.NO_RECORDED_VALUE),
    request=ExportMetricsServiceRequest,
    read=normalise_points,
    answer=_answer_points,
)
LOGS: Final = Signal(
    name="logs",
    http_path="/v1/logs",
    grpc_service=logs_service_pb2.DESCRIPTOR.services_by_name["LogsService"].full_name,
    skips=(Skip.NOT_AN_EVENT,),
    request=ExportLogsServiceRequest,
    read=normalise_events,
    answer=_answer_events,
)
SIGNALS: Final = (TRACES, METRICS, LOGS)
