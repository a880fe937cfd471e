"""Predict the latencies of a trace on the engines of a window.

The unchanged window is replayed to measure the model's error. Then the requests of the trace are
replayed on equal engines behind one router. The replayed percentiles are corrected by the model's
error, which also widens their confidence intervals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from alerts.evaluation.table_verdicts import columns_of
from analysis.corrected_prediction import (
    Predicted,
    RankCorrection,
    intervals,
    nested_latencies,
    rank_bounds,
    scaled,
)
from analysis.hardware_change import assumption
from analysis.percentile_curve import curve_of, shares_below
from analysis.recorded_traffic import MIN_REQUESTS, Recorded
from analysis.what_if import (
    PLACES,
    POINTS,
    PREFILL_APART,
    RESAMPLED,
    WhatIfAnswer,
    WhatIfQuestion,
    counted_objectives,
    good_ratio,
    ratio_interval,
    reproduce,
    usd_per_1000,
    with_rejected,
)
from analysis.window_replay import (
    METRICS,
    Replayed,
    blocks_of,
    pooled_model,
    replayed,
    resampled,
    traffic_of,
)
from replay.arrivals import Arrivals, FloatArray
from replay.conditions import Conditions, Shift
from replay.edits import EditError, Edits, edited_engine
from replay.outcome import Bind
from store.queries import request_schema

RATE_S: Final = 30
"""Length in seconds of the interval in which the highest request rate is measured."""


@dataclass(frozen=True, slots=True)
class TraceAttainment:
    """The predicted share of the trace's requests that meet an objective."""

    slo: str
    target: float
    good_ratio: Predicted


@dataclass(frozen=True, slots=True)
class TraceAnswer:
    """Predicted latencies of a trace's requests."""

    of_window: WhatIfAnswer
    """The replay of the unchanged window. If it does not reproduce the measured latencies, there is
    no prediction."""
    requests: int
    length_s: float
    """Seconds from the first request of the trace to the last request."""
    edits: Sequence[str]
    predicted: Mapping[str, Mapping[str, Predicted]] = field(default_factory=dict)
    objectives: Sequence[TraceAttainment] = ()
    engines: int = 0
    usd_per_hour: float | None = None
    served: int = 0
    """Number of requests that the engines do not reject. A changed rate changes the number of
    requests."""
    rejected: int = 0
    """Number of requests that the engines reject. They are longer than `max_model_len`, or the
    queue is full."""
    binds: Bind = "none"
    saturated: bool = False
    """True if the queue is full, or grows until the end of the trace."""
    extrapolated: Sequence[str] = ()

    @property
    def rate_rps(self) -> float | None:
        """Return the mean request rate of the trace, or None if all requests arrive at the same
        time."""
        return self.requests / self.length_s if self.length_s > 0 else None

    @property
    def throughput_rps(self) -> float | None:
        """The mean rate of the requests that are not rejected, or None if all requests arrive at
        the same time."""
        return self.served / self.length_s if self.length_s > 0 else None

    @property
    def usd_per_1000_requests(self) -> float | None:
        """The cost of the engines per 1,000 requests, including idle time.

        Return None if the engines cannot keep up."""
        return None if self.saturated else usd_per_1000(self.usd_per_hour, self.throughput_rps)


def predict_trace(
    recorded: Recorded,
    question: WhatIfQuestion,
    trace: Arrivals,
    draws: int = RESAMPLED,
    progress: Callable[[], None] = lambda: None,
) -> TraceAnswer:
    """Replay a trace of at least one request on the engines of a recorded window.

    Args:
        draws: number of resampled replays for the confidence intervals, or 0 for no intervals.

    Raises:
        EditError: an edit is not allowed, or prefill and decode are on different servers.
    """
    if recorded.prefill_apart:
        raise EditError(PREFILL_APART)
    trace = replace(trace, received_s=trace.received_s - trace.received_s[0])
    edits = question.edits
    of_window, now = reproduce(recorded, replace(question, equals={}))
    answer = TraceAnswer(of_window, len(trace), float(trace.received_s[-1]), edits.listed())
    if of_window.refused is not None:
        return answer
    served = _served(recorded, trace, edits)
    # The model in `served` already has the edited router and number of engines.
    rest = replace(edits, replicas=None, data_parallel_size=None, router=None)
    window = _Window(recorded, question, now)
    then = replayed(served, traffic_of(served), rest, "trace", np.random.default_rng(0))
    curves = {name: _percentiles(then.values[name]) for name in METRICS}
    ratios = window.good_ratios(then, trace)
    blocks = blocks_of(served).number
    drawn_shares, drawn_ratios = [], []
    for number in range(draws):
        some = resampled(served, np.random.default_rng([1, number]))
        after = replayed(served, some, rest, f"draw {number}", np.random.default_rng([2, number]))
        drawn_shares.append(
            {name: shares_below(after.values[name], curves[name]) for name in METRICS}
        )
        drawn_ratios.append(window.good_ratios(after, trace))
        progress()

    def predicted(name: str) -> list[Predicted]:
        q = np.array([*POINTS.values()])
        reproduced = of_window.reproduced[name]
        return intervals(
            scaled(window.measured[name], window.now[name], curves[name]),
            q,
            rank_bounds(q, [each[name] for each in drawn_shares], blocks),
            then.values[name],
            window.corrections[name],
            np.array([reproduced[point].error_ratio or 0.0 for point in POINTS]),
        )

    # All requests of a trace are replayed as streamed requests.
    found = nested_latencies({name: predicted(name) for name in METRICS}, all_streamed=True)
    engines = served.engines[0].model.replicas
    # The price of a new device is unknown here.
    usd = None if edits.device else question.usd_per_hour
    return replace(
        answer,
        predicted={name: dict(zip(POINTS, each, strict=True)) for name, each in found.items()},
        objectives=[
            TraceAttainment(
                objective.name,
                float(objective.target),
                ratio_interval(value, [each[place] for each in drawn_ratios], blocks),
            )
            for place, (objective, _) in enumerate(window.objectives)
            if (value := ratios[place]) is not None
        ],
        engines=engines,
        usd_per_hour=None if usd is None else usd * engines / len(recorded.engines),
        served=int((~then.rejected).sum()),
        rejected=int(then.rejected.sum()),
        binds=then.binds,
        saturated=then.saturated,
        extrapolated=_extrapolations(recorded, trace, edits, engines),
    )


def _served(recorded: Recorded, trace: Arrivals, edits: Edits) -> Recorded:
    """Return equal replicas behind one router.

    Their step model is the mean over the window's engines."""
    drafted = [
        each.arrivals.acceptance
        for each in recorded.engines
        if each.arrivals.acceptance is not None
    ]
    if drafted:
        mean = float(np.mean(np.concatenate(drafted)))
        trace = replace(trace, acceptance=np.full(len(trace), mean))
    model = pooled_model(recorded, [each.model for each in recorded.engines], edits)
    pool = replace(
        recorded.engines[0],
        model=model,
        conditions=_repeated(recorded, float(trace.received_s[-1]), model.replicas),
        rows=np.arange(len(trace)),
        arrivals=trace,
        waiting=(),
    )
    return replace(recorded, engines=[pool], tenants=(), lead_s=0.0, waiting=())


def _repeated(recorded: Recorded, length_s: float, replicas: int) -> Conditions:
    """Repeat the stalls and paces (changes of speed) of the window's engines until the last request
    at `length_s`."""
    window = recorded.window
    period_s = window.length_s
    lead_s = recorded.lead_s
    shifts = [
        Shift(lead_s, lead_s + period_s, by_s)
        for by_s in (np.arange(0.0, length_s + period_s, period_s) - lead_s).tolist()
    ]
    engines = [each.conditions.shifted(shifts) for each in recorded.engines]
    its = [engines[number % len(engines)] for number in range(replicas)]
    return Conditions(
        stalls=tuple(each.stalls_of(0) for each in its),
        paces=tuple(each.paces_of(0) for each in its),
    )


class _Window:
    """The measured and the replayed latencies of the window, for the correction."""

    def __init__(self, recorded: Recorded, question: WhatIfQuestion, now: Replayed) -> None:
        counted = recorded.counted
        measured = {name: recorded.latency(name)[counted] for name in METRICS}
        replayed_now = {name: now.values[name][counted[now.source]] for name in METRICS}
        self.measured = {name: _percentiles(measured[name]) for name in METRICS}
        self.now = {name: _percentiles(replayed_now[name]) for name in METRICS}
        self.corrections = {
            name: RankCorrection(replayed_now[name], measured[name]) for name in METRICS
        }
        self.objectives = counted_objectives(question)

    def good_ratios(self, then: Replayed, trace: Arrivals) -> list[float | None]:
        """The share of good requests for each objective.

        Return None if the objective selects no request."""
        counted = then.judged
        known: dict[str, Any] = {
            name: self.corrections[name].corrected(then.values[name][counted]) for name in METRICS
        }
        known |= {
            "prompt_tokens": trace.prompt_tokens[then.source[counted]],
            "output_tokens": trace.output_tokens[then.source[counted]],
            "streamed": np.ones(int(counted.sum()), dtype=bool),
        }
        rejected = then.queue_full[counted]
        return [
            good_ratio(
                indicator,
                with_rejected(_table(known, columns_of(indicator.where, indicator.good)), rejected),
            )
            for _, indicator in self.objectives
        ]


def _percentiles(values: FloatArray) -> FloatArray:
    return curve_of(values)[[*PLACES.values()]]


def _table(known: Mapping[str, Any], columns: Sequence[str]) -> pa.Table:
    """Return requests as a table. A column that a trace does not have is null."""
    schema = request_schema(columns)
    number = len(known["streamed"])
    return pa.table(
        [
            pa.array(known[each.name], from_pandas=True).cast(each.type)
            if each.name in known
            else pa.array(["stop"] * number)
            if each.name == "outcome"
            else pa.nulls(number, each.type)
            for each in schema
        ],
        names=schema.names,
    )


def _extrapolations(recorded: Recorded, trace: Arrivals, edits: Edits, engines: int) -> list[str]:
    """Return the assumptions of the prediction for which the recorded window has no evidence."""
    engine = edited_engine(recorded.engines[0].model.engine, edits.arguments or {})
    window = [each.arrivals for each in recorded.engines]
    found = []
    for what, lengths, recorded_lengths in (
        ("prompts", trace.prompt_tokens * edits.prompt, [each.prompt_tokens for each in window]),
        ("answers", trace.output_tokens * edits.output, [each.output_tokens for each in window]),
    ):
        longest = int(np.concatenate(recorded_lengths).max())
        if longer := int((lengths > longest).sum()):
            found.append(
                f"{what} longer than the longest of the window ({longest:,} tokens): {longer:,}"
            )
    factor = float(np.prod([each.factor for each in edits.rates if each.tenant is None]))
    rate = _highest_rate(trace.received_s) * factor / engines
    known = _highest_rate(np.concatenate([each.received_s for each in window])) / len(window)
    if rate > known:
        found.append(
            f"{rate:.3g} requests/s per engine in the busiest {RATE_S} s; the window had at most"
            f" {known:.3g}"
        )
    if trace.prefixes is None and engine.enable_prefix_caching:
        found.append("no prompt hits the prefix cache, because the trace has no hash_ids")
    if len(trace) < MIN_REQUESTS:
        found.append(f"percentiles of only {len(trace)} requests")
    if engines > 1:
        found.append(f"the router is {edits.pool_router}, and the engines are equal")
    if (hardware := assumption(edits)) is not None:
        found.append(hardware)
    return found


def _highest_rate(received_s: FloatArray) -> float:
    places = np.floor((received_s - received_s.min()) / RATE_S).astype(np.int64)
    return float(np.unique(places, return_counts=True)[1].max()) / RATE_S
