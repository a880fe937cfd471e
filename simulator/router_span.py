"""The span of a request at the simulated router."""

from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from tailspan_vllm import names

from simulator.disaggregation import RoutedRequest

SCOPE: Final = InstrumentationScope("tailspan.simulated_router")
"""The instrumentation scope of the router's spans. It differs from the plugin's scope, because a
router does not run the plugin."""
NAME: Final = "router"


def router_span_of(routed: RoutedRequest, resource: Resource, started_unix_ns: int) -> ReadableSpan:
    """The span of a request at the router. Repeated calls return the same ids."""
    operation = "chat" if routed.chat else "text_completion"
    attributes: dict[str, str | float] = {names.OPERATION_NAME: operation}
    if routed.first_byte_s is not None:
        attributes[names.TIME_TO_FIRST_CHUNK] = routed.first_byte_s - routed.began_s
    return ReadableSpan(
        name="route",
        context=SpanContext(routed.bits, span_id_of(routed), False, TraceFlags(1)),
        resource=resource,
        attributes=attributes,
        kind=SpanKind.SERVER,
        instrumentation_scope=SCOPE,
        start_time=started_unix_ns + round(routed.began_s * 1e9),
        end_time=started_unix_ns + round(routed.ended_s * 1e9),
    )


def span_id_of(routed: RoutedRequest) -> int:
    """The span id, which is the last 64 bits of the request's id."""
    return routed.bits & (2**64 - 1) or 1
