"""Measure the cost of reporting one request without a server.

    python benchmarks/span_cost.py [--requests 4000]

The plugin and vLLM's native tracing run alternately in one process of the real vLLM's environment.
The measurement of native tracing begins at its hook at a request's end. The measurement of the
plugin begins in the HTTP layer. Each measurement ends with the serialised export, and includes the
telemetry threads.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

ROUNDS = 7
HEADERS = [
    (b"host", b"127.0.0.1:8000"),
    (b"content-type", b"application/json"),
    (b"traceparent", b"00-" + b"0a" * 16 + b"-" + b"0b" * 8 + b"-01"),
    (b"x-tenant-id", b"acme"),
]


def a_state() -> Any:
    """State of a request that vLLM's output processor holds when the request ends."""
    now = time.monotonic()
    return SimpleNamespace(
        external_req_id="chatcmpl-8b84626539c86e03",
        request_id="chatcmpl-8b84626539c86e03-1a2b3c4d",
        lora_name=None,
        prompt_len=200,
        prompt_token_ids=[1] * 200,
        prompt_embeds=None,
        num_cached_tokens=0,
        top_p=1.0,
        n=1,
        temperature=1.0,
        max_tokens_param=32,
        stats=SimpleNamespace(
            arrival_time=time.time() - 0.2,
            queued_ts=now - 0.19,
            scheduled_ts=now - 0.18,
            first_token_ts=now - 0.1,
            last_token_ts=now,
            first_token_latency=0.1,
            num_generation_tokens=32,
        ),
    )


def native(requests: int) -> float:
    """The CPU seconds per request with vLLM's native tracing."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )
    from opentelemetry.trace import get_tracer_provider, set_tracer_provider
    from vllm.v1.engine.output_processor import OutputProcessor

    class Serialise(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            encode_spans(spans).SerializeToString()
            return SpanExportResult.SUCCESS

    if not isinstance(get_tracer_provider(), TracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(
            BatchSpanProcessor(Serialise(), max_queue_size=requests + 1, schedule_delay_millis=200)
        )
        set_tracer_provider(provider)
    output = SimpleNamespace(trace_headers={"traceparent": HEADERS[2][1].decode()})
    iteration = SimpleNamespace(iteration_timestamp=time.time())
    states = [a_state() for _ in range(requests)]
    begun = time.process_time()
    for state in states:
        OutputProcessor.do_tracing(None, output, state, iteration)
    get_tracer_provider().force_flush()  # type: ignore[attr-defined]  # the SDK's provider
    return (time.process_time() - begun) / requests


def ours(requests: int) -> float:
    """CPU seconds per request with the plugin."""
    from opentelemetry.sdk.resources import Resource
    from tailspan_vllm import names
    from tailspan_vllm.engine_core.link_messages import RequestAccount, decode, encode_account
    from tailspan_vllm.engine_core.queue_waits import QueueWait
    from tailspan_vllm.engine_core.step_ledger import RequestEngineTime
    from tailspan_vllm.engine_state.state import EngineState
    from tailspan_vllm.front_end.capture import Capture
    from tailspan_vllm.otlp.encoder import encode
    from tailspan_vllm.otlp.request_span import span_of
    from tailspan_vllm.request.exchange import Exchange, current
    from tailspan_vllm.request.parts import RequestPhaseParts, RequestQueueParts
    from tailspan_vllm.request.record_builder import BuildRecord
    from tailspan_vllm.settings import settings_from

    capture = Capture(settings_from({"OTEL_SDK_DISABLED": "true"}))
    capture.engines[0] = EngineState(
        0, 1, "m", "c0ffee", {names.WAITING: 0, names.RUNNING: 3, names.KV_USAGE: 0.1}
    )
    ended: list[BuildRecord] = []
    setattr(capture.sender, "submit", ended.append)  # noqa: B010  # a method is replaced
    resource = Resource.create()
    states = [a_state() for _ in range(requests)]
    answer = {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-type", b"text/event-stream; charset=utf-8")],
    }
    parts, queue = (
        RequestPhaseParts(0.1, 0.0, 0.0, 0.0, 0.0),
        RequestQueueParts(0.0, 0.0, 0.0, 0.0, 0.1),
    )
    account = RequestEngineTime(1.0, 2.0, 3.0, parts, parts, 0.02, QueueWait(0.5, queue), 512)
    settled = encode_account(0, "chatcmpl-8b84626539c86e03-1a2b3c4d", account)
    begun = time.process_time()
    for state in states:
        path = "/v1/chat/completions"
        exchange = Exchange(
            {"type": "http", "method": "POST", "path": path, "headers": HEADERS},
            capture.wanted_headers,
        )
        token = current.set(exchange)
        flight = capture.flight_began(None)
        capture.flight_removed(flight, state)
        capture.flight_ended(flight, state, "length")
        exchange.answered(answer)
        exchange.first_byte = state.stats.first_token_ts
        exchange.delivered = time.monotonic()
        capture.exchange_ended(exchange)
        current.reset(token)
    for first in range(0, len(ended), 512):
        spans = []
        for build_record in ended[first : first + 512]:
            record, accounted = build_record(), decode(settled)
            assert isinstance(accounted, RequestAccount)
            assert accounted.account.waited is not None
            record.queue_parts = accounted.account.waited.parts
            record.prefill_parts, record.decode_parts = (
                accounted.account.prefill,
                accounted.account.decode,
            )
            record.others_prefill_tokens_max = accounted.account.others_prefill_tokens_max
            spans.append(span_of(record, resource))
        encode(spans)
    return (time.process_time() - begun) / requests


def encoding(spans: int = 512) -> tuple[float, float]:
    """CPU seconds to encode one span, with OpenTelemetry's and with Tailspan's encoder."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource
    from tailspan_vllm.otlp.encoder import encode
    from tailspan_vllm.otlp.request_span import span_of
    from tailspan_vllm.request.parts import RequestPhaseParts
    from tailspan_vllm.request.record import RequestRecord

    parts = RequestPhaseParts(0.1, 0.0, 0.0, 0.0, 0.0)
    record = RequestRecord(
        received=100.0,
        delivered=101.0,
        wall_offset_ns=time.time_ns(),
        outcome="length",
        basis="http",
        arrived=100.01,
        queued=100.1,
        scheduled=100.2,
        first_token=100.3,
        first_byte=100.31,
        last_token=100.9,
        request_id="chatcmpl-8b84626539c86e03",
        model="m",
        route="/v1/chat/completions",
        tenant="acme",
        config="c0ffee",
        engine=0,
        streamed=True,
        http_status=200,
        prompt_tokens=200,
        cached_tokens=0,
        output_tokens=32,
        preemptions=0,
        itl_max_s=0.02,
        prefill_parts=parts,
        decode_parts=parts,
        waiting_at_arrival=0,
        running_at_arrival=3,
        kv_usage_at_arrival=0.1,
    )
    batch = [span_of(record, Resource.create()) for _ in range(spans)]
    begun = time.process_time()
    encode_spans(batch).SerializeToString()
    between = time.process_time()
    encode(batch)
    return (between - begun) / spans, (time.process_time() - between) / spans


def main() -> int:
    """Measure in vLLM's own environment, and print the costs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--requests", type=int, default=4000, help="requests of each kind per round"
    )
    arguments = parser.parse_args()
    if "TAILSPAN_INSIDE" not in os.environ:
        from rig.install import PYTHON, ensure

        ensure()
        environ = {**os.environ, "TAILSPAN_INSIDE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
        return subprocess.run([PYTHON, *sys.argv], env=environ, check=False).returncode
    rounds = [(native(arguments.requests), ours(arguments.requests)) for _ in range(ROUNDS + 1)][1:]
    theirs_us = statistics.median(their for their, _ in rounds) * 1e6
    ours_us = statistics.median(our for _, our in rounds) * 1e6
    ratio = statistics.median(our / their for their, our in rounds)
    print(f"CPU to report one request (medians over {ROUNDS} rounds in one process):")
    print(f"  vLLM's native span  {theirs_us:6.1f} µs")
    print(f"  plugin              {ours_us:6.1f} µs")
    print(f"  plugin / native     {ratio:6.2f}")
    encoded = [encoding() for _ in range(ROUNDS)]
    for number, encoder in enumerate(("OpenTelemetry's encoder", "Tailspan's encoder")):
        median_us = statistics.median(round_[number] for round_ in encoded) * 1e6
        print(f"  encoding the plugin's span with {encoder}: {median_us:.0f} µs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
