"""Read the spans of Tailspan's plugin. The simulator sends the same spans."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

from tailspan_vllm import names

from collector.drop_reasons import DroppedValue, Refusal
from collector.normalise.attributes import AttributeTable, Read
from collector.normalise.batch import NormalisedBatch
from collector.normalise.otlp_envelope import SpanOutline, decoded, few_enough
from collector.normalise.resources import ResourceLabels
from collector.normalise.span_ids import span_id_of, trace_id_of
from collector.normalise.values import (
    MAX_TOTAL,
    AttributeReader,
    RefusalError,
    http_status,
    instant,
    seconds,
)
from telemetry.fields import on_the_wire
from telemetry.prefix_ladders import LADDER_CHARS, is_ladder
from telemetry.request_rows import PLACE as _AT
from telemetry.request_rows import Row
from telemetry.requests import (
    DECODE_PARTS,
    FIELDS,
    HELD_PARTS,
    PHASES,
    PREFILL_PARTS,
    QUEUE_PARTS,
    Basis,
    Outcome,
    RequestTimeline,
    Source,
)

TOLERANCE_S: Final = 1e-3
"""Tolerance when the sum of a duration's parts is checked. It is far above the rounding to
nanoseconds."""

_OUTCOMES: Final = {outcome.value: outcome.value for outcome in Outcome}
_BASES: Final = {basis.value: basis.value for basis in Basis}


def _one_of(allowed: Mapping[str, Any], otherwise: Refusal) -> Read:
    def read(reader: AttributeReader, name: str) -> Any:
        found = allowed.get(reader.text(name) or "")
        if found is None:
            raise RefusalError(otherwise)
        return found

    return read


def _ladder(reader: AttributeReader, name: str) -> str:
    """The prefix ladder (`telemetry.prefix_ladders`), or the reason why an invalid ladder is
    dropped. The request is stored in either case."""
    try:
        text = reader.untouched(name)
    except RefusalError:
        return DroppedValue.LADDER_WRONG_TYPE
    if len(text) > LADDER_CHARS:
        return DroppedValue.LADDER_TOO_LONG
    return text if is_ladder(text) else DroppedValue.LADDER_MALFORMED


def _bytes(reader: AttributeReader, name: str) -> int | None:
    return reader.count(name, MAX_TOTAL)


_READERS: Final[Mapping[str, Read]] = {
    "text": AttributeReader.text,
    "flag": AttributeReader.flag,
    "count": AttributeReader.count,
    "ratio": AttributeReader.ratio,
    "seconds": AttributeReader.seconds,
}
TABLE: Final[dict[str, tuple[str, Read]]] = {
    **{
        wire: (field.name, _READERS[field.quantity])
        for wire, field in on_the_wire(RequestTimeline).items()
    },
    names.OUTCOME: ("outcome", _one_of(_OUTCOMES, Refusal.UNKNOWN_OUTCOME)),
    names.BASIS: ("basis", _one_of(_BASES, Refusal.UNKNOWN_BASIS)),
    names.PREFIX_LADDER: ("prefix_ladder", _ladder),
    names.HTTP_STATUS_CODE: ("http_status", http_status),
    names.EXTERNAL_CACHED_BYTES: ("kv_loaded_bytes", _bytes),
}

_ATTRIBUTES = AttributeTable(
    FIELDS,
    TABLE,
    unique=(names.RESPONSE_ID, names.PREFIX_LADDER),
    unstored={names.TIME_TO_FIRST_CHUNK: AttributeReader.seconds},
)
_OUTCOME, _BASIS, _SOURCE = _AT["outcome"], _AT["basis"], _AT["source"]
_TRACE_ID, _SPAN_ID = _AT["trace_id"], _AT["span_id"]
_RECEIVED, _E2E = _AT["received_unix_ns"], _AT["e2e_s"]
_REGION, _REPLICA = _AT["region"], _AT["replica"]
_DROPPABLE = (_AT["prefix_ladder"], _AT["http_status"])
_WITHIN = itemgetter(
    *(_AT[name] for name in ("ttft_s", "first_content_s", "itl_max_s", "reported_in_flight_s"))
)
"""The values of a row that must not exceed the request's duration."""
_QUEUE, _PREFILL, _DECODE = _AT["queue_s"], _AT["prefill_s"], _AT["decode_s"]
_SIMULATOR, _INSTRUMENTATION = Source.SIMULATOR.value, Source.INSTRUMENTATION.value
_phases = itemgetter(*(_AT[phase] for phase in PHASES))
_HELD, _OWN, _ENCODER = _AT["queue_held_s"], _AT["prefill_own_s"], _AT["encoder_s"]
_OUTPUT = _AT["output_tokens"]
_kinds = itemgetter(*(_AT[f"{kind}_tokens"] for kind in ("reasoning", "tool_call", "content")))
_held_parts = itemgetter(*(_AT[part] for part in HELD_PARTS))
_queue_parts = itemgetter(*(_AT[part] for part in QUEUE_PARTS))
_prefill_parts = itemgetter(*(_AT[part] for part in PREFILL_PARTS))
_decode_parts = itemgetter(*(_AT[part] for part in DECODE_PARTS))


def row_of_span(
    raw: bytes, origin: ResourceLabels, now_unix_ns: int, batch: NormalisedBatch
) -> Row | None:
    """Convert a span of the plugin to a row, or return None if the span has no outcome."""
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
    held_s = sum(part_s for part_s in _held_parts(values) if part_s is not None)
    if (
        held_s > (values[_HELD] or 0.0) + TOLERANCE_S
        or (values[_ENCODER] or 0.0) > (values[_OWN] or 0.0) + TOLERANCE_S
    ):
        raise RefusalError(Refusal.PARTS_DO_NOT_SUM)
    _check_sum(_prefill_parts(values), values[_PREFILL], Refusal.PARTS_DO_NOT_SUM)
    _check_sum(_decode_parts(values), values[_DECODE], Refusal.PARTS_DO_NOT_SUM)
    _check_kinds(_kinds(values), values[_OUTPUT])
    values[_TRACE_ID] = trace_id_of(span)
    values[_SPAN_ID] = span_id_of(span)
    values[_RECEIVED] = start_unix_ns
    values[_E2E] = e2e_s
    values[_SOURCE] = _SIMULATOR if origin.simulated else _INSTRUMENTATION
    values[_REGION] = origin.region
    values[_REPLICA] = origin.replica
    batch.truncated_texts += truncated_texts
    for place in _DROPPABLE:
        if isinstance(values[place], DroppedValue):
            batch.dropped_values[values[place]] += 1
            values[place] = None
    values.pop()  # `read` adds an element for attributes without a field
    return tuple(values)


def _check_sum(
    parts: tuple[float | None, ...], of_s: float | None, reason: Refusal, *, whole: bool = True
) -> None:
    """Check that the parts sum to their phase. With `whole`, either all parts or no parts must be
    present."""
    present = parts if None not in parts else [part for part in parts if part is not None]
    if not present:
        return
    if (
        of_s is None
        or (whole and len(present) < len(parts))
        or abs(sum(present) - of_s) > TOLERANCE_S  # type: ignore[arg-type]  # no part is None
    ):
        raise RefusalError(reason)


def _check_kinds(kinds: tuple[int | None, ...], output_tokens: int | None) -> None:
    """Check that the tokens of all kinds sum to the output tokens. An unknown number is None."""
    present = [tokens for tokens in kinds if tokens is not None]
    if not present:
        return
    if (
        output_tokens is None
        or sum(present) > output_tokens
        or (len(present) == len(kinds) and sum(present) != output_tokens)
    ):
        raise RefusalError(Refusal.PARTS_DO_NOT_SUM)
