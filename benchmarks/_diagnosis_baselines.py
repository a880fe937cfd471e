"""Simpler diagnosers, for comparison on the same cases.

- chance: name a random cause.
- phase: find the phase of the slow requests whose mean grew most, and name the most frequent cause
  of that phase.
- BARO: find the series that deviates most from the normal window (largest robust z-score), and name
  the cause that this series indicates. Source: BARO, Pham et al., FSE 2024, the RobustScorer.

These diagnosers always name a cause, even without an incident.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from diagnosis.inputs.requests import FloatArray, IntArray, Requests
from diagnosis.inputs.servers import Samples, Servers
from diagnosis.latency.parts import latency_s
from diagnosis.question import Metric, Question, Span

_PHASES: Final = {
    "frontend_s": "frontend_cpu",
    "queue_s": "load_exceeds_capacity",
    "prefill_s": "longer_prompts",
    "decode_s": "decode_batch_growth",
    "delivery_s": "network_or_client",
}

_CAUSE_OF_METRIC: Final = {
    "waiting": "load_exceeds_capacity",
    "running": "decode_batch_growth",
    "deferred": "lora_swap",
    "fetching_kv": "kv_transfer",
    "kv_usage_ratio": "kv_cache_exhausted",
    "longest_step_s": "engine_stall",
    "stall_s_total": "engine_stall",
    "scheduled_prefill_tokens_total": "prefill_interference",
    "decode_tokens_total": "longer_outputs",
    "prefix_cache_hits_tokens_total": "prefix_cache_miss",
    "kv_transfer_s_total": "kv_transfer",
    "preemptions_total": "preemption",
    "accepted_tokens_total": "spec_decode_rejection",
    "process_cpu_s_total": "frontend_cpu",
    "host_cpu_busy_s_total": "noisy_neighbour",
    "host_cpu_steal_s_total": "noisy_neighbour",
    "sm_clock_hz": "gpu_throttling",
    "foreign_processes": "noisy_neighbour",
    "sm_active_ratio": "slow_rank",
    "starts": "cold_start",
    "configs": "config_change",
    "frontend_s": "frontend_cpu",
    "delivery_s": "network_or_client",
    "prompt_tokens": "longer_prompts",
    "longest_prompt_tokens": "long_prompt_blocking",
    "output_tokens": "longer_outputs",
    "arrivals of a tenant": "tenant_flood",
    "arrivals at a replica": "replica_imbalance",
}

_BIN_S: Final = 5.0
TAIL: Final = 0.05


def by_phase(requests: Requests, question: Question) -> list[str]:
    """Return causes, ordered by the increase of the mean of their phase, largest increase first."""
    now = requests.within(question.window.from_unix_ns, question.window.to_unix_ns)
    before = requests.within(question.baseline.from_unix_ns, question.baseline.to_unix_ns)
    latency, usual = latency_s(now, question.metric), latency_s(before, question.metric)
    slow = latency >= np.nanquantile(latency, 1.0 - TAIL)
    ordinary = (usual >= np.nanquantile(usual, 0.25)) & (usual <= np.nanquantile(usual, 0.75))
    growth = {
        cause: _mean(now.number(phase)[slow]) - _mean(before.number(phase)[ordinary])
        for phase, cause in _PHASES.items()
    }
    return sorted(growth, key=lambda cause: -growth[cause])


def by_score(requests: Requests, servers: Servers, question: Question) -> list[str]:
    """Return causes, ordered by the robust z-score of their series, largest z-score first."""
    scores: dict[str, float] = {}
    for name, at_unix_ns, values in _series(requests, servers, question):
        cause = _CAUSE_OF_METRIC[name]
        score = _robust(at_unix_ns, values, question)
        scores[cause] = max(scores.get(cause, 0.0), score)
    return sorted(scores, key=lambda cause: -scores[cause])


def _robust(at_unix_ns: IntArray, values: FloatArray, question: Question) -> float:
    known = np.isfinite(values)
    normal = values[known & _in(at_unix_ns, question.baseline)]
    now = values[known & _in(at_unix_ns, question.window)]
    if normal.size < 5 or not now.size:
        return 0.0
    low, middle, high = np.quantile(normal, [0.25, 0.5, 0.75])
    # If the quartiles are equal, divide by 1, as BARO's scaler does.
    spread = high - low if high > low else 1.0
    return float(np.abs((now - middle) / spread).max())


def _series(
    requests: Requests, servers: Servers, question: Question
) -> Iterator[tuple[str, IntArray, FloatArray]]:
    for samples in (servers.engines, servers.gpus):
        yield from _sampled(samples)
    edges = _edges(question)
    at = edges[:-1]
    for name in ("frontend_s", "delivery_s", "prompt_tokens", "output_tokens"):
        yield name, at, _binned(requests.received_unix_ns, requests.number(name), edges, np.mean)
    prompts = requests.number("prompt_tokens")
    yield "longest_prompt_tokens", at, _binned(requests.received_unix_ns, prompts, edges, np.max)
    for label, name in (("tenant", "arrivals of a tenant"), ("replica", "arrivals at a replica")):
        column = requests.label(label)
        for code in range(len(column.values)):
            yield name, at, _counted(requests.received_unix_ns[column.codes == code], edges)
    starts = np.array([start.at_unix_ns for start in servers.starts], dtype=np.int64)
    yield "starts", at, _counted(starts, edges)
    configs = [start.config for start in servers.starts]
    new = [
        start.at_unix_ns for n, start in enumerate(servers.starts) if configs[n] not in configs[:n]
    ]
    yield "configs", at, _counted(np.array(new[1:], dtype=np.int64), edges)


def _sampled(samples: Samples) -> Iterator[tuple[str, IntArray, FloatArray]]:
    for name in _CAUSE_OF_METRIC:
        if name not in samples.numbers:
            continue
        if name.endswith("_total"):
            with np.errstate(divide="ignore", invalid="ignore"):
                values = samples.rises(name) / samples.spans_s
        else:
            values = samples.number(name)
        for series in np.unique(samples.series):
            mine = samples.series == series
            yield name, samples.at_unix_ns[mine], values[mine]


def _edges(question: Question) -> IntArray:
    begins = min(question.baseline.from_unix_ns, question.window.from_unix_ns)
    ends = max(question.baseline.to_unix_ns, question.window.to_unix_ns)
    return np.arange(begins, ends + 1, round(_BIN_S * 1e9), dtype=np.int64)


def _counted(at_unix_ns: IntArray, edges: IntArray) -> FloatArray:
    return np.histogram(at_unix_ns, edges)[0].astype(np.float64)


def _binned(at_unix_ns: IntArray, values: FloatArray, edges: IntArray, of: object) -> FloatArray:
    assert callable(of)
    place = np.searchsorted(edges, at_unix_ns, side="right") - 1
    known = np.isfinite(values)
    found = np.full(edges.size - 1, np.nan)
    for number in range(edges.size - 1):
        mine = values[known & (place == number)]
        if mine.size:
            found[number] = of(mine)
    return found


def _in(at_unix_ns: IntArray, span: Span) -> FloatArray:
    return np.asarray((at_unix_ns >= span.from_unix_ns) & (at_unix_ns < span.to_unix_ns))


def _mean(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else 0.0


_NOTICED_S: Final = {
    Metric.TTFT: 0.05,
    Metric.TPOT: 0.005,
    Metric.ITL_MAX: 0.02,
    Metric.E2E: 0.5,
    Metric.QUEUE: 0.05,
}
"""Seconds to add to both latencies before the ratio of window to baseline is computed. With these
seconds, an increase from 0.2 ms to 2 ms does not count as a tenfold increase."""


def alerted(requests: Requests, baseline: Span, window: Span) -> Metric:
    """Return the latency that an alert would report: the latency whose tail grew by the largest
    ratio."""
    growth = {
        metric: (tail_s(requests, metric, window) + noticed_s)
        / (tail_s(requests, metric, baseline) + noticed_s)
        for metric, noticed_s in _NOTICED_S.items()
    }
    return max(growth, key=lambda metric: growth[metric])


def tail_s(requests: Requests, metric: Metric, span: Span, share: float = TAIL) -> float:
    """Return the mean latency of the slowest requests in seconds, or 0 if it is unknown."""
    latency = latency_s(requests.within(span.from_unix_ns, span.to_unix_ns), metric)
    known = np.sort(latency[np.isfinite(latency)])
    return float(known[-max(1, round(share * known.size)) :].mean()) if known.size else 0.0
