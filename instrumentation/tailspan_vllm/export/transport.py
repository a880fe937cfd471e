"""Sends one encoded OTLP message once, and returns the outcome.

OpenTelemetry's exporters return only success or failure, and sleep between retries. The plugin
needs the response, to split refused batches and to respect the collector's pauses.

Source: OTLP specification 1.x, "OTLP/gRPC" and "OTLP/HTTP": response, throttling, retryable codes.
"""

import gzip
import math
import time
import zlib
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tailspan_vllm.export.destination import Compression, Destination, Signal


class ExportVerdict(Enum):
    """The result of sending a message."""

    ACCEPTED = "accepted"
    UNREACHABLE = "unreachable"
    """There was no response. Send the message again later."""
    BUSY = "busy"
    """The collector asks for a pause before the message is sent again."""
    REFUSED = "refused"
    """The collector refuses this message. It may accept some of its items."""
    DENIED = "denied"
    """The collector refuses every message: the token is wrong, or the service does not exist."""


class ExportResponse(NamedTuple):
    """The response to one message."""

    verdict: ExportVerdict
    reason: str = ""
    """A status code or error name, followed by the collector's message."""
    wait_s: float | None = None
    """The seconds for which the collector asks the sender to wait."""
    rejected: int = 0

    @property
    def retryable(self) -> bool:
        """Return whether the same message may be sent again."""
        return self.verdict in (ExportVerdict.UNREACHABLE, ExportVerdict.BUSY)


Post = Callable[[bytes], ExportResponse]
"""Sends a message once, within the destination's time limit. Never raises."""

ANSWER_BYTES: Final = 65536
"""Maximum number of bytes to read from an HTTP response."""

REASON_CHARS: Final = 200

NOT_HTTP: Final = "the response is not HTTP; is this the collector's gRPC port?"

_SERVICES: Final[Mapping[Signal, tuple[str, Any, str]]] = {
    "traces": (
        "opentelemetry.proto.collector.trace.v1.TraceService",
        ExportTraceServiceResponse,
        "rejected_spans",
    ),
    "metrics": (
        "opentelemetry.proto.collector.metrics.v1.MetricsService",
        ExportMetricsServiceResponse,
        "rejected_data_points",
    ),
    "logs": (
        "opentelemetry.proto.collector.logs.v1.LogsService",
        ExportLogsServiceResponse,
        "rejected_log_records",
    ),
}

_RETRYABLE_RPC: Final = frozenset(
    {"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"}
)
_DENYING_RPC: Final = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED"})
_RETRYABLE_HTTP: Final = frozenset({429, 502, 503, 504})
_DENYING_HTTP: Final = frozenset({401, 403, 404, 405, 407})

_RECONNECT_MS: Final = 5000
"""gRPC's longest pause before it connects again. The default (up to two minutes) would be added to
the outbox's pause."""


def post_to(destination: Destination) -> Post:
    """A function that sends messages to a destination."""
    if destination.protocol == "grpc":
        return _grpc_post(destination)
    return _http_post(destination)


def _grpc_post(destination: Destination) -> Post:
    import grpc

    service, response, rejected = _SERVICES[destination.signal]
    compression = {
        "none": grpc.Compression.NoCompression,
        "gzip": grpc.Compression.Gzip,
        "deflate": grpc.Compression.Deflate,
    }[destination.compression]
    options = (
        ("grpc.primary_user_agent", "tailspan-vllm"),
        ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS),
    )
    if destination.secure:
        credentials = grpc.ssl_channel_credentials(
            _content(destination.certificate),
            _content(destination.client_key),
            _content(destination.client_certificate),
        )
        channel = grpc.secure_channel(destination.endpoint, credentials, options, compression)
    else:
        channel = grpc.insecure_channel(destination.endpoint, options, compression)
    export = channel.unary_unary(
        f"/{service}/Export", request_serializer=None, response_deserializer=response.FromString
    )

    def post(message: bytes) -> ExportResponse:
        try:
            answer = export(message, timeout=destination.timeout_s, metadata=destination.headers)
        except grpc.RpcError as error:
            return _rpc_failure(error)
        except Exception as error:  # the cause is the channel or our headers, not the message
            return ExportResponse(ExportVerdict.DENIED, _line(f"{type(error).__name__}: {error}"))
        return _accepted(answer, rejected)

    return post


def _rpc_failure(error: Any) -> ExportResponse:
    code: str = error.code().name
    reason = _line(f"{code}: {error.details() or ''}")
    trailing = dict(error.trailing_metadata() or ())
    wait_s = _retry_delay_s(trailing)
    if wait_s is not None and code in (*_RETRYABLE_RPC, "RESOURCE_EXHAUSTED"):
        return ExportResponse(ExportVerdict.BUSY, reason, wait_s)
    if code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
        return ExportResponse(ExportVerdict.UNREACHABLE, reason)
    if code in _RETRYABLE_RPC:
        return ExportResponse(ExportVerdict.BUSY, reason)
    return ExportResponse(
        ExportVerdict.DENIED if code in _DENYING_RPC else ExportVerdict.REFUSED, reason
    )


def _retry_delay_s(trailing: Mapping[str, Any]) -> float | None:
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    retry = RetryInfo()
    try:
        if (info := trailing.get("google.rpc.retryinfo-bin")) is not None:
            retry.ParseFromString(info)
            return float(retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9)
        if (details := trailing.get("grpc-status-details-bin")) is not None:
            for detail in Status.FromString(details).details:
                if detail.Unpack(retry):
                    return float(retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9)
    except Exception:  # a malformed RetryInfo is ignored
        return None
    return None


def _http_post(destination: Destination) -> Post:
    import requests

    _, response, rejected = _SERVICES[destination.signal]
    session = requests.Session()
    session.headers.clear()
    session.headers.update(
        {
            "content-type": "application/x-protobuf",
            "user-agent": "tailspan-vllm",
            **dict(destination.headers),
        }
    )
    session.verify = destination.certificate or True
    if destination.client_certificate and destination.client_key:
        session.cert = (destination.client_certificate, destination.client_key)
    else:
        session.cert = destination.client_certificate
    compression = destination.compression
    if compression != "none":
        session.headers["content-encoding"] = compression

    def attempt(body: bytes) -> ExportResponse:
        with session.post(
            destination.endpoint,
            data=body,
            timeout=destination.timeout_s,
            allow_redirects=False,
            stream=True,
        ) as answer:
            content = answer.raw.read(ANSWER_BYTES, decode_content=True)
            if answer.status_code // 100 == 2:
                is_protobuf = "protobuf" in answer.headers.get("content-type", "")
                return _accepted(_parsed(response, content if is_protobuf else b""), rejected)
            return http_failure(answer.status_code, answer.headers, answer.reason)

    def post(message: bytes) -> ExportResponse:
        try:
            body = _compressed(message, compression)
            try:
                return attempt(body)
            except requests.ConnectionError as error:
                if isinstance(error, requests.Timeout):
                    raise
                return attempt(body)  # the server may have closed the idle connection
        except (requests.ConnectionError, requests.Timeout, OSError) as error:
            if isinstance(error, ValueError):  # raised by `requests` for a malformed URL or header
                return ExportResponse(
                    ExportVerdict.DENIED, _line(f"{type(error).__name__}: {error}")
                )
            if "BadStatusLine" in str(error):
                return ExportResponse(ExportVerdict.UNREACHABLE, NOT_HTTP)
            return ExportResponse(
                ExportVerdict.UNREACHABLE, _line(f"{type(error).__name__}: {error}")
            )
        except Exception as error:  # the cause is the connection or our headers, not the message
            return ExportResponse(ExportVerdict.DENIED, _line(f"{type(error).__name__}: {error}"))

    return post


def _compressed(message: bytes, compression: Compression) -> bytes:
    match compression:
        case "gzip":
            return gzip.compress(message)
        case "deflate":
            return zlib.compress(message)
    return message


def http_failure(status: int, headers: Mapping[str, str], phrase: str = "") -> ExportResponse:
    """The outcome of a status other than 2xx. Names in `headers` are in lower case or
    case-insensitive."""
    reason = _line(f"HTTP {status} {phrase}")
    if status in _RETRYABLE_HTTP:
        return ExportResponse(
            ExportVerdict.BUSY, reason, _retry_after_s(headers.get("retry-after", ""))
        )
    if status in _DENYING_HTTP or status // 100 in (1, 3):
        return ExportResponse(ExportVerdict.DENIED, reason)
    return ExportResponse(ExportVerdict.REFUSED, reason)


def _retry_after_s(text: str) -> float | None:
    """Seconds of a delay or a date. Source: RFC 9110, "Retry-After"."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _parsed(response: Any, content: bytes) -> Any:
    try:
        return response.FromString(content)
    except Exception:  # the body is not OTLP, but the status is a success
        return response()


def _accepted(answer: Any, rejected: str) -> ExportResponse:
    count = getattr(answer.partial_success, rejected)
    reason = f"partial success: {answer.partial_success.error_message}" if count else ""
    return ExportResponse(ExportVerdict.ACCEPTED, _line(reason), rejected=max(count, 0))


def _line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:REASON_CHARS]).strip()


def _content(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
