from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from exporters.prometheus import PrometheusExporter
from telemetry.engines import EngineSample
from telemetry.requests import Basis, Outcome, RequestTimeline, Source

NOW_UNIX_NS = 1_790_000_000 * 10**9


class Clock:
    def __init__(self) -> None:
        self.unix_ns = NOW_UNIX_NS

    def __call__(self) -> int:
        return self.unix_ns

    def advance(self, seconds: float) -> None:
        self.unix_ns += round(seconds * 1e9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def exporter(clock: Any) -> PrometheusExporter:
    return PrometheusExporter(clock_unix_ns=clock)


@pytest.fixture
def request_row() -> Callable[..., RequestTimeline]:
    ids = count(1)

    def make(**changes: Any) -> RequestTimeline:
        given: dict[str, Any] = {
            "trace_id": f"{next(ids):032x}",
            "span_id": f"{1:016x}",
            "request_id": "chatcmpl-1",
            "received_unix_ns": NOW_UNIX_NS,
            "e2e_s": 1.5,
            "outcome": Outcome.STOP,
            "source": Source.INSTRUMENTATION,
            "basis": Basis.HTTP,
            "frontend_s": 0.05,
            "queue_s": 0.2,
            "prefill_s": 0.25,
            "decode_s": 0.95,
            "delivery_s": 0.05,
            "ttft_s": 0.51,
            "first_content_s": 0.7,
            "itl_max_s": 0.08,
            "model": "llama",
            "replica": "r1",
            "prompt_tokens": 512,
            "cached_tokens": 128,
            "output_tokens": 20,
            "reasoning_tokens": 4,
        }
        return RequestTimeline(**{**given, **changes})

    return make


@pytest.fixture
def sample_row(clock: Clock) -> Callable[..., EngineSample]:
    def make(**changes: Any) -> EngineSample:
        given: dict[str, Any] = {
            "replica": "r1",
            "engine": 0,
            "process": 1,
            "at_unix_ns": clock.unix_ns,
            "started_unix_ns": NOW_UNIX_NS,
            "model": "llama",
            "waiting": 3,
            "running": 8,
            "kv_usage_ratio": 0.5,
            "longest_step_s": 0.02,
            "steps_total": 100,
            "busy_s_total": 2.5,
            "preemptions_total": 1,
        }
        return EngineSample(**{**given, **changes})

    return make
