"""The table that converts spans of an application's OpenAI client to requests.

OpenTelemetry's GenAI conventions, OpenLLMetry and OpenLIT share this table. Latencies include the
network, the client's own work and retries.

Sources: OpenTelemetry semantic conventions, "Generative client AI spans"; spans of
opentelemetry-instrumentation-openai-v2 2.1b0, opentelemetry-instrumentation-openai (OpenLLMetry)
0.33.12 and 0.62.4, and openlit 1.45.0, recorded in tests/collector/samples.
"""

from collections.abc import Mapping
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.normalise.span_tables import SpanTable
from telemetry.requests import Basis, Source

OPERATION: Final = ("gen_ai.operation.name", "llm.request.type")
GENERATES: Final = frozenset({"chat", "text_completion", "completion", "generate_content"})
"""Operations that generate tokens."""


def _is_a_call(scope: str, span: Span, attributes: Mapping[str, AnyValue]) -> bool:
    return span.kind == Span.SPAN_KIND_CLIENT and any(
        name in attributes and attributes[name].string_value in GENERATES for name in OPERATION
    )


CLIENT: Final = SpanTable(
    source=Source.CLIENT,
    basis=Basis.CLIENT,
    is_request=_is_a_call,
    latencies={
        "ttft_s": (
            "gen_ai.response.time_to_first_chunk",
            "gen_ai.response.time_to_first_token",
            "gen_ai.server.time_to_first_token",
            "gen_ai.latency.time_to_first_token",
        ),
    },
    counts={
        "prompt_tokens": (
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.prompt_tokens",
            "llm.usage.prompt_tokens",
        ),
        "output_tokens": (
            "gen_ai.usage.output_tokens",
            "gen_ai.usage.completion_tokens",
            "llm.usage.completion_tokens",
        ),
        "cached_tokens": (
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_read_input_tokens",
        ),
        "cache_write_tokens": (
            "gen_ai.usage.cache_write.input_tokens",
            "gen_ai.usage.cache_creation.input_tokens",
            "gen_ai.usage.cache_creation_input_tokens",
        ),
        "reasoning_tokens": (
            "gen_ai.usage.reasoning.output_tokens",
            "gen_ai.usage.reasoning_tokens",
        ),
    },
    texts={
        "request_id": ("gen_ai.response.id",),
        "operation": OPERATION,
        "model": ("gen_ai.request.model", "gen_ai.response.model", "llm.request.model"),
        "error_type": ("error.type",),
    },
    flags={
        "streamed": (
            "gen_ai.request.stream",
            "gen_ai.request.is_stream",
            "gen_ai.is_streaming",
            "llm.is_streaming",
        )
    },
    max_output_tokens=("gen_ai.request.max_tokens",),
    finish_reasons=(
        "gen_ai.response.finish_reasons",
        "gen_ai.response.finish_reason",
        "gen_ai.completion.0.finish_reason",
    ),
    first_chunk_events=("gen_ai.content.completion.chunk", "llm.content.completion.chunk"),
)
