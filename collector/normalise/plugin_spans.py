"""The spans of our own instrumentation (and of the simulator, which speaks like it)."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

from tailspan_vllm import names

from collector.drop_reasons import Refusal
from collector.normalise.attributes import AttributeTable, Read
from collector.normalise.batch import Batch
from collector.normalise.otlp_envelope import SpanOutline, decoded, few_enough
from collector.normalise.resources import Origin
from collector.normalise.span_ids import span_id_of, trace_id_of
from collector.normalise.values import Reader, RefusalError, instant, seconds
from telemetry.request_rows import PLACE as _AT
from telemetry.request_rows import Row
from telemetry.requests import (
    DECODE_PARTS,
    FIELDS,
    PHASES,
    PREFILL_PARTS,
    QUEUE_PARTS,
    Basis,
    Outcome,
    Source,
)

TOLERANCE_S: Final = 1e-3
"""Rounding to the nanosecond costs far less; a forgotten phase costs far more."""

_OUTCOMES: Final = {outcome.value: outcome.value for outcome in Outcome}
_BASES: Final = {basis.value: basis.value for basis in Basis}


def _one_of(allowed: Mapping[str, Any], otherwise: Refusal) -> Read:
    def read(reader: Reader, name: str) -> Any:
        found = allowed.get(reader.text(name) or "")
        if found is None:
            raise RefusalError(otherwise)
        return found

    return read


TABLE: Final[dict[str, tuple[str, Read]]] = {
    names.OUTCOME: ("outcome", _one_of(_OUTCOMES, Refusal.UNKNOWN_OUTCOME)),
    names.BASIS: ("basis", _one_of(_BASES, Refusal.UNKNOWN_BASIS)),
    names.RESPONSE_ID: ("request_id", Reader.text),
    names.FRONTEND: ("frontend_s", Reader.seconds),
    names.QUEUE: ("queue_s", Reader.seconds),
    names.PREFILL: ("prefill_s", Reader.seconds),
    names.DECODE: ("decode_s", Reader.seconds),
    names.DELIVERY: ("delivery_s", Reader.seconds),
    names.HANDOFF: ("handoff_s", Reader.seconds),
    **{
        name: (field, Reader.seconds)
        for name, field in zip(
            (*names.QUEUE_PARTS, *names.PREFILL_PARTS, *names.DECODE_PARTS),
            (*QUEUE_PARTS, *PREFILL_PARTS, *DECODE_PARTS),
            strict=True,
        )
    },
    names.TTFT: ("ttft_s", Reader.seconds),
    names.ITL_MAX: ("itl_max_s", Reader.seconds),
    names.REPORTED_IN_FLIGHT: ("reported_in_flight_s", Reader.seconds),
    names.OTHERS_PREFILL_TOKENS_MAX: ("others_prefill_tokens_max", Reader.count),
    names.OPERATION_NAME: ("operation", Reader.text),
    names.REQUEST_MODEL: ("model", Reader.text),
    names.LORA: ("lora", Reader.text),
    names.HTTP_ROUTE: ("route", Reader.text),
    names.TENANT: ("tenant", Reader.text),
    names.ENGINE: ("engine", Reader.count),
    names.CONFIG: ("config", Reader.text),
    names.STREAMED: ("streamed", Reader.flag),
    names.HTTP_STATUS_CODE: ("http_status", Reader.count),
    names.ERROR_TYPE: ("error_type", Reader.text),
    names.INPUT_TOKENS: ("prompt_tokens", Reader.count),
    names.CACHE_READ_INPUT_TOKENS: ("cached_tokens", Reader.count),
    names.EXTERNAL_CACHED_TOKENS: ("external_cached_tokens", Reader.count),
    names.OUTPUT_TOKENS: ("output_tokens", Reader.count),
    names.BILLED: ("billed_s", Reader.seconds),
    names.WASTED: ("wasted_s", Reader.seconds),
    names.PREEMPTIONS: ("preemptions", Reader.count),
    names.WAITING_AT_ARRIVAL: ("waiting_at_arrival", Reader.count),
    names.RUNNING_AT_ARRIVAL: ("running_at_arrival", Reader.count),
    names.KV_USAGE_AT_ARRIVAL: ("kv_usage_at_arrival", Reader.ratio),
}
"""The one table from the wire's attribute names to the request's fields."""

_ATTRIBUTES = AttributeTable(FIELDS, TABLE, unique=(names.RESPONSE_ID,))
_OUTCOME, _BASIS, _SOURCE = _AT["outcome"], _AT["basis"], _AT["source"]
_TRACE_ID, _SPAN_ID = _AT["trace_id"], _AT["span_id"]
_RECEIVED, _E2E = _AT["received_unix_ns"], _AT["e2e_s"]
_REGION, _REPLICA = _AT["region"], _AT["replica"]
_WITHIN = itemgetter(_AT["ttft_s"], _AT["itl_max_s"], _AT["reported_in_flight_s"])
"""What cannot be longer than the request."""
_QUEUE, _PREFILL, _DECODE = _AT["queue_s"], _AT["prefill_s"], _AT["decode_s"]
_SIMULATOR, _INSTRUMENTATION = Source.SIMULATOR.value, Source.INSTRUMENTATION.value
_phases = itemgetter(*(_AT[phase] for phase in PHASES))
_queue_parts = itemgetter(*(_AT[part] for part in QUEUE_PARTS))
_prefill_parts = itemgetter(*(_AT[part] for part in PREFILL_PARTS))
_decode_parts = itemgetter(*(_AT[part] for part in DECODE_PARTS))


def row_of_span(raw: bytes, origin: Origin, now_unix_ns: int, batch: Batch) -> Row | None:
    """The row of the request that a span of ours tells of; None where it has no outcome."""
    span = decoded(SpanOutline, raw)
    values, refusal, truncated_texts = _ATTRIBUTES.read(few_enough(span.attributes))
    if values[_OUTCOME] is None:
        return None
    if refusal is not None:
        raise RefusalError(refusal)
    if values[_BASIS] is None:
        raise RefusalError(Refusal.UNKNOWN_BASIS)
    start_unix_ns = instant(span.start_time_unix_nano, now_unix_ns)
    end_unix_ns = span.end_time_unix_nano
    if end_unix_ns < start_unix_ns:
        raise RefusalError(Refusal.ENDS_BEFORE_START)
    e2e_s = seconds((end_unix_ns - start_unix_ns) / 1e9)
    instant(end_unix_ns, now_unix_ns)
    for within_s in _WITHIN(values):
        if within_s is not None and within_s > e2e_s + TOLERANCE_S:
            raise RefusalError(Refusal.PARTS_DO_NOT_SUM)
    _check_sum(_phases(values), e2e_s, Refusal.PHASES_DO_NOT_SUM, whole=False)
    _check_sum(_queue_parts(values), values[_QUEUE], Refusal.PARTS_DO_NOT_SUM)
    _check_sum(_prefill_parts(values), values[_PREFILL], Refusal.PARTS_DO_NOT_SUM)
    _check_sum(_decode_parts(values), values[_DECODE], Refusal.PARTS_DO_NOT_SUM)
    values[_TRACE_ID] = trace_id_of(span)
    values[_SPAN_ID] = span_id_of(span)
    values[_RECEIVED] = start_unix_ns
    values[_E2E] = e2e_s
    values[_SOURCE] = _SIMULATOR if origin.simulated else _INSTRUMENTATION
    values[_REGION] = origin.region
    values[_REPLICA] = origin.replica
    batch.truncated_texts += truncated_texts
    values.pop()  # what is of no interest
    return tuple(values)


def _check_sum(
    parts: tuple[float | None, ...], of_s: float | None, reason: Refusal, *, whole: bool = True
) -> None:
    """All that is known adds up; where `whole`, either all of it is known or nothing."""
    known = parts if None not in parts else [part for part in parts if part is not None]
    if not known:
        return
    if of_s is None or (whole and len(known) < len(parts)) or abs(sum(known) - of_s) > TOLERANCE_S:  # type: ignore[arg-type]  # none of them is None
        raise RefusalError(reason)
