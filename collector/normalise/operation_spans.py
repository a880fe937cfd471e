"""Converts spans of applications to the operations around their calls to a model.

Pure. The reader uses the name of the operation, the ids and the times, and no other attribute. A
span is an operation if it has `gen_ai.operation.name`. Names that are not known become `other`, so
that no text of a sender is stored.
"""

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tailspan_vllm import names

from collector.normalise.client_spans import GENERATES
from collector.normalise.resources import Origin
from collector.normalise.span_ids import span_id_of, trace_id_of
from collector.normalise.span_times import start_and_end
from collector.normalise.values import seconds
from telemetry.application_operations import NAMED, ApplicationOperation, Operation


def operation_of_span(
    span: Span, origin: Origin, now_unix_ns: int, *, call: bool
) -> ApplicationOperation | None:
    """Return the operation of a span, or None if the span is no operation.

    Args:
        span: a span that Tailspan did not send.
        origin: the labels of its resource.
        now_unix_ns: the current time.
        call: whether the span is a client's request, which needs no name.

    Raises:
        RefusalError: the span is an operation, but its ids or times are invalid.
    """
    operation = Operation.CALL if call else _named(span)
    if operation is None:
        return None
    start_unix_ns, end_unix_ns = start_and_end(span, now_unix_ns)
    return ApplicationOperation(
        trace_id=trace_id_of(span),
        span_id=span_id_of(span),
        at_unix_ns=start_unix_ns,
        operation=operation,
        length_s=seconds((end_unix_ns - start_unix_ns) / 1e9),
        process=origin.digest,
        simulated=origin.simulated,
    )


def _named(span: Span) -> Operation | None:
    for attribute in span.attributes:
        if attribute.key == names.OPERATION_NAME:
            name = attribute.value.string_value
            # A generation that is not a client's span is a server's own span, or a wrapper around
            # a client's span. Both would count the same call twice.
            if not name or name in GENERATES:
                return None
            return NAMED.get(name, Operation.OTHER)
    return None
