"""The span tables for requests of vLLM and SGLang.

vLLM (`--otlp-traces-endpoint`) sends the span `llm_request`. Its scope is `vllm.llm_engine` (0.12
to 0.15) or `vllm.tracing.otel` (since 0.16). SGLang (`--enable-trace`) sends a root span in the
scope `sglang server`. SGLang's "prefill" is not read, because it includes the queue.

Source: vLLM 0.12 to 0.33, `v1/engine/output_processor.py` and `tracing`; spans of SGLang 0.5.23,
recorded in tests/collector/samples/sglang-0.5.23.json.
"""

from collections.abc import Mapping
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.normalise.span_tables import SpanTable
from telemetry.requests import Basis, Source

E2E: Final = "gen_ai.latency.e2e"
TTFT: Final = "gen_ai.latency.time_to_first_token"
SGLANG_SCOPE: Final = "sglang server"
_HEALTH_CHECK: Final = "HEALTH_CHECK"
"""SGLang sends health checks to itself. Their ids begin with this prefix."""


def _is_vllms(scope: str, span: Span, attributes: Mapping[str, AnyValue]) -> bool:
    return span.name == "llm_request" and scope.startswith("vllm.") and E2E in attributes


def _is_sglangs(scope: str, span: Span, attributes: Mapping[str, AnyValue]) -> bool:
    if scope != SGLANG_SCOPE or E2E not in attributes:
        return False
    request_id = attributes.get("gen_ai.request.id")
    return request_id is None or not request_id.string_value.startswith(_HEALTH_CHECK)


VLLM: Final = SpanTable(
    source=Source.NATIVE,
    basis=Basis.ENGINE,
    is_request=_is_vllms,
    latencies={
        "e2e_s": (E2E,),
        "ttft_s": (TTFT,),
        "queue_s": ("gen_ai.latency.time_in_queue",),
        "prefill_s": ("gen_ai.latency.time_in_model_prefill",),
        "decode_s": ("gen_ai.latency.time_in_model_decode",),
    },
    counts={
        "prompt_tokens": ("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens"),
        "output_tokens": ("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens"),
    },
    texts={
        "request_id": ("gen_ai.request.id",),
        "model": ("gen_ai.response.model",),
    },
    flags={},
    max_output_tokens=("gen_ai.request.max_tokens",),
    finish_reasons=(),
)

SGLANG: Final = SpanTable(
    source=Source.NATIVE,
    basis=Basis.ENGINE,
    is_request=_is_sglangs,
    latencies={
        "e2e_s": (E2E,),
        "ttft_s": (TTFT,),
        "decode_s": ("gen_ai.latency.time_in_model_decode",),
    },
    counts={
        "prompt_tokens": ("gen_ai.usage.prompt_tokens",),
        "output_tokens": ("gen_ai.usage.completion_tokens",),
        "cached_tokens": ("gen_ai.usage.cached_tokens",),
    },
    texts={
        "request_id": ("gen_ai.request.id", "rid"),
        "model": ("gen_ai.response.model",),
    },
    flags={},
    max_output_tokens=("gen_ai.request.max_tokens",),
    finish_reasons=("gen_ai.response.finish_reasons",),
)
