"""Convert spans of NVIDIA Dynamo's front end to request timelines. Pure.

With `OTEL_EXPORT_ENABLED=true`, the front end sends one span for each HTTP request. Its numbers are
texts, which are rounded to hundredths of a millisecond. `ttft_ms` ends when the front end receives
the first token. The prefill time is not read, because it includes the engine's queue. The workers'
spans are not read, because they describe the same requests.

Source: spans of ai-dynamo 1.6.1, recorded in tests/collector/samples/dynamo-1.6.1.json.
"""

import re
from typing import Final, NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.drop_reasons import Refusal
from collector.normalise.resources import ResourceLabels
from collector.normalise.span_ids import span_id_of, trace_id_of
from collector.normalise.span_times import start_and_end
from collector.normalise.values import (
    AttributeReader,
    RefusalError,
    attributes_of,
    count,
    finite,
    seconds,
)
from telemetry.requests import Basis, Outcome, RequestTimeline, Source

_SPAN: Final = "http-request"
_TARGET: Final = "request_span"
"""The required value of the attribute `target`, because other Rust programs may use the same span
name."""
_RECEIVED: Final = "request received"
_SENT: Final = "http response sent"
_COMPLETED: Final = "request completed"
_NO_SUCH_MODEL: Final = "unknown_model"

_SLACK_S: Final = 1e-3
"""Tolerance between a latency and the span's duration, because different clocks measure them."""
_ROUNDING_S: Final = 0.005e-3

_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_STATUS: Final = re.compile(r"[1-5][0-9]{2}")


class _Path(NamedTuple):
    operation: str
    id_prefix: str | None
    """The id in a response is this prefix and the span's `request_id`. It is None if the prefix is
    unknown."""


_PATHS: Final = {
    "/v1/chat/completions": _Path("chat", "chatcmpl-"),
    "/v1/completions": _Path("text_completion", "cmpl-"),
    "/v1/responses": _Path("chat", None),
    "/v1/embeddings": _Path("embeddings", None),
}


def request_of_dynamo(
    span: Span, origin: ResourceLabels, now_unix_ns: int
) -> tuple[RequestTimeline, int] | None:
    """Return the request of a span and the number of truncated texts. Return None if the span is no
    request.

    Raises:
        RefusalError: the span is a request, but invalid.
    """
    if span.name != _SPAN:
        return None
    attributes = attributes_of(span.attributes)
    path = _PATHS.get(attributes["uri"].string_value) if "uri" in attributes else None
    if path is None or "target" not in attributes or attributes["target"].string_value != _TARGET:
        return None
    reader = AttributeReader(attributes)
    start_unix_ns, end_unix_ns = start_and_end(span, now_unix_ns)
    e2e_s = seconds((end_unix_ns - start_unix_ns) / 1e9)
    ttft_s = _milliseconds(reader, "ttft_ms")
    if ttft_s is not None and ttft_s > e2e_s + _SLACK_S:
        raise RefusalError(Refusal.PARTS_DO_NOT_SUM)
    output_tokens = _count(reader, "output_tokens")
    status = _status(span)
    request_id, model = reader.text("request_id"), reader.text("model")
    known_id = request_id is not None and path.id_prefix is not None
    request = RequestTimeline(
        trace_id=trace_id_of(span),
        span_id=span_id_of(span),
        received_unix_ns=start_unix_ns,
        e2e_s=e2e_s,
        ttft_s=ttft_s,
        decode_s=_decode_s(_milliseconds(reader, "avg_itl_ms"), output_tokens, ttft_s, e2e_s),
        outcome=_outcome(span, reader.text("request.outcome"), status),
        source=Source.SIMULATOR if origin.simulated else Source.NATIVE,
        basis=Basis.EDGE,
        request_id=f"{path.id_prefix}{request_id}" if known_id else None,
        operation=path.operation,
        route=reader.text("uri"),
        model=None if model == _NO_SUCH_MODEL else model,
        http_status=status,
        error_type=_event_text(span, _COMPLETED, "error_type"),
        streamed=_streamed(span),
        prompt_tokens=_count(reader, "input_tokens"),
        output_tokens=output_tokens,
        region=origin.region,
        replica=origin.replica,
    )
    return request, reader.truncated_texts


def _outcome(span: Span, reported: str | None, status: int | None) -> Outcome:
    """The outcome of a request, according to its outcome text, its HTTP status and the span's
    status."""
    if reported == "cancelled":
        return Outcome.ABORT
    if status is not None and 400 <= status < 500:
        return Outcome.REJECTED
    failed = span.status.code == span.status.STATUS_CODE_ERROR or (status or 200) >= 500
    return Outcome.ERROR if failed or reported not in (None, "success") else Outcome.STOP


def _decode_s(
    gap_s: float | None, output_tokens: int | None, ttft_s: float | None, e2e_s: float
) -> float | None:
    """The time between the first and the last token: the mean gap times the number of gaps."""
    if gap_s is None or ttft_s is None or output_tokens is None or output_tokens < 2:
        return None
    gaps = output_tokens - 1
    decode_s, max_s = gap_s * gaps, max(e2e_s - ttft_s, 0.0)
    if decode_s > max_s + _SLACK_S + _ROUNDING_S * gaps:
        raise RefusalError(Refusal.PHASES_DO_NOT_SUM)
    return min(decode_s, max_s)


def _milliseconds(reader: AttributeReader, name: str) -> float | None:
    value = _number(reader, name)
    return None if value is None else seconds(value / 1e3)


def _count(reader: AttributeReader, name: str) -> int | None:
    value = _number(reader, name)
    if value is None:
        return None
    if value != int(value):
        raise RefusalError(Refusal.WRONG_TYPE)
    return count(int(value))


def _number(reader: AttributeReader, name: str) -> float | None:
    value = reader.scalar(name)
    if value is None:
        return None
    if isinstance(value, bool) or (isinstance(value, str) and not _NUMBER.fullmatch(value)):
        raise RefusalError(Refusal.WRONG_TYPE)
    return finite(float(value))


def _event_text(span: Span, name: str, attribute: str) -> str | None:
    for event in span.events:
        if event.name == name:
            return AttributeReader(attributes_of(event.attributes)).label(attribute)
    return None


def _status(span: Span) -> int | None:
    text = _event_text(span, _SENT, "status")
    return int(text) if text is not None and _STATUS.fullmatch(text) else None


def _streamed(span: Span) -> bool | None:
    return {"stream": True, "unary": False}.get(_event_text(span, _RECEIVED, "request_type") or "")
