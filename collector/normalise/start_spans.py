"""Convert the plugin's spans of engine starts to cold starts."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tailspan_vllm import names

from collector.drop_reasons import Refusal
from collector.normalise.plugin_spans import TOLERANCE_S
from collector.normalise.resources import ResourceLabels
from collector.normalise.span_ids import span_id_of, trace_id_of
from collector.normalise.span_times import start_and_end
from collector.normalise.values import AttributeReader, RefusalError, attributes_of
from telemetry.cold_starts import PARTS, ColdStart
from telemetry.fields import on_the_wire
from telemetry.starts import MAX_LOADING_S

_Read = Callable[[AttributeReader, str], Any]
_READERS: Final[Mapping[str, _Read]] = {
    "text": AttributeReader.text,
    "count": AttributeReader.count,
    "seconds": AttributeReader.seconds,
}
_TABLE: Final[Mapping[str, tuple[str, _Read]]] = {
    wire: (each.name, _READERS[each.quantity]) for wire, each in on_the_wire(ColdStart).items()
}


def start_of_span(
    span: Span, origin: ResourceLabels, now_unix_ns: int
) -> tuple[ColdStart, int] | None:
    """Return the cold start of a span and the number of truncated texts. Return None if the span
    has no cold start.

    Raises:
        RefusalError: a value is invalid or missing, or the parts do not sum to the span.
    """
    if span.name != names.START:
        return None
    reader = AttributeReader(attributes_of(span.attributes))
    values = {field: read(reader, wire) for wire, (field, read) in _TABLE.items()}
    if values["engine"] is None:
        raise RefusalError(Refusal.MISSING_ENGINE)
    if origin.replica is None:
        raise RefusalError(Refusal.MISSING_REPLICA)
    start_unix_ns, end_unix_ns = start_and_end(span, now_unix_ns)
    length_s = (end_unix_ns - start_unix_ns) / 1e9
    if length_s > MAX_LOADING_S:
        raise RefusalError(Refusal.ABSURD_DURATION)
    parts = [values[f"{part}_s"] for part in PARTS]
    if abs(sum(each for each in parts if each is not None) - length_s) > TOLERANCE_S:
        raise RefusalError(Refusal.PARTS_DO_NOT_SUM)
    start = ColdStart(
        trace_id=trace_id_of(span),
        span_id=span_id_of(span),
        at_unix_ns=start_unix_ns,
        replica=origin.replica,
        length_s=length_s,
        region=origin.region,
        simulated=origin.simulated,
        **values,
    )
    return start, reader.truncated_texts
