"""Requests, samples and questions for the tests, and readers of the results."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from diagnosis.explain import explain
from diagnosis.explanation import Cause, Explanation
from diagnosis.inputs.arrow import servers_of
from diagnosis.inputs.requests import BoolArray, FloatArray, LabelColumn, Requests
from diagnosis.inputs.servers import Servers
from diagnosis.latency.attainment import LatencyThreshold
from diagnosis.question import Metric, Question, Span
from telemetry.starts import Argument, EngineStart, written

S = 10**9
BASELINE = Span(0, 900 * S)
WINDOW = Span(900 * S, 1800 * S)

REPLICAS = ("r0", "r1")

ALPHA_S = 40e-6
"""Seconds that each uncached prompt token adds to the column `prefill_own_s`."""
STEP_S = 0.02
"""Seconds that each output token after the first adds to the column `decode_own_s`."""
EVERY_S = 5
"""Seconds between two samples of a server."""


@cache
def quiet(number: int = 6_000, seed: int = 0, seconds: float = 1800.0) -> Requests:
    """Return requests of two ordinary time ranges, with lognormal lengths and noise."""
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
        "reasoning_tokens": np.floor((output - 1) * 0.6),
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
    for column in columns.values():
        column.setflags(write=False)
    return summed(
        Requests(
            (received * S).astype(np.int64),
            columns,
            {
                "outcome": labels(["stop"] * number),
                "tenant": labels(draw.choice(["acme", "globex", "hooli"], number).tolist()),
                "replica": labels(draw.choice(REPLICAS, number).tolist()),
                "config": labels(["c0"] * number),
            },
        )
    )


def labels(values: list[str]) -> LabelColumn:
    names = sorted(set(values))
    return LabelColumn(
        np.array([names.index(each) for each in values], dtype=np.int32), tuple(names)
    )


def summed(requests: Requests) -> Requests:
    """Return the requests with each phase and latency replaced by the sum of its parts."""
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
    if "reasoning_tokens" in columns:
        share = columns["reasoning_tokens"] / np.maximum(columns["output_tokens"] - 1, 1)
        columns["first_content_s"] = columns["ttft_s"] + columns["decode_s"] * share
    columns["itl_max_s"] = columns["decode_s"] / np.maximum(columns["output_tokens"] - 1, 1) * 2
    return replace(requests, numbers=columns)


def later(requests: Requests, **changed: Any) -> Requests:
    """Change columns of the window's requests: to a value, or by a function of the old values."""
    now = requests.received_unix_ns >= WINDOW.from_unix_ns
    columns = dict(requests.numbers)
    for name, change in changed.items():
        old = columns[name]
        columns[name] = np.where(now, change(old) if callable(change) else change, old)
    return summed(replace(requests, numbers=columns))


def working(
    requests: Requests, prompts: float = 1.0, outputs: float = 1.0, hits: float = 1.0
) -> Requests:
    """Multiply the tokens of the window's requests, and the own work with them."""
    numbers = requests.numbers
    prompt = np.round(numbers["prompt_tokens"] * prompts)
    cached = np.floor(numbers["cached_tokens"] * hits)
    gaps = numbers["output_tokens"] - 1
    longer = later(
        requests,
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=np.round(gaps * outputs) + 1,
        reasoning_tokens=numbers["reasoning_tokens"] * outputs,
        prefill_own_s=lambda old: (
            old + ALPHA_S * (prompt - cached - numbers["prompt_tokens"] + numbers["cached_tokens"])
        ),
    )
    if outputs == 1.0:
        return longer
    decode = [name for name in numbers if name.startswith("decode_") and name != "decode_s"]
    return later(longer, **{name: numbers[name] * outputs for name in decode})


def well_cached(requests: Requests, ratio: float = 0.8) -> Requests:
    """Set the share of every prompt that the cache contains, in both ranges."""
    prompt = requests.numbers["prompt_tokens"]
    cached = np.floor(prompt * ratio)
    own_s = 0.005 + ALPHA_S * (prompt - cached)
    numbers = {**requests.numbers, "cached_tokens": cached, "prefill_own_s": own_s}
    return summed(replace(requests, numbers=numbers))


def busier(requests: Requests, times: int, **who: str) -> Requests:
    """Add copies of the window's requests with these labels, at other times."""
    again = requests.received_unix_ns >= WINDOW.from_unix_ns
    for name, value in who.items():
        again &= requests.label(name).is_value(value)
    rows = np.repeat(np.flatnonzero(again), times - 1)
    at = np.random.default_rng(5).integers(WINDOW.from_unix_ns, WINDOW.to_unix_ns, rows.size)
    received = np.concatenate([requests.received_unix_ns, at])
    more = requests.rows(np.concatenate([np.arange(len(requests)), rows]))
    in_time = np.argsort(received, kind="stable")
    sorted_rows = replace(more, received_unix_ns=received).rows(in_time)
    return replace(sorted_rows, numbers=dict(sorted_rows.numbers), labels=dict(sorted_rows.labels))


def labelled(requests: Requests, name: str, before: str, now: str) -> Requests:
    """Set a label of all requests, to one value in the window and another in the baseline."""
    late = requests.received_unix_ns >= WINDOW.from_unix_ns
    names = labels(np.where(late, now, before).tolist())
    return replace(requests, labels={**requests.labels, name: names})


def rolled_out(requests: Requests) -> Requests:
    """Give every replica of the window a new name, as a Kubernetes rollout does."""
    late = requests.received_unix_ns >= WINDOW.from_unix_ns
    replica = requests.label("replica")
    old = np.array(replica.values)[replica.codes]
    names = labels(np.where(late, np.char.add("new-", old), old).tolist())
    return replace(requests, labels={**requests.labels, "replica": names})


def at_replica(requests: Requests, *replicas: str) -> BoolArray:
    replica = requests.label("replica")
    return np.isin(np.array(replica.values)[replica.codes], replicas)


def slower_where(replicas: tuple[str, ...], times: float) -> Requests:
    """Return requests with more own work at these replicas in the window."""
    requests = quiet()
    factor = np.where(at_replica(requests, *replicas), times, 1.0)
    return later(
        requests, prefill_own_s=lambda old: old * factor, decode_own_s=lambda old: old * factor
    )


def asking_for_adapters(kinds: int, longer: float = 1.0) -> Requests:
    """Return requests for LoRA adapters: 3 adapters in the baseline, and `kinds` adapters in the
    window.

    `longer` multiplies the output tokens in the window.
    """
    requests = quiet()
    draw = np.random.default_rng(4)
    late = requests.received_unix_ns >= WINDOW.from_unix_ns
    number = np.where(late, draw.integers(0, kinds, late.size), draw.integers(0, 3, late.size))
    with_adapters = Requests(
        requests.received_unix_ns,
        requests.numbers,
        {**requests.labels, "lora": labels([f"a{each:02}" for each in number])},
    )
    held_s = draw.exponential(1.0, late.size)
    outputs = requests.numbers["output_tokens"]
    return later(
        with_adapters,
        queue_held_s=held_s,
        output_tokens=np.round(outputs * longer),
        decode_own_s=STEP_S * (np.round(outputs * longer) - 1),
    )


def sampled_each_second(now: Mapping[str, Mapping[str, Any]], usual: Mapping[str, Any]) -> pa.Table:
    """Return samples of both replicas: usual values, and the given values in the window.

    A value may be a function of the second. Columns that end in `_total` are given per second.
    """
    rows, totals = [], dict[tuple[str, str], float]()
    for second in range(0, 1800, EVERY_S):
        for replica in REPLICAS:
            late = now.get(replica, {}) if second * S >= WINDOW.from_unix_ns else {}
            row: dict[str, Any] = {"at_unix_ns": second * S, "replica": replica}
            for name, value in {**usual, **late}.items():
                row[name] = value(second) if callable(value) else value
                if name.endswith("_total"):
                    row[name] = totals.get((replica, name), 0.0) + EVERY_S * row[name]
                    totals[replica, name] = row[name]
            rows.append(row)
    return pa.Table.from_pylist(rows)


def started(
    at_s: float = 0.0, config: str = "c0", replica: str = "r0", **arguments: Argument
) -> EngineStart:
    """Return an engine start with these arguments; `__` stands for the dot in a name."""
    return EngineStart(
        replica=replica,
        engine=0,
        process=1,
        at_unix_ns=int(at_s * S),
        config=config,
        arguments=written({name.replace("__", "."): value for name, value in arguments.items()}),
    )


def fleet(now: Mapping[str, Any], usual: Mapping[str, Any], **arguments: Argument) -> Servers:
    """Return both replicas, with these arguments, the samples `now` in the window and the samples
    `usual` before it."""
    starts = [started(0.0, "c0", each, **arguments) for each in REPLICAS] if arguments else []
    return servers_of(sampled_each_second(dict.fromkeys(REPLICAS, now), usual), None, starts)


def asked(
    requests: Requests,
    metric: Metric = Metric.TTFT,
    servers: Servers | None = None,
    window: Span = WINDOW,
    where: Mapping[str, str | None] | None = None,
    thresholds: Sequence[LatencyThreshold] = (),
) -> Explanation:
    question = Question(metric, window, BASELINE, where or {})
    return explain(requests, servers or Servers(), question, thresholds)


def first_cause(answer: Explanation, cause_id: str, above: float = 0.0) -> Cause:
    """Return the first cause; check its id and its share."""
    first = answer.causes[0]
    assert first.id == cause_id
    assert first.share > above
    return first


def shares(answer: Explanation) -> dict[str, float]:
    return {cause.id: cause.share for cause in answer.causes}


def evidence(cause: Cause, beginning: str) -> tuple[float | None, float | None]:
    """Return the values in the baseline and in the window, of the evidence whose text begins like
    this."""
    (found,) = [each for each in cause.evidence if each.what.startswith(beginning)]
    return found.baseline, found.now


def flags(cause: Cause) -> dict[str | None, str]:
    return {lever.flag: lever.action for lever in cause.levers}
