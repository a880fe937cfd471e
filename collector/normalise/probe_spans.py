"""Convert spans of the prober to probes."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tailspan_vllm import names

from collector.drop_reasons import DroppedValue, Refusal
from collector.normalise.batch import NormalisedBatch
from collector.normalise.resources import ResourceLabels
from collector.normalise.span_ids import span_id_of, trace_id_of
from collector.normalise.span_times import start_and_end
from collector.normalise.values import (
    AttributeReader,
    RefusalError,
    attributes_of,
    http_status,
    number,
)
from telemetry.fields import on_the_wire
from telemetry.probes import Probe, ProbeOutcome


def _number(reader: AttributeReader, name: str) -> float | None:
    value = reader.scalar(name)
    if isinstance(value, str | bool):
        raise RefusalError(Refusal.WRONG_TYPE)
    return None if value is None else number(float(value))


def _outcome(reader: AttributeReader, name: str) -> ProbeOutcome:
    try:
        return ProbeOutcome(reader.text(name) or "")
    except ValueError as error:
        raise RefusalError(Refusal.UNKNOWN_OUTCOME) from error


_READERS: Final[Mapping[str, Callable[[AttributeReader, str], Any]]] = {
    "text": AttributeReader.text,
    "flag": AttributeReader.flag,
    "count": AttributeReader.count,
    "seconds": AttributeReader.seconds,
    "number": _number,
}
_TABLE: Final = {
    **{wire: (each.name, _READERS[each.quantity]) for wire, each in on_the_wire(Probe).items()},
    names.PROBE_OUTCOME: ("outcome", _outcome),
    names.HTTP_STATUS_CODE: ("http_status", http_status),
    names.PROBE_CERTIFICATE_END: ("certificate_ends_unix_s", _number),  # a timestamp
}


def probe_of_span(
    span: Span, origin: ResourceLabels, now_unix_ns: int, batch: NormalisedBatch
) -> Probe:
    """The probe of a span. Truncated texts and dropped values are counted in `batch`.

    Raises:
        RefusalError: a value is invalid, or a required value is missing.
    """
    reader = AttributeReader(attributes_of(span.attributes))
    values = {field: read(reader, wire) for wire, (field, read) in _TABLE.items()}
    if values["endpoint"] is None or values["kind"] is None:
        raise RefusalError(Refusal.MISSING_VALUE)
    if isinstance(values["http_status"], DroppedValue):
        batch.dropped_values[values["http_status"]] += 1
        values["http_status"] = None
    start_unix_ns, _ = start_and_end(span, now_unix_ns)
    probe = Probe(
        trace_id=trace_id_of(span),
        span_id=span_id_of(span),
        at_unix_ns=start_unix_ns,
        region=origin.region,
        **values,
    )
    batch.truncated_texts += reader.truncated_texts
    return probe
