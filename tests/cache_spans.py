"""Spans of cached and uncached calls, with the names that each cache documents."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

HEADER: Final = "http.response.header."

CALL: Final = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "tiny",
    "gen_ai.usage.input_tokens": 12,
    "gen_ai.usage.output_tokens": 6,
    "gen_ai.response.id": "chatcmpl-1",
}
"""A call of a model, in OpenTelemetry's GenAI conventions."""

HTTP: Final = {
    "http.request.method": "POST",
    "url.full": "https://gateway.example/v1/chat/completions?key=secret",
    "http.response.status_code": 200,
}
"""The HTTP request inside this call."""

SHAPES: Final[Mapping[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "gen_ai": (
        {**CALL, "gen_ai.cache.hit": True, "gen_ai.cache.similarity": 0.97},
        {**CALL, "gen_ai.cache.hit": False, "gen_ai.cache.similarity": 0.41},
    ),
    "litellm": (
        {
            **CALL,
            "litellm.cache.hit": "True",
            "litellm.cache.similarity": 0.93,
            "litellm.team.alias": "acme",
            "litellm.request.route": "/chat/completions",
        },
        {
            **HTTP,
            f"{HEADER}x-litellm-cache-hit": ["False"],
            f"{HEADER}x-litellm-semantic-similarity": ["0.0"],
        },
    ),
    "portkey": (
        {**HTTP, f"{HEADER}x-portkey-cache-status": ["SEMANTIC HIT"]},
        {**HTTP, f"{HEADER}x-portkey-cache-status": ["MISS"]},
    ),
    "semantic-router": (
        {
            **HTTP,
            f"{HEADER}x-vsr-cache-hit": ["true"],
            f"{HEADER}x-vsr-cache-similarity": ["0.9512"],
        },
        {**HTTP, f"{HEADER}x-vsr-cache-similarity": ["0.8899"]},
    ),
    "cloudflare": (
        {**HTTP, f"{HEADER}cf-aig-cache-status": ["HIT"]},
        {**HTTP, f"{HEADER}cf_aig_cache_status": ["MISS"]},
    ),
    "kong": (
        {
            **CALL,
            "ai.proxy.cache.cache_status": "Hit",
            "ai.proxy.cache.fetch_latency": 12,
            "ai.proxy.cache.embeddings_latency": 42,
        },
        {**HTTP, f"{HEADER}x-cache-status": ["Miss"]},
    ),
    "apisix": (
        {
            **HTTP,
            f"{HEADER}x-ai-cache-status": ["HIT-L2"],
            f"{HEADER}x-ai-cache-similarity": ["0.9731"],
        },
        {**HTTP, f"{HEADER}x-ai-cache-status": ["MISS"]},
    ),
    "truefoundry": (
        {
            **HTTP,
            f"{HEADER}x-tfy-cache-status": ["hit"],
            f"{HEADER}x-tfy-cache-similarity-score": ["0.95"],
        },
        {**HTTP, f"{HEADER}x-tfy-cache-status": ["miss"]},
    ),
    "openrouter": (
        {**HTTP, f"{HEADER}x-openrouter-cache-status": ["HIT"]},
        {**HTTP, f"{HEADER}x-openrouter-cache-status": ["MISS"]},
    ),
    "helicone": (
        {**HTTP, f"{HEADER}helicone-cache": ["HIT"]},
        {**HTTP, f"{HEADER}helicone-cache": ["MISS"]},
    ),
}
"""A hit and a miss of each cache."""


def value_of(value: Any) -> AnyValue:
    match value:
        case AnyValue():
            return value
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case list():
            return AnyValue(array_value=ArrayValue(values=[value_of(each) for each in value]))
        case _:
            return AnyValue(string_value=value)


def span(
    number: int,
    attributes: Mapping[str, Any],
    *,
    at_unix_ns: int,
    trace: int | None = None,
    parent: int | None = None,
    duration_s: float = 0.02,
) -> Span:
    """Return a client's span whose id is `number`.

    The id of the trace is `number`, too, unless `trace` is given.
    """
    return Span(
        trace_id=(number if trace is None else trace).to_bytes(16, "big"),
        span_id=number.to_bytes(8, "big"),
        parent_span_id=b"" if parent is None else parent.to_bytes(8, "big"),
        kind=Span.SPAN_KIND_CLIENT,
        name="POST",
        start_time_unix_nano=at_unix_ns,
        end_time_unix_nano=at_unix_ns + int(duration_s * 1e9),
        attributes=[KeyValue(key=key, value=value_of(each)) for key, each in attributes.items()],
    )


def message(*spans: Span, service: str = "shop") -> ExportTraceServiceRequest:
    found = ExportTraceServiceRequest()
    group = found.resource_spans.add()
    group.resource.attributes.append(KeyValue(key="service.name", value=value_of(service)))
    scoped = group.scope_spans.add()
    scoped.scope.name = "opentelemetry.instrumentation.httpx"
    scoped.spans.extend(spans)
    return found


def of_every_cache(at_unix_ns: int, first: int = 1) -> Iterator[Span]:
    """Yield a hit and a miss of each cache. Each span has a trace of its own."""
    for place, shapes in enumerate(SHAPES.values()):
        for which, attributes in enumerate(shapes):
            number = first + 2 * place + which
            yield span(number, attributes, at_unix_ns=at_unix_ns + number)
