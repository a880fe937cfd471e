"""Names and default bounds of vLLM's own histograms.

They are the same from vLLM 0.12 to 0.33 (`vllm/v1/metrics/loggers.py`, from 0.30 `buckets.py`).
From 0.32 on, `--custom-histogram-buckets` may replace the bounds. A server without the bucket of an
objective is not counted. If no server has the bucket, only the alert on absent counters fires.
"""

from typing import Final, NamedTuple

MODEL_LABEL: Final = "model_name"


class VllmHistogram(NamedTuple):
    """A histogram on vLLM's /metrics."""

    name: str
    bounds_s: tuple[float, ...]


REQUEST_LATENCY_S: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
TIME_TO_FIRST_TOKEN_S: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
INTER_TOKEN_LATENCY_S: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)

HISTOGRAMS: Final = {
    "ttft_s": VllmHistogram("vllm:time_to_first_token_seconds", TIME_TO_FIRST_TOKEN_S),
    "tpot_s": VllmHistogram("vllm:request_time_per_output_token_seconds", INTER_TOKEN_LATENCY_S),
    "e2e_s": VllmHistogram("vllm:e2e_request_latency_seconds", REQUEST_LATENCY_S),
    "queue_s": VllmHistogram("vllm:request_queue_time_seconds", REQUEST_LATENCY_S),
    "prefill_s": VllmHistogram("vllm:request_prefill_time_seconds", REQUEST_LATENCY_S),
    "decode_s": VllmHistogram("vllm:request_decode_time_seconds", REQUEST_LATENCY_S),
}
"""vLLM's histogram for each latency field of an expression."""
