"""Predict the effect of a change on the recorded traffic of a window.

The window is replayed twice: once unchanged, to measure how well the model reproduces the window,
and once with the edits. A predicted percentile is the measured percentile times the ratio of the
two replays, so that errors common to both replays cancel out. Its interval is computed from replays
of resampled blocks of the window, and widened by the error of the unchanged replay.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

from alerts.evaluation.request_verdicts import Verdict
from alerts.evaluation.table_verdicts import VERDICTS, columns_of, judge_table
from alerts.objectives import Goodput, Objective
from analysis.recorded_traffic import Recorded, RecordedEngine, read_recorded
from replay.arrivals import Arrivals, BoolArray, FloatArray, IntArray
from replay.conditions import Conditions, Pace, Stall
from replay.edits import EditError, Edits, edited_arrivals, edited_engine
from replay.loop import replay
from replay.outcome import Bind, Outcome
from replay.server_model import ServerModel
from replay.step_model import StepModel
from store.queries import Window
from telemetry.quantiles import Z_95, quantile

METRICS: Final = ("ttft_s", "tpot_s", "itl_max_s", "e2e_s", "queue_s")
POINTS: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
JUDGED: Final = ("ttft_s", "tpot_s", "e2e_s")
"""A prediction is made only if the unchanged replay reproduces these latencies."""

MOST_ERROR: Final[Mapping[str, float]] = {"p50": 0.25, "p99": 0.5}
"""Maximum relative error of the unchanged replay. There is no prediction if the error is larger.

The limits are provisional, because only simulated windows were measured. Their error is at most 3 %
(docs/benchmarks.md).
"""

RESAMPLED: Final = 40
"""Number of pairs of replays for an interval. The standard deviation of 40 draws is known to within
11 %."""
BLOCK_S: Final = 30
"""Length of a resampled block: longer than most requests, and shorter than most changes of the
request rate."""
SATURATED: Final = 0.02
"""Growth of the queueing time, in seconds per second of the window, above which the engines cannot
keep up. 0.02 is a request rate 2 % above the engines' capacity."""

Percentiles = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class WhatIfQuestion:
    """The window to replay, the edits, and the requests whose latencies are reported."""

    window: Window
    edits: Edits
    equals: Mapping[str, str | None] = field(default_factory=dict)
    """Labels that select the requests to report. All requests are replayed."""
    objectives: Sequence[Objective] = ()
    usd_per_hour: float | None = None
    """Current cost of the engines, or None if they have no price."""


class Reproduced(NamedTuple):
    """One percentile: as measured, and as replayed without edits."""

    measured: float | None
    replayed: float | None

    @property
    def error_ratio(self) -> float | None:
        """The replayed value divided by the measured value, minus 1."""
        if not self.measured or self.replayed is None:
            return None
        return self.replayed / self.measured - 1


class Predicted(NamedTuple):
    """A predicted value with its 95 % interval."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Attainment:
    """The share of an objective's requests that are good: as measured, and as predicted."""

    slo: str
    good_ratio_now: float
    good_ratio: Predicted


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """Measured, reproduced and predicted latencies.

    If there is no prediction, `refused` has the reason.
    """

    window: Window
    requests: int
    edits: Sequence[str]
    reproduced: Mapping[str, Mapping[str, Reproduced]]
    refused: str | None
    now: Mapping[str, Percentiles]
    throughput_rps: float
    usd_per_hour: float | None
    left_out: Mapping[str, int]
    simulated: bool
    predicted: Mapping[str, Mapping[str, Predicted]] = field(default_factory=dict)
    predicted_rps: float | None = None
    predicted_usd_per_hour: float | None = None
    rejected: int = 0
    """Number of requests that the edited engines reject, because they are longer than
    `max_model_len` or the queue is full."""
    objectives: Sequence[Attainment] = ()
    binds: Bind = "none"
    binds_now: Bind = "none"
    saturated: bool = False
    """Whether the queue of the edited engines grows until the end of the window."""
    extrapolated: Sequence[str] = ()


def answer_what_if(
    engine: Engine, question: WhatIfQuestion, progress: Callable[[], None] = lambda: None
) -> WhatIfAnswer:
    """Replay a window of the store with and without the edits.

    Args:
        engine: from `open_database`.
        question: the window, the edits, and the requests to report.
        progress: called after each of the `RESAMPLED` pairs of replays.

    Raises:
        NotReplayableError: the window has too few or too many requests, or an engine uses a feature
            that the replay does not model.
        EditError: an edit is not allowed.
    """
    beside = [*question.equals, *columns_of_objectives(question.objectives)]
    recorded = read_recorded(engine, question.window, beside)
    return predict(recorded, question, progress=progress)


def columns_of_objectives(objectives: Sequence[Objective]) -> list[str]:
    """Return the columns of requests that are needed to judge these objectives."""
    found: list[str] = []
    for each in objectives:
        if isinstance(each.indicator, Goodput):
            found += columns_of(each.indicator.where, each.indicator.good)
    return found


def predict(
    recorded: Recorded,
    question: WhatIfQuestion,
    resampled: int = RESAMPLED,
    progress: Callable[[], None] = lambda: None,
) -> WhatIfAnswer:
    """Predict the effect of the edits from recorded traffic.

    Args:
        recorded: the window.
        question: the window, the edits, and the requests to report.
        resampled: number of pairs of replays for the intervals.
        progress: called after each pair.

    Raises:
        EditError: an edit is not allowed.
    """
    edits = question.edits
    chosen = recorded.counted & _matching(recorded.requests, question.equals)
    whole = _unresampled(recorded)
    same = Edits(router=edits.router or "round_robin") if edits.pools else Edits()
    chance = np.random.default_rng(0)
    now = _run(recorded, whole, same, "now", chance)
    measured = {name: recorded.column(name) for name in METRICS}
    reproduced = {
        name: {
            point: Reproduced(
                _quantile(measured[name][chosen], q),
                _quantile(now.values[name][chosen[now.source]], q),
            )
            for point, q in POINTS.items()
        }
        for name in METRICS
    }
    length_s = (question.window.to_unix_ns - question.window.from_unix_ns) / 1e9
    answer = WhatIfAnswer(
        window=question.window,
        requests=int(chosen.sum()),
        edits=edits.listed(),
        reproduced=reproduced,
        refused=_refusal(reproduced),
        now={
            name: {point: each.measured for point, each in points.items()}
            for name, points in reproduced.items()
        },
        throughput_rps=int(chosen.sum()) / length_s,
        usd_per_hour=question.usd_per_hour,
        left_out=recorded.left_out,
        simulated=recorded.simulated,
        binds_now=now.binds,
    )
    if answer.refused is not None:
        return answer
    then = _run(recorded, whole, edits, "now", chance)
    draws: list[dict[tuple[str, str], float]] = []
    shares: list[list[float | None]] = []
    for number in range(resampled):
        some = _resampled(recorded, np.random.default_rng([1, number]))
        before, after = (
            _run(recorded, some, each, f"draw {number}", np.random.default_rng([2, number]))
            for each in (same, edits)
        )
        draws.append(_ratios(chosen, some, before, after, measured))
        shares.append(
            _attained(recorded, chosen, question.objectives, before, after, measured, some)
        )
        progress()
    predicted = {
        name: {
            point: _predicted(reproduced[name][point], then, chosen, name, q, draws, point)
            for point, q in POINTS.items()
        }
        for name in METRICS
    }
    replicas = edits.replicas or len(recorded.engines)
    usd = question.usd_per_hour
    return replace(
        answer,
        predicted=predicted,
        predicted_rps=int((chosen[then.source] & ~then.rejected).sum()) / length_s,
        predicted_usd_per_hour=None if usd is None else usd * replicas / len(recorded.engines),
        rejected=int((chosen[then.source] & then.rejected).sum()),
        objectives=_objectives(recorded, chosen, question.objectives, now, then, measured, shares),
        binds=then.binds,
        saturated=then.saturated,
        extrapolated=_extrapolations(recorded, edits),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Traffic:
    """Recorded or resampled arrivals of each engine, and its stalls and changes of speed."""

    arrivals: Sequence[Arrivals]
    conditions: Sequence[Conditions]
    rows: Sequence[IntArray]
    """The index of the recorded request of each arrival."""
    since_s: float
    """Requests received before this time are not counted."""


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """The result of a replay, over all engines."""

    values: Mapping[str, FloatArray]
    source: IntArray
    """(n,) the index of the recorded request that each replayed request copies."""
    rejected: BoolArray
    binds: Bind
    saturated: bool


def _unresampled(recorded: Recorded) -> _Traffic:
    return _Traffic(
        [each.arrivals for each in recorded.engines],
        [each.conditions for each in recorded.engines],
        [each.rows for each in recorded.engines],
        recorded.lead_s,
    )


def _resampled(recorded: Recorded, chance: np.random.Generator) -> _Traffic:
    """Draw blocks of the window with replacement. The requests before the window stay unchanged."""
    received_s = np.concatenate([each.arrivals.received_s for each in recorded.engines])
    lead_s = float(np.ceil(recorded.lead_s / BLOCK_S)) * BLOCK_S
    blocks = max(1, round((float(received_s.max()) - lead_s) / BLOCK_S))
    starts_s = lead_s + BLOCK_S * chance.integers(0, blocks, blocks)
    arrivals, conditions, rows = [], [], []
    for each in recorded.engines:
        at_s = each.arrivals.received_s
        places = [np.flatnonzero(at_s < lead_s)]
        moved = [at_s[places[0]]]
        paces = [pace for pace in each.conditions.paces_of(0) if pace.from_s < lead_s]
        stalls = [stall for stall in each.conditions.stalls_of(0) if stall.at_s < lead_s]
        for number, start_s in enumerate(starts_s.tolist()):
            low, high = np.searchsorted(at_s, [start_s, start_s + BLOCK_S])
            by_s = lead_s + number * BLOCK_S - start_s
            places.append(np.arange(low, high))
            moved.append(at_s[low:high] + by_s)
            paces += [
                Pace(pace.from_s + by_s, pace.factor)
                for pace in each.conditions.paces_of(0)
                if start_s <= pace.from_s < start_s + BLOCK_S
            ]
            stalls += [
                Stall(stall.at_s + by_s, stall.for_s)
                for stall in each.conditions.stalls_of(0)
                if start_s <= stall.at_s < start_s + BLOCK_S
            ]
        drawn = np.concatenate(places)
        arrivals.append(each.arrivals.select(drawn, np.concatenate(moved)))
        conditions.append(Conditions(stalls=(tuple(stalls),), paces=(tuple(paces),)))
        rows.append(each.rows[drawn])
    return _Traffic(arrivals, conditions, rows, recorded.lead_s)


def _run(
    recorded: Recorded, traffic: _Traffic, edits: Edits, seed: str, chance: np.random.Generator
) -> _Run:
    """Replay traffic with edits: each engine separately, or all requests through a router."""
    pools = list(
        zip(_models(recorded), traffic.arrivals, traffic.conditions, traffic.rows, strict=True)
    )
    if edits.pools:
        pools = [_pooled(recorded, traffic, edits)]
    outcomes: list[Outcome] = []
    sources: list[IntArray] = []
    for number, (model, arrivals, conditions, rows) in enumerate(pools):
        engine = edited_engine(model.engine, edits.arguments or {})
        changed, copied = edited_arrivals(
            arrivals, edits, engine, model.front_end, recorded.tenants, chance
        )
        outcomes.append(
            replay(replace(model, engine=engine), changed, f"{seed} {number}", conditions)
        )
        sources.append(rows[copied])
    received_s = np.concatenate([each.received_s for each in outcomes])
    return _Run(
        {name: np.concatenate([getattr(each, name) for each in outcomes]) for name in METRICS},
        np.concatenate(sources),
        np.concatenate([each.rejected for each in outcomes]),
        _binds(outcomes),
        any(_saturates(each, traffic.since_s) for each in outcomes if received_s.size),
    )


def _models(recorded: Recorded) -> list[ServerModel]:
    return [each.model for each in recorded.engines]


def _pooled(
    recorded: Recorded, traffic: _Traffic, edits: Edits
) -> tuple[ServerModel, Arrivals, Conditions, IntArray]:
    """Return one model with the requests of all engines, for equal replicas behind a router."""
    first = recorded.engines[0].model
    steps = [each.model.engine.step for each in recorded.engines]
    mean = StepModel(
        **{
            name: float(np.mean([getattr(each, name) for each in steps]))
            for name in StepModel.__dataclass_fields__
        }
    )
    model = replace(
        first,
        engine=replace(first.engine, step=mean),
        replicas=edits.replicas or len(recorded.engines),
        router=edits.router or "round_robin",
    )
    received_s = np.concatenate([each.received_s for each in traffic.arrivals])
    order = np.argsort(received_s, kind="stable")
    arrivals = _concatenated(traffic.arrivals, order)
    conditions = Conditions(
        stalls=tuple(each.stalls_of(0) for each in traffic.conditions),
        paces=tuple(each.paces_of(0) for each in traffic.conditions),
    )
    return model, arrivals, conditions, np.concatenate(traffic.rows)[order]


def _concatenated(parts: Sequence[Arrivals], order: IntArray) -> Arrivals:
    columns = (
        *("received_s", "prompt_tokens", "output_tokens", "cached_tokens", "frontend_s"),
        *("streamed", "tenant", "acceptance"),
    )
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(each, name) for each in parts])[order]
        for name in columns
        if all(getattr(each, name) is not None for each in parts)
    }
    return Arrivals(**joined)


def _binds(outcomes: Sequence[Outcome]) -> Bind:
    totals: dict[Bind, float] = {"seats": 0.0, "kv": 0.0, "tokens": 0.0}
    for each in outcomes:
        totals["seats"] += float(each.engines.blocked_seats_s.sum())
        totals["kv"] += float(each.engines.blocked_kv_s.sum())
        totals["tokens"] += float(each.engines.blocked_tokens_s.sum())
    longest = max(totals, key=lambda name: totals[name])
    return longest if totals[longest] > 0 else "none"


def _saturates(outcome: Outcome, since_s: float) -> bool:
    """Return whether the queueing time grows until the end of the replay."""
    known = np.isfinite(outcome.queue_s) & (outcome.received_s >= since_s)
    at_s, queue_s = outcome.received_s[known], outcome.queue_s[known]
    if at_s.size < 2 or np.ptp(at_s) == 0:
        return False
    late = at_s >= at_s[0] + np.ptp(at_s) / 4
    slope = np.polyfit(at_s[late], queue_s[late], 1)[0] if np.ptp(at_s[late]) > 0 else 0.0
    return bool(slope > SATURATED)


def _quantile(values: FloatArray, q: float) -> float | None:
    return quantile(values[np.isfinite(values)], q)


def _refusal(reproduced: Mapping[str, Mapping[str, Reproduced]]) -> str | None:
    """Return why there is no prediction: the unchanged replay has too large an error."""
    for name in JUDGED:
        for point, most in MOST_ERROR.items():
            error = reproduced[name][point].error_ratio
            if error is not None and abs(error) > most:
                return (
                    f"The replay of the unchanged window is {error:+.0%} off at {point.upper()} of"
                    f" {name}; allowed: {most:.0%}"
                )
    return None


def _matching(requests: pa.Table, equals: Mapping[str, str | None]) -> BoolArray:
    chosen = np.ones(requests.num_rows, dtype=bool)
    for label, wanted in equals.items():
        values = requests[label].to_pylist()
        chosen &= np.array([_text(value) == wanted for value in values])
    return chosen


def _text(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ratios(
    chosen: BoolArray,
    traffic: _Traffic,
    now: _Run,
    then: _Run,
    measured: Mapping[str, FloatArray],
) -> dict[tuple[str, str], float]:
    """Return each predicted percentile, computed from one pair of resampled replays."""
    rows = np.concatenate(traffic.rows)
    found = {}
    for name in METRICS:
        for point, q in POINTS.items():
            value = _scaled(
                _quantile(measured[name][rows[chosen[rows]]], q),
                _quantile(now.values[name][chosen[now.source]], q),
                _quantile(then.values[name][chosen[then.source]], q),
            )
            if value is not None:
                found[name, point] = value
    return found


NEGLIGIBLE_S: Final = 1e-3
"""For shorter durations a ratio is not meaningful, so the difference is added instead."""


def _scaled(measured: float | None, now: float | None, then: float | None) -> float | None:
    """Return the measured value times the ratio of the edited and the unchanged replay."""
    if measured is None or now is None or then is None:
        return then
    if min(measured, now) < NEGLIGIBLE_S:
        return max(0.0, measured + then - now)
    return measured * then / now


def _predicted(
    reproduced: Reproduced,
    then: _Run,
    chosen: BoolArray,
    name: str,
    q: float,
    draws: Sequence[Mapping[tuple[str, str], float]],
    point: str,
) -> Predicted:
    replayed = _quantile(then.values[name][chosen[then.source]], q)
    value = _scaled(reproduced.measured, reproduced.replayed, replayed)
    if value is None:
        return Predicted(None)
    return _interval(
        value,
        [draw[name, point] for draw in draws if (name, point) in draw],
        reproduced.error_ratio or 0.0,
    )


def _interval(value: float, draws: Sequence[float], error_ratio: float) -> Predicted:
    """Return the interval that contains 95 % of later windows with the same kind of traffic.

    The interval is computed on a log scale. The variance of the draws counts twice, because the
    recorded window and a later window are two samples of the traffic. The error of the unchanged
    replay is added.
    """
    positive = [each for each in draws if each > 0]
    if value <= 0 or len(positive) < 2:
        ordered = sorted([*draws, value])
        return Predicted(value, ordered[0], ordered[-1])
    sampled = np.sqrt(2) * np.std(np.log(positive), ddof=1)
    spread = float(np.hypot(sampled, np.log1p(max(error_ratio, -0.9))))
    factor = float(np.exp(Z_95 * spread))
    return Predicted(value, value / factor, value * factor)


def _attained(
    recorded: Recorded,
    chosen: BoolArray,
    objectives: Sequence[Objective],
    now: _Run,
    then: _Run,
    measured: Mapping[str, FloatArray],
    traffic: _Traffic,
) -> list[float | None]:
    """Return the predicted good ratio of each objective that Tailspan counts."""
    rows = np.concatenate(traffic.rows)
    of_chosen = chosen[then.source] & ~then.rejected
    source = then.source[of_chosen]
    table = recorded.requests.take(pa.array(source))
    for name in METRICS:
        corrected = _corrected(
            then.values[name][of_chosen],
            now.values[name][chosen[now.source]],
            measured[name][rows[chosen[rows]]],
        )
        # A latency that does not exist, such as TPOT of one token, stays unknown.
        corrected[~np.isfinite(measured[name][source])] = np.nan
        if name in table.column_names:
            place = table.column_names.index(name)
            table = table.set_column(place, name, pa.array(corrected, from_pandas=True))
    return [
        _good_ratio(each.indicator, table)
        for each in objectives
        if isinstance(each.indicator, Goodput)
    ]


def _good_ratio(indicator: Goodput, table: pa.Table) -> float | None:
    codes = judge_table(indicator.where, indicator.good, table)
    good = int((codes == VERDICTS.index(Verdict.GOOD)).sum())
    bad = int((codes == VERDICTS.index(Verdict.BAD)).sum())
    return good / (good + bad) if good + bad else None


def _corrected(then: FloatArray, now: FloatArray, measured: FloatArray) -> FloatArray:
    """Return replayed values, each corrected by the error of the unchanged replay at its
    percentile."""
    found = then.copy()
    known = np.flatnonzero(np.isfinite(then))
    now, measured = np.sort(now[np.isfinite(now)]), np.sort(measured[np.isfinite(measured)])
    if not known.size or not now.size or not measured.size:
        return found
    ranks = np.empty(known.size)
    ranks[np.argsort(then[known], kind="stable")] = (np.arange(known.size) + 0.5) / known.size
    of_now, of_measured = (
        np.interp(ranks, (np.arange(each.size) + 0.5) / each.size, each) for each in (now, measured)
    )
    small = np.minimum(of_now, of_measured) < NEGLIGIBLE_S
    scaled = then[known] * of_measured / np.maximum(of_now, NEGLIGIBLE_S)
    found[known] = np.where(small, np.maximum(then[known] + of_measured - of_now, 0.0), scaled)
    return found


def _objectives(
    recorded: Recorded,
    chosen: BoolArray,
    objectives: Sequence[Objective],
    now: _Run,
    then: _Run,
    measured: Mapping[str, FloatArray],
    draws: Sequence[Sequence[float | None]],
) -> list[Attainment]:
    counted = [each for each in objectives if isinstance(each.indicator, Goodput)]
    values = _attained(recorded, chosen, counted, now, then, measured, _unresampled(recorded))
    table = recorded.requests.filter(pa.array(chosen))
    found = []
    for place, (objective, value) in enumerate(zip(counted, values, strict=True)):
        assert isinstance(objective.indicator, Goodput)
        ratio = _good_ratio(objective.indicator, table)
        if ratio is None or value is None:
            continue
        drawn = [each for draw in draws if (each := draw[place]) is not None]
        low, high = np.quantile([*drawn, value], [0.025, 0.975])
        low, high = (value + np.sqrt(2) * (each - value) for each in (low, high))
        interval = Predicted(value, max(0.0, float(low)), min(1.0, float(high)))
        found.append(Attainment(objective.name, ratio, interval))
    return found


def _extrapolations(recorded: Recorded, edits: Edits) -> list[str]:
    """Return the assumptions of the prediction that the recorded traffic does not confirm."""
    found = []
    arguments = {name.replace("-", "_") for name in edits.arguments or {}}
    cached = any(
        each.arrivals.cached_tokens is not None and each.arrivals.cached_tokens.any()
        for each in recorded.engines
    )
    if cached and (edits.pools or "num_gpu_blocks" in arguments):
        found.append("cached tokens of each request stay as recorded")
    if arguments & {"enable_prefix_caching"} and not cached:
        found.append("no request hit the prefix cache in this window")
    if edits.pools and len({_shape(each) for each in recorded.engines}) > 1:
        found.append("replicas differ; each new replica has their mean step model")
    if any(each.factor > 1 for each in edits.rates):
        found.append("added requests are copies of recorded requests")
    return found


def _shape(engine: RecordedEngine) -> tuple[int, int, int]:
    config = engine.model.engine
    return config.max_num_seqs, config.max_num_batched_tokens, config.num_gpu_blocks


__all__ = ["EditError", "WhatIfAnswer", "WhatIfQuestion", "answer_what_if", "predict"]
