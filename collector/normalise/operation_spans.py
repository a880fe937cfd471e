"""Convert spans of applications to the operations around their calls to a model. Pure.

From a span with `gen_ai.operation.name`, only this attribute, ids and times are read. Names outside
`NAMED` are stored as `other`, because a name could contain any text, even a prompt. A span of kind
SERVER that generates tokens is a request at a router, unless an engine sent it. From such a span,
the response id and the time to the first byte are also read. llm-d's spans are recognised by name.
`llm_d.pd_proxy.true_ttft_ms` is not read, because it ends when the decode begins. Source:
llm-d-router, `pkg/epp/handlers/server.go` and the proxy's tracing.
"""

from typing import Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tailspan_vllm import names

from collector.drop_reasons import Refusal
from collector.normalise.client_spans import CLIENT, GENERATES
from collector.normalise.plugin_spans import TOLERANCE_S
from collector.normalise.resources import ResourceLabels
from collector.normalise.span_ids import span_id_of, trace_id_of
from collector.normalise.span_times import start_and_end
from collector.normalise.values import AttributeReader, RefusalError, attributes_of, seconds
from telemetry.application_operations import NAMED, ApplicationOperation, Operation

_ROUTER_SPAN: Final = "gateway.request"
_ENGINE_SCOPES: Final = ("vllm.", "sglang")
_PROXY_SPANS: Final = "llm_d.pd_proxy."
_FIRST_BYTE: Final = CLIENT.latencies["ttft_s"]


def operation_of_span(
    span: Span, scope: str, origin: ResourceLabels, now_unix_ns: int, *, call: bool
) -> ApplicationOperation | None:
    """The operation of a span, or None.

    Args:
        call: whether the span is a client's request, which needs no `gen_ai.operation.name`.

    Raises:
        RefusalError: ids or times are invalid, or the first byte is later than the end.
    """
    operation = Operation.CALL if call else _operation_by_name(span, scope)
    if operation is None:
        return None
    start_unix_ns, end_unix_ns = start_and_end(span, now_unix_ns)
    length_s = seconds((end_unix_ns - start_unix_ns) / 1e9)
    ttft_s, response_id = _of_router(span) if operation is Operation.ROUTER else (None, None)
    if ttft_s is not None and ttft_s > length_s + TOLERANCE_S:
        raise RefusalError(Refusal.PARTS_DO_NOT_SUM)
    return ApplicationOperation(
        trace_id=trace_id_of(span),
        span_id=span_id_of(span),
        at_unix_ns=start_unix_ns,
        operation=operation,
        length_s=length_s,
        process=origin.digest,
        simulated=origin.simulated,
        ttft_s=ttft_s,
        response_id=response_id,
    )


def _operation_by_name(span: Span, scope: str) -> Operation | None:
    serves = span.kind == Span.SPAN_KIND_SERVER and not scope.startswith(_ENGINE_SCOPES)
    if serves and (span.name == _ROUTER_SPAN or span.name.startswith(_PROXY_SPANS)):
        return Operation.ROUTER
    for attribute in span.attributes:
        if attribute.key == names.OPERATION_NAME:
            name = attribute.value.string_value
            if serves and name in GENERATES:
                return Operation.ROUTER
            # This span is the parent of a client's span. The client's span is already counted as
            # the call.
            if not name or name in GENERATES:
                return None
            return NAMED.get(name, Operation.OTHER)
    return None


def _of_router(span: Span) -> tuple[float | None, str | None]:
    attributes = attributes_of(span.attributes)
    reader = AttributeReader(attributes)
    name = next((each for each in _FIRST_BYTE if each in attributes), None)
    return None if name is None else reader.seconds(name), reader.text(names.RESPONSE_ID)
