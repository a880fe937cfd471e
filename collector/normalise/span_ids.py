"""The trace id and the span id of a span."""

from typing import Final

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.drop_reasons import Refusal
from collector.normalise.values import RefusalError

_TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8


def trace_id_of(span: Span | LogRecord) -> str:
    """Return the trace id in hexadecimal. Raise RefusalError if it is missing."""
    return _identity(span.trace_id, _TRACE_ID_BYTES)


def span_id_of(span: Span | LogRecord) -> str:
    """Return the span id in hexadecimal. Raise RefusalError if it is missing."""
    return _identity(span.span_id, SPAN_ID_BYTES)


def _identity(given: bytes, length: int) -> str:
    if len(given) != length or not any(given):
        raise RefusalError(Refusal.MISSING_ID)
    return given.hex()
