"""Requests as arrays, made for the tests: a quiet hour, and what is done to it."""

from dataclasses import replace
from typing import Any

import numpy as np

from diagnosis.explain import explain
from diagnosis.explanation import Explanation
from diagnosis.question import Metric, Question, Span
from diagnosis.requests import FloatArray, Labels, Requests
from diagnosis.servers import Servers

S = 10**9
BASELINE = Span(0, 900 * S)
WINDOW = Span(900 * S, 1800 * S)

ALPHA_S = 40e-6
"""Own prefill of a token."""
STEP_S = 0.02
"""Own decode of a token."""


def quiet(number: int = 6_000, seed: int = 0, seconds: float = 1800.0) -> Requests:
    """Two ordinary stretches: lognormal lengths, and noise in every part."""
    draw = np.random.default_rng(seed)
    received = np.sort(draw.uniform(0.0, seconds, number))
    prompt = np.clip(draw.lognormal(6.5, 0.8, number), 10, 20_000).round()
    output = np.clip(draw.lognormal(4.8, 0.7, number), 2, 2_000).round()
    cached = np.where(draw.random(number) < 0.6, np.minimum(256.0, prompt // 2), 0.0)

    def noise(mean_s: float) -> FloatArray:
        return draw.exponential(mean_s, number)

    columns: dict[str, FloatArray] = {
        "prompt_tokens": prompt,
        "output_tokens": output,
        "cached_tokens": cached,
        "streamed": np.ones(number),
        "frontend_s": noise(0.002),
        "queue_seats_s": noise(0.002),
        "queue_kv_s": np.zeros(number),
        "queue_budget_s": noise(0.002),
        "queue_held_s": np.zeros(number),
        "queue_step_s": noise(0.01),
        "prefill_own_s": 0.005 + ALPHA_S * (prompt - cached) * draw.normal(1.0, 0.03, number),
        "prefill_others_prefill_s": noise(0.01),
        "prefill_others_decode_s": noise(0.003),
        "prefill_preempted_s": np.zeros(number),
        "prefill_stall_s": np.zeros(number),
        "decode_own_s": STEP_S * (output - 1) * draw.normal(1.0, 0.03, number),
        "decode_others_prefill_s": noise(0.002) * (output - 1),
        "decode_others_decode_s": noise(0.004) * (output - 1),
        "decode_preempted_s": np.zeros(number),
        "decode_stall_s": np.zeros(number),
        "delivery_s": noise(0.001),
    }
    return summed(
        Requests(
            (received * S).astype(np.int64),
            columns,
            {
                "outcome": labels(["stop"] * number),
                "tenant": labels(draw.choice(["acme", "globex", "hooli"], number).tolist()),
                "replica": labels(draw.choice(["r0", "r1"], number).tolist()),
                "config": labels(["c0"] * number),
            },
        )
    )


def labels(values: list[str]) -> Labels:
    """A column of names."""
    names = sorted(set(values))
    return Labels(np.array([names.index(each) for each in values], dtype=np.int32), tuple(names))


def summed(requests: Requests) -> Requests:
    """The phases and latencies that follow from the parts."""
    columns = dict(requests.numbers)
    for phase in ("queue", "prefill", "decode"):
        parts = [name for name in columns if name.startswith(f"{phase}_") and name != f"{phase}_s"]
        columns[f"{phase}_s"] = np.sum([columns[name] for name in parts], axis=0)
    columns["ttft_s"] = columns["frontend_s"] + columns["queue_s"] + columns["prefill_s"] + 0.001
    columns["e2e_s"] = (
        columns["frontend_s"]
        + columns["queue_s"]
        + columns["prefill_s"]
        + columns["decode_s"]
        + columns["delivery_s"]
    )
    columns["itl_max_s"] = columns["decode_s"] / np.maximum(columns["output_tokens"] - 1, 1) * 2
    return replace(requests, numbers=columns)


def later(requests: Requests, **changed: Any) -> Requests:
    """Columns of the window's requests changed: a function of their old values, or values."""
    now = requests.received_unix_ns >= WINDOW.from_unix_ns
    columns = dict(requests.numbers)
    for name, change in changed.items():
        old = columns[name]
        columns[name] = np.where(now, change(old) if callable(change) else change, old)
    return summed(replace(requests, numbers=columns))


def asked(
    requests: Requests, metric: Metric = Metric.TTFT, servers: Servers | None = None
) -> Explanation:
    """The window against the baseline."""
    return explain(requests, servers or Servers(), Question(metric, WINDOW, BASELINE))
