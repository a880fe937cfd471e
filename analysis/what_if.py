"""Predict the effect of a change on the recorded traffic of a window.

The window is replayed twice: once unchanged, to measure how well the model reproduces the window,
and once with the edits. Intervals are computed from replays of resampled blocks of the window.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

from alerts.evaluation.request_verdicts import Verdict
from alerts.evaluation.table_verdicts import VERDICTS, columns_of, judge_table
from alerts.objectives import Goodput, Objective
from analysis.corrected_prediction import (
    NEGLIGIBLE_S,
    Predicted,
    Replays,
    Reproduced,
    interval,
    rank_bounds,
    scaled,
    scaled_by_rank,
    small_sample_factor,
)
from analysis.hardware_change import assumption
from analysis.prefix_ladders import with_prefixes
from analysis.recorded_traffic import Recorded, RecordedEngine, read_recorded
from analysis.window_replay import (
    METRICS,
    Replayed,
    Traffic,
    blocks_of,
    replayed,
    resampled,
    traffic_of,
)
from replay.arrivals import BoolArray, FloatArray, IntArray
from replay.edits import EditError, Edits
from replay.outcome import Bind
from store.queries import Window
from telemetry.quantiles import Z_95, quantile

POINTS: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
JUDGED: Final = ("ttft_s", "tpot_s", "e2e_s")
"""A prediction is made only if the unchanged replay reproduces these latencies."""

MOST_ERROR: Final[Mapping[str, float]] = {"p50": 0.25, "p99": 0.5}
"""Maximum relative error of the unchanged replay. There is no prediction if the error is larger.

Windows of a real vLLM are within 5 % at P50 and 25 % at P99. A window that other processes
disturbed was 50 % off at P99 (docs/benchmarks.md#what-if-on-a-real-vllm).
"""

RESAMPLED: Final = 40
"""Number of pairs of replays for an interval. The standard deviation of 40 draws is known to within
11 %."""

Percentiles = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class WhatIfQuestion:
    """A window to replay with edits, and the requests and objectives to report."""

    window: Window
    edits: Edits
    equals: Mapping[str, str | None] = field(default_factory=dict)
    """Labels that select the requests to report. All requests are replayed."""
    objectives: Sequence[Objective] = ()
    usd_per_hour: float | None = None
    """Current cost of the engines, or None if they have no price."""


@dataclass(frozen=True, slots=True)
class Attainment:
    """The share of an objective's requests that are good: as measured, and as predicted."""

    slo: str
    target: float
    good_ratio_now: float
    good_ratio: Predicted


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """Measured, reproduced and predicted latencies."""

    window: Window
    requests: int
    edits: Sequence[str]
    reproduced: Mapping[str, Mapping[str, Reproduced]]
    refused: str | None
    """The reason if there is no prediction."""
    now: Mapping[str, Percentiles]
    throughput_rps: float
    usd_per_hour: float | None
    left_out: Mapping[str, int]
    simulated: bool
    predicted: Mapping[str, Mapping[str, Predicted]] = field(default_factory=dict)
    gains: Mapping[str, Mapping[str, Predicted]] = field(default_factory=dict)
    """The change of each percentile on exactly this traffic, as a ratio: −0.1 is 10 % faster."""
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

    @property
    def usd_per_1000_requests(self) -> float | None:
        """Return the cost of 1,000 requests now."""
        return usd_per_1000(self.usd_per_hour, self.throughput_rps)

    @property
    def predicted_usd_per_1000_requests(self) -> float | None:
        """Return the cost of 1,000 requests with the edits, or None if the engines cannot keep
        up."""
        if self.saturated:
            return None
        return usd_per_1000(self.predicted_usd_per_hour, self.predicted_rps)


def answer_what_if(
    engine: Engine, question: WhatIfQuestion, progress: Callable[[], None] = lambda: None
) -> WhatIfAnswer:
    """Replay a window of the store with and without the edits.

    Args:
        engine: from `open_database`.
        question: the window, the edits, and the requests to report.

    Raises:
        NotReplayableError: the window has too few or too many requests, or an engine uses a feature
            that the replay does not model.
        EditError: an edit is not allowed.
    """
    return predict(read_for(engine, question), question, progress=progress)


def read_for(engine: Engine, question: WhatIfQuestion) -> Recorded:
    """Read the window of a question from the store.

    Args:
        engine: from `open_database`.
        question: defines the window and the columns to read.

    Raises:
        NotReplayableError: the window has too few or too many requests, or an engine uses a feature
            that the replay does not model.
    """
    beside = [*question.equals]
    for _, indicator in counted_objectives(question):
        beside += columns_of(indicator.where, indicator.good)
    return read_recorded(engine, question.window, beside)


def counted_objectives(question: WhatIfQuestion) -> list[tuple[Objective, Goodput]]:
    """Return the objectives that Tailspan counts, each with its indicator."""
    return [
        (each, each.indicator)
        for each in question.objectives
        if isinstance(each.indicator, Goodput)
    ]


def predict(
    recorded: Recorded,
    question: WhatIfQuestion,
    draws: int = RESAMPLED,
    progress: Callable[[], None] = lambda: None,
) -> WhatIfAnswer:
    """Predict the effect of the edits from recorded traffic.

    Args:
        recorded: the window.
        question: what to change, and which requests to report.
        draws: number of pairs of replays for the intervals, or 0 for no intervals.
        progress: called after each pair.

    Raises:
        EditError: an edit is not allowed.
    """
    return predict_each(recorded, question, [question.edits], draws, progress)[0]


def predict_each(
    recorded: Recorded,
    question: WhatIfQuestion,
    alternatives: Sequence[Edits],
    draws: int = RESAMPLED,
    progress: Callable[[], None] = lambda: None,
) -> list[WhatIfAnswer]:
    """Predict the effect of alternative edits.

    The predictions share the replays of the unchanged traffic.

    Args:
        recorded: the window.
        question: the requests to report. The question's edits are ignored.
        alternatives: the edits. Either all of them or none must set replicas or a router.
        draws: number of resampled replays for the intervals, or 0 for no intervals.
        progress: called after each resampled replay.

    Raises:
        EditError: an edit is not allowed.
    """
    recorded, assumptions = with_prefixes(recorded, alternatives)
    reporting = _Reporting(recorded, question, assumptions)
    first = alternatives[0]
    # What the caches found depends on the engine that served each request.
    by_cache = any(each.arrivals.prefixes is not None for each in recorded.engines)
    pooled = first.pools and not by_cache
    same = Edits(router=first.pool_router) if pooled else Edits()
    whole = traffic_of(recorded)
    now = replayed(recorded, whole, same, "now", np.random.default_rng(0))
    found = [_Prediction(reporting, edits, now, whole) for edits in alternatives]
    if found[0].refused is None:
        for number in range(draws):
            some = resampled(recorded, np.random.default_rng([1, number]))
            seed = f"draw {number}"
            before = replayed(recorded, some, same, seed, np.random.default_rng([2, number]))
            for each in found:
                each.draw(some, before, seed, np.random.default_rng([2, number]))
            progress()
    return [each.answer() for each in found]


class _Reporting:
    """The measured latencies of the reported requests of a window."""

    def __init__(
        self, recorded: Recorded, question: WhatIfQuestion, assumptions: Sequence[str]
    ) -> None:
        self.recorded = recorded
        self.assumptions = assumptions
        self.question = question
        self.chosen = recorded.counted & _matching(recorded.requests, question.equals)
        """(n,) whether a request is reported."""
        self.measured = {name: recorded.column(name) for name in METRICS}
        self.objectives = counted_objectives(question)
        self.blocks = blocks_of(recorded).number

    def rows(self, traffic: Traffic) -> IntArray:
        """Return the index of the recorded request for each reported request of the traffic."""
        rows = np.concatenate(traffic.rows)
        return rows[self.chosen[rows]]

    def measured_quantile(self, name: str, q: float, rows: IntArray) -> float | None:
        return known_quantile(self.measured[name][rows], q)

    def values(self, run: Replayed, name: str) -> FloatArray:
        """Return the replayed latencies of the reported requests."""
        return run.values[name][self.chosen[run.source]]

    def replayed_quantile(self, run: Replayed, name: str, q: float) -> float | None:
        return known_quantile(self.values(run, name), q)


class _Prediction:
    """The replays with one set of edits, and the draws for their intervals."""

    def __init__(self, reporting: _Reporting, edits: Edits, now: Replayed, whole: Traffic) -> None:
        self._of, self._edits, self._now = reporting, edits, now
        rows = reporting.rows(whole)
        self._reproduced = {
            name: {
                point: Reproduced(
                    reporting.measured_quantile(name, q, rows),
                    reporting.replayed_quantile(now, name, q),
                )
                for point, q in POINTS.items()
            }
            for name in METRICS
        }
        self.refused = _refusal(self._reproduced)
        self._drawn_shares: list[dict[tuple[str, str], float]] = []
        self._drawn_gains: list[dict[tuple[str, str], float]] = []
        self._drawn_ratios: list[list[float | None]] = []
        self._measured = {name: reporting.measured[name][rows] for name in METRICS}
        if self.refused is None:
            chance = np.random.default_rng(0)
            self._then = replayed(reporting.recorded, whole, edits, "now", chance)
            self._values = self._percentiles(rows, now, self._then)
            self._gains = self._changes(now, self._then)
            self._ratios = self._good_ratios(rows, now, self._then)

    def draw(
        self, traffic: Traffic, before: Replayed, seed: str, chance: np.random.Generator
    ) -> None:
        """Add a replay of resampled traffic."""
        after = replayed(self._of.recorded, traffic, self._edits, seed, chance)
        rows = self._of.rows(traffic)
        self._drawn_shares.append(
            shares_below(
                {name: self._of.values(self._then, name) for name in METRICS},
                {name: self._of.values(after, name) for name in METRICS},
            )
        )
        self._drawn_gains.append(self._changes(before, after))
        self._drawn_ratios.append(self._good_ratios(rows, before, after))

    def answer(self) -> WhatIfAnswer:
        """Return the answer with the intervals of the draws so far."""
        recorded, question = self._of.recorded, self._of.question
        requests = int(self._of.chosen.sum())
        length_s = (question.window.to_unix_ns - question.window.from_unix_ns) / 1e9
        answer = WhatIfAnswer(
            window=question.window,
            requests=requests,
            edits=self._edits.listed(),
            reproduced=self._reproduced,
            refused=self.refused,
            now={
                name: {point: each.measured for point, each in points.items()}
                for name, points in self._reproduced.items()
            },
            throughput_rps=requests / length_s,
            usd_per_hour=question.usd_per_hour,
            left_out=recorded.left_out,
            simulated=recorded.simulated,
            binds_now=self._now.binds,
        )
        if self.refused is not None:
            return answer
        then = self._then
        engines = self._edits.engines(recorded.replicas, len(recorded.engines))
        # The price of another device is unknown here.
        usd = None if self._edits.device else question.usd_per_hour
        reported = self._of.chosen[then.source]
        return replace(
            answer,
            predicted={
                name: {point: self._predicted(name, point) for point in POINTS} for name in METRICS
            },
            gains={name: {point: self._gain(name, point) for point in POINTS} for name in METRICS},
            predicted_rps=int((reported & ~then.rejected).sum()) / length_s,
            predicted_usd_per_hour=None if usd is None else usd * engines / len(recorded.engines),
            rejected=int((reported & then.rejected).sum()),
            objectives=self._attainments(),
            binds=then.binds,
            saturated=then.saturated,
            extrapolated=[*self._of.assumptions, *_extrapolations(recorded, self._edits)],
        )

    def _percentiles(
        self, rows: IntArray, before: Replayed, after: Replayed
    ) -> dict[tuple[str, str], float]:
        """Return the predicted percentiles that exist."""
        found = {}
        for name in METRICS:
            for point, q in POINTS.items():
                value = scaled(
                    self._of.measured_quantile(name, q, rows),
                    self._of.replayed_quantile(before, name, q),
                    self._of.replayed_quantile(after, name, q),
                )
                if value is not None:
                    found[name, point] = value
        return found

    def _changes(self, before: Replayed, after: Replayed) -> dict[tuple[str, str], float]:
        """Return the change of each percentile between two replays, as a ratio."""
        found = {}
        for name in METRICS:
            for point, q in POINTS.items():
                old = self._of.replayed_quantile(before, name, q)
                new = self._of.replayed_quantile(after, name, q)
                if old is not None and new is not None and old >= NEGLIGIBLE_S:
                    found[name, point] = new / old - 1
        return found

    def _gain(self, name: str, point: str) -> Predicted:
        value = self._gains.get((name, point))
        draws = [draw[name, point] for draw in self._drawn_gains if (name, point) in draw]
        widening = small_sample_factor(self._of.blocks)
        if value is None or len(draws) < 2 or widening is None:
            return Predicted(value)
        off = Z_95 * widening * float(np.std(draws, ddof=1))
        return Predicted(value, max(-1.0, value - off), value + off)

    def _predicted(self, name: str, point: str) -> Predicted:
        value = self._values.get((name, point))
        if value is None:
            return Predicted(None)
        shares = [draw[name, point] for draw in self._drawn_shares if (name, point) in draw]
        replays = Replays(
            self._of.values(self._then, name),
            self._of.values(self._now, name),
            self._measured[name],
        )
        bounds = rank_bounds(POINTS[point], shares, self._of.blocks)
        error = self._reproduced[name][point].error_ratio or 0.0
        return interval(value, POINTS[point], bounds, replays, error)

    def _good_ratios(self, rows: IntArray, before: Replayed, after: Replayed) -> list[float | None]:
        """Return the predicted good ratio of each objective that Tailspan counts."""
        if not self._of.objectives:
            return []
        reported = self._of.chosen[after.source] & ~after.rejected
        source = after.source[reported]
        table = self._of.recorded.requests.take(pa.array(source))
        for name in METRICS:
            values = scaled_by_rank(
                after.values[name][reported],
                self._of.values(before, name),
                self._of.measured[name][rows],
            )
            # A latency that does not exist, such as TPOT of one token, stays unknown.
            values[~np.isfinite(self._of.measured[name][source])] = np.nan
            if name in table.column_names:
                place = table.column_names.index(name)
                table = table.set_column(place, name, pa.array(values, from_pandas=True))
        return [good_ratio(indicator, table) for _, indicator in self._of.objectives]

    def _attainments(self) -> list[Attainment]:
        table = self._of.recorded.requests.filter(pa.array(self._of.chosen))
        found = []
        for place, (objective, indicator) in enumerate(self._of.objectives):
            now, value = good_ratio(indicator, table), self._ratios[place]
            if now is None or value is None:
                continue
            predicted = ratio_interval(
                value, [draw[place] for draw in self._drawn_ratios], self._of.blocks
            )
            found.append(Attainment(objective.name, float(objective.target), now, predicted))
        return found


def usd_per_1000(usd_per_hour: float | None, rps: float | None) -> float | None:
    """Return the cost of 1,000 requests, or None if the price or the rate is unknown or 0."""
    return None if usd_per_hour is None or not rps else usd_per_hour / (3.6 * rps)


def known_quantile(values: FloatArray, q: float) -> float | None:
    """Return a quantile of the finite values, or None if there are none."""
    return quantile(values[np.isfinite(values)], q)


def shares_below(
    whole: Mapping[str, FloatArray], drawn: Mapping[str, FloatArray]
) -> dict[tuple[str, str], float]:
    """Return the share of a resampled replay's values that are at most each percentile of the
    replay of the whole traffic."""
    found = {}
    for name in METRICS:
        known = drawn[name][np.isfinite(drawn[name])]
        for point, q in POINTS.items():
            at = known_quantile(whole[name], q)
            if at is not None and known.size:
                found[name, point] = float((known <= at).mean())
    return found


def _refusal(reproduced: Mapping[str, Mapping[str, Reproduced]]) -> str | None:
    """Return why there is no prediction, or None if the unchanged replay reproduces the window."""
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


def good_ratio(indicator: Goodput, table: pa.Table) -> float | None:
    """Return the share of good requests; None if the objective selects none of them."""
    codes = judge_table(indicator.where, indicator.good, table)
    good = int((codes == VERDICTS.index(Verdict.GOOD)).sum())
    bad = int((codes == VERDICTS.index(Verdict.BAD)).sum())
    return good / (good + bad) if good + bad else None


def ratio_interval(value: float, draws: Sequence[float | None], blocks: int) -> Predicted:
    """Return a good ratio with the interval of 95 % of later windows.

    Args:
        value: the predicted ratio.
        draws: the same ratio for resampled traffic.
        blocks: number of resampled blocks.
    """
    known = [each for each in draws if each is not None]
    widening = small_sample_factor(blocks)
    if not known or widening is None:
        return Predicted(value)
    low, high = np.quantile([*known, value], [0.025, 0.975])
    # The recorded window and a later window are two samples.
    low, high = (value + np.sqrt(2) * widening * (each - value) for each in (low, high))
    return Predicted(value, max(0.0, float(low)), min(1.0, float(high)))


def _extrapolations(recorded: Recorded, edits: Edits) -> list[str]:
    """Return the assumptions of the prediction that the recorded traffic does not confirm."""
    found = []
    arguments = {name.replace("-", "_") for name in edits.arguments or {}}
    cached = any(
        each.arrivals.prefixes is not None
        or (each.arrivals.cached_tokens is not None and each.arrivals.cached_tokens.any())
        for each in recorded.engines
    )
    if arguments & {"enable_prefix_caching"} and not cached:
        found.append("no request hit the prefix cache in this window")
    if edits.pools and len({_shape(each) for each in recorded.engines}) > 1:
        found.append("replicas differ; each new replica has their mean step model")
    if (hardware := assumption(edits)) is not None:
        found.append(hardware)
    if (edits.data_parallel_size or 1) > 1:
        found.append("each engine of a replica has a separate API server process")
    waiting = {recorded.tenants[each] for engine in recorded.engines for each in engine.waiting}
    if waiting:
        named = ", ".join(sorted(name or "unknown" for name in waiting))
        found.append(
            f"clients of {named} "
            + (
                "send their requests at the recorded times, although they waited for each answer"
                if edits.pools
                else "wait for each answer before the next request, so their rate changes"
            )
        )
    if any(each.factor > 1 for each in edits.rates):
        found.append("added requests are copies of recorded requests")
    return found


def _shape(engine: RecordedEngine) -> tuple[int, int, int]:
    config = engine.model.engine
    return config.max_num_seqs, config.max_num_batched_tokens, config.num_gpu_blocks


__all__ = [
    "EditError",
    "Predicted",
    "Reproduced",
    "WhatIfAnswer",
    "WhatIfQuestion",
    "answer_what_if",
    "good_ratio",
    "predict",
    "predict_each",
    "ratio_interval",
    "read_for",
]
