"""OTLP spans → request timelines.

Pure. Every span is kept, skipped (it is no request's) or refused (it is, and is wrong);
nothing that can be decoded as OTLP makes this raise.
"""

from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tailspan_vllm import names

from collector.normalise.batch import Batch
from collector.normalise.resources import Origin, origin_of
from collector.normalise.values import Reader, RefusalError, attributes_of, instant, seconds
from collector.reasons import Refusal, Skip
from telemetry.requests import (
    DECODE_PARTS,
    PREFILL_PARTS,
    Basis,
    Outcome,
    RequestTimeline,
    Source,
)

TOLERANCE_S: Final = 1e-3
"""Rounding to the nanosecond costs far less; a forgotten phase costs far more."""

_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8
_OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome}
_BASES: Final = {basis.value: basis for basis in Basis}
_PARTS: Final = {
    "prefill_s": (PREFILL_PARTS, names.PREFILL_PARTS),
    "decode_s": (DECODE_PARTS, names.DECODE_PARTS),
}
"""The columns of each phase's parts, and their names on the wire, in the same order."""


def normalise_spans(message: ExportTraceServiceRequest, now_unix_ns: int) -> Batch:
    """The requests that a trace export tells of."""
    batch = Batch()
    for group in message.resource_spans:
        origin = origin_of(group.resource.attributes)
        batch.truncated_texts += origin.truncated_texts
        for scoped in group.scope_spans:
            if scoped.scope.name != names.SCOPE:
                batch.skipped[Skip.NOT_A_REQUEST] += len(scoped.spans)
                continue
            for span in scoped.spans:
                _add(batch, span, origin, now_unix_ns)
    return batch


def _add(batch: Batch, span: Span, origin: Origin, now_unix_ns: int) -> None:
    reader = Reader(attributes_of(span.attributes))
    if names.OUTCOME not in reader:
        batch.skipped[Skip.NOT_A_REQUEST] += 1
        return
    try:
        timeline = _timeline(span, reader, origin, now_unix_ns)
    except RefusalError as refusal:
        batch.refused[refusal.reason] += 1
        return
    batch.requests.append(timeline)
    batch.accepted += 1
    batch.truncated_texts += reader.truncated_texts


def _timeline(span: Span, reader: Reader, origin: Origin, now_unix_ns: int) -> RequestTimeline:
    start_unix_ns = instant(span.start_time_unix_nano, now_unix_ns)
    if span.end_time_unix_nano < start_unix_ns:
        raise RefusalError(Refusal.ENDS_BEFORE_START)
    e2e_s = seconds((span.end_time_unix_nano - start_unix_ns) / 1e9)
    outcome = _OUTCOMES.get(reader.text(names.OUTCOME) or "")
    if outcome is None:
        raise RefusalError(Refusal.UNKNOWN_OUTCOME)
    basis = _BASES.get(reader.text(names.BASIS) or "")
    if basis is None:
        raise RefusalError(Refusal.UNKNOWN_BASIS)
    phases = {
        "frontend_s": reader.seconds(names.FRONTEND),
        "queue_s": reader.seconds(names.QUEUE),
        "prefill_s": reader.seconds(names.PREFILL),
        "decode_s": reader.seconds(names.DECODE),
        "delivery_s": reader.seconds(names.DELIVERY),
    }
    known = [phase for phase in phases.values() if phase is not None]
    if known and abs(sum(known) - e2e_s) > TOLERANCE_S:
        raise RefusalError(Refusal.PHASES_DO_NOT_SUM)
    return RequestTimeline(
        trace_id=_identity(span.trace_id, _TRACE_ID_BYTES),
        span_id=_identity(span.span_id, _SPAN_ID_BYTES),
        request_id=reader.text(names.RESPONSE_ID),
        received_unix_ns=start_unix_ns,
        e2e_s=e2e_s,
        outcome=outcome,
        source=Source.SIMULATOR if origin.simulated else Source.INSTRUMENTATION,
        basis=basis,
        **phases,
        **_parts(reader, "prefill_s", phases["prefill_s"]),
        **_parts(reader, "decode_s", phases["decode_s"]),
        ttft_s=reader.seconds(names.TTFT),
        itl_max_s=reader.seconds(names.ITL_MAX),
        operation=reader.text(names.OPERATION_NAME),
        model=reader.text(names.REQUEST_MODEL),
        lora=reader.text(names.LORA),
        route=reader.text(names.HTTP_ROUTE),
        tenant=reader.text(names.TENANT),
        region=origin.region,
        replica=origin.replica,
        engine=reader.count(names.ENGINE),
        config=reader.text(names.CONFIG),
        streamed=reader.flag(names.STREAMED),
        http_status=reader.count(names.HTTP_STATUS_CODE),
        error_type=reader.text(names.ERROR_TYPE),
        prompt_tokens=reader.count(names.INPUT_TOKENS),
        cached_tokens=reader.count(names.CACHE_READ_INPUT_TOKENS),
        output_tokens=reader.count(names.OUTPUT_TOKENS),
        preemptions=reader.count(names.PREEMPTIONS),
        waiting_at_arrival=reader.count(names.WAITING_AT_ARRIVAL),
        running_at_arrival=reader.count(names.RUNNING_AT_ARRIVAL),
        kv_usage_at_arrival=reader.ratio(names.KV_USAGE_AT_ARRIVAL),
    )


def _parts(reader: Reader, phase: str, phase_s: float | None) -> dict[str, float | None]:
    """The parts of a phase, by column; all of them known, or none."""
    columns, told = _PARTS[phase]
    parts = dict(zip(columns, (reader.seconds(name) for name in told), strict=True))
    known = [part for part in parts.values() if part is not None]
    if not known:
        return parts
    if phase_s is None or len(known) < len(columns) or abs(sum(known) - phase_s) > TOLERANCE_S:
        raise RefusalError(Refusal.PARTS_DO_NOT_SUM)
    return parts


def _identity(given: bytes, length: int) -> str:
    if len(given) != length or not any(given):
        raise RefusalError(Refusal.MISSING_ID)
    return given.hex()
