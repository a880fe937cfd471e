"""Predict the effect of a change on the recorded traffic of a window.

The window is replayed without the edits, to measure the model's error, and with the edits. The
confidence intervals come from replays of resampled blocks of time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from alerts.evaluation.request_verdicts import RequestVerdict
from alerts.evaluation.table_verdicts import VERDICTS, columns_of, judge_table
from alerts.objectives import Goodput, Objective
from analysis.corrected_prediction import (
    NEGLIGIBLE_S,
    Predicted,
    RankCorrection,
    Reproduced,
    intervals,
    nested_latencies,
    none_if_nan,
    rank_bounds,
    scaled,
    small_sample_factor,
)
from analysis.hardware_change import assumption
from analysis.percentile_curve import CURVE, curve_of, shares_below, shown
from analysis.prefix_ladders import with_prefixes
from analysis.recorded_traffic import (
    NotReplayableError,
    Recorded,
    RecordedEngine,
    read_recorded,
)
from analysis.window_replay import (
    METRICS,
    Replayed,
    ReplayTraffic,
    blocks_of,
    replayed,
    resampled,
    traffic_of,
)
from replay.arrivals import BoolArray, FloatArray
from replay.edits import EditError, Edits
from replay.outcome import Bind
from telemetry.printable import printable
from telemetry.quantiles import Z_95
from telemetry.requests import Outcome
from telemetry.window import Window

POINTS: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
PLACES: Final[Mapping[str, int]] = {name: CURVE.index(q) for name, q in POINTS.items()}
"""The indices in `CURVE` of the percentiles `POINTS`."""
JUDGED: Final = ("ttft_s", "tpot_s", "e2e_s")
"""Tailspan predicts only if the unchanged replay reproduces these latencies."""

MAX_ERROR: Final[Mapping[str, float]] = {"p50": 0.25, "p99": 0.5}
"""Maximum relative error of the unchanged replay. If the error is larger, no prediction is made.
For a real vLLM, the error is at most 5 % at P50 and 25 % at P99. In a window that another program
disturbed, the prediction of P99 was wrong by 50 % (docs/benchmarks.md#what-if-on-a-real-vllm)."""

PREFILL_APART: Final = (
    "prefill and decode are on different servers, so requests cannot be moved to other servers by"
    " replicas, router, data_parallel_size or a trace; allowed: other engine arguments, rate,"
    " prompt and output"
)

RESAMPLED: Final = 40
"""Number of resampled pairs of replays for a confidence interval. From 40 draws, a standard
deviation can be estimated to within 11 %."""

Percentiles = dict[str, float | None]
Value = TypeVar("Value")


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
class PredictedAttainment:
    """The share of good requests of an objective, measured and predicted."""

    slo: str
    target: float
    good_ratio_now: float
    good_ratio: Predicted


class CurvePoint(NamedTuple):
    """One percentile of a latency, measured and predicted."""

    q: float
    now: float | None
    predicted: Predicted


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """Measured, reproduced and predicted latencies."""

    window: Window
    requests: int
    edits: Sequence[str]
    reproduced: Mapping[str, Mapping[str, Reproduced]]
    refused: str | None
    """Why there is no prediction, or None if there is a prediction."""
    now: Mapping[str, Percentiles]
    throughput_rps: float
    all_rps: float
    """Requests per second, including the requests that the question's labels do not select."""
    usd_per_hour: float | None
    left_out: Mapping[str, int]
    simulated: bool
    predicted: Mapping[str, Mapping[str, Predicted]] = field(default_factory=dict)
    gains: Mapping[str, Mapping[str, Predicted]] = field(default_factory=dict)
    """The relative change of each percentile if the traffic is exactly the recorded traffic. The
    value −0.1 means 10 % faster."""
    curves: Mapping[str, Sequence[CurvePoint]] = field(default_factory=dict)
    """The percentiles of each latency from P1 to P99.9. Percentiles with too few requests are left
    out."""
    predicted_rps: float | None = None
    predicted_all_rps: float | None = None
    predicted_usd_per_hour: float | None = None
    rejected: int = 0
    """Number of requests that the edited engines reject. They are longer than `max_model_len`, or
    the queue is full."""
    objectives: Sequence[PredictedAttainment] = ()
    binds: Bind = "none"
    binds_now: Bind = "none"
    saturated: bool = False
    """Whether the queue of the edited engines is full, or grows until the end of the window."""
    extrapolated: Sequence[str] = ()

    @property
    def usd_per_1000_requests(self) -> float | None:
        """Return the cost of the engines per 1,000 requests, including idle time, without the
        edits."""
        return usd_per_1000(self.usd_per_hour, self.all_rps)

    @property
    def predicted_usd_per_1000_requests(self) -> float | None:
        """Return the cost per 1,000 requests with the edits, or None if the edited engines cannot
        keep up."""
        if self.saturated:
            return None
        return usd_per_1000(self.predicted_usd_per_hour, self.predicted_all_rps)


def answer_what_if(
    engine: Engine, question: WhatIfQuestion, progress: Callable[[], None] = lambda: None
) -> WhatIfAnswer:
    """Replay a window of the store with and without the edits.

    Raises:
        NotReplayableError: the window has too few or too many requests, or an engine uses a feature
            that the replay does not model.
        EditError: an edit is not allowed.
    """
    return predict(read_for(engine, question), question, progress=progress)


def read_for(
    engine: Engine, question: WhatIfQuestion, moves_requests: bool | None = None
) -> Recorded:
    """Read the window of a question from the store. If the engines' arguments changed in the
    window, only the part with their present arguments is read.

    Args:
        moves_requests: whether a change can move requests between replicas. If None, this is
            derived from `question.edits`. If requests cannot move and the question is about one
            replica, only this replica must be replayable.

    Raises:
        NotReplayableError: see `read_recorded`.
    """
    extra_columns = [*question.equals]
    for _, indicator in counted_objectives(question):
        extra_columns += columns_of(indicator.where, indicator.good)
    if moves_requests is None:
        moves_requests = question.edits.pools
    replica = None if moves_requests else question.equals.get("replica")
    return read_recorded(engine, question.window, extra_columns, replica, present_only=True)


def counted_objectives(question: WhatIfQuestion) -> list[tuple[Objective, Goodput]]:
    """The objectives that Tailspan counts itself."""
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
        draws: number of pairs of replays for the confidence intervals, or 0 for no intervals.

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
    draws_for: Callable[[WhatIfAnswer], int] | None = None,
) -> list[WhatIfAnswer]:
    """Predict the effect of alternative edits.

    The predictions share the replays of the unchanged traffic.

    Args:
        question: selects the requests whose latencies are reported. The edits of the question are
            ignored.
        draws: number of resampled replays for the confidence intervals, or 0 for no intervals.
        progress: called after each resampled replay. It is called twice as often if only some of
            the edits set replicas or a router.
        draws_for: returns the number of draws for a prediction. The number is at most `draws`.

    Raises:
        EditError: an edit is not allowed.
    """
    found: dict[int, WhatIfAnswer] = {}
    for pools in (False, True):
        places = [place for place, each in enumerate(alternatives) if each.pools is pools]
        if places:
            group = [alternatives[place] for place in places]
            answers = _predict_group(recorded, question, group, draws, progress, draws_for)
            found.update(zip(places, answers, strict=True))
    return [found[place] for place in range(len(alternatives))]


def _predict_group(
    recorded: Recorded,
    question: WhatIfQuestion,
    alternatives: Sequence[Edits],
    draws: int,
    progress: Callable[[], None],
    draws_for: Callable[[WhatIfAnswer], int] | None,
) -> list[WhatIfAnswer]:
    """Predict the effects of alternative edits.

    Either all of these edits set the replicas or the router, or none of them does."""
    if recorded.prefill_apart and any(each.pools for each in alternatives):
        raise EditError(PREFILL_APART)
    recorded, assumptions = with_prefixes(recorded, alternatives)
    reporting = _Reporting(recorded, question, assumptions)
    first = alternatives[0]
    # The tokens that a request finds in a cache depend on the engine that serves it. So an
    # unchanged replay of the caches keeps the recorded engines.
    by_cache = any(each.arrivals.prefixes is not None for each in recorded.engines)
    pooled = first.pools and not by_cache
    same = Edits(router=first.pool_router) if pooled else Edits()
    traffic = traffic_of(recorded)
    now = replayed(recorded, traffic, same, "now", np.random.default_rng(0))
    whole = _Sample(reporting, traffic, now)
    found = [_Prediction(reporting, edits, whole) for edits in alternatives]
    if found[0].refused is None:
        wanted = [
            draws if draws_for is None else min(draws, draws_for(each.answer())) for each in found
        ]
        for number in range(draws):
            if number < max(wanted):
                some = resampled(recorded, np.random.default_rng([1, number]))
                seed = f"draw {number}"
                before = replayed(recorded, some, same, seed, np.random.default_rng([2, number]))
                sample = _Sample(reporting, some, before)
                for each, most in zip(found, wanted, strict=True):
                    if number < most:
                        each.draw(sample, seed, np.random.default_rng([2, number]))
            progress()
    return [each.answer() for each in found]


def reproduce(recorded: Recorded, question: WhatIfQuestion) -> tuple[WhatIfAnswer, Replayed]:
    """Replay a window once, without edits. Returns the measured and replayed latencies of the
    question's requests, and the replay."""
    traffic = traffic_of(recorded)
    now = replayed(recorded, traffic, Edits(), "now", np.random.default_rng(0))
    reporting = _Reporting(recorded, question, ())
    whole = _Sample(reporting, traffic, now)
    return _Prediction(reporting, Edits(), whole).answer(), now


class _Reporting:
    """The requests of a window whose latencies are reported, and their measured latencies."""

    def __init__(
        self, recorded: Recorded, question: WhatIfQuestion, assumptions: Sequence[str]
    ) -> None:
        self.recorded = recorded
        self.assumptions = assumptions
        self.question = question
        self.chosen = recorded.counted & matching(recorded.requests, question.equals)
        if not self.chosen.any():
            labels = ", ".join(f"{name}={value or ''}" for name, value in question.equals.items())
            reasons = "; ".join(recorded.left_out)
            raise NotReplayableError(
                f"no request of the range has {labels}"
                + (f". Requests were left out: {reasons}" if reasons else "")
            )
        self.measured = {name: recorded.latency(name) for name in METRICS}
        self.streamed = recorded.streamed
        self.objectives = counted_objectives(question)
        self.judged_columns = list(
            dict.fromkeys(
                name
                for _, indicator in self.objectives
                for name in columns_of(indicator.where, indicator.good)
            )
        )
        self.known = {
            name: np.isfinite(recorded.column(name))
            for name in METRICS
            if name in self.judged_columns
        }
        """For each latency in an objective: (n,) whether it is known."""
        self.blocks = blocks_of(recorded).number

    def number(self, name: str) -> int:
        """The number of reported requests for which this latency is known."""
        return int(np.isfinite(self.measured[name][self.chosen]).sum())

    def values(self, run: Replayed, name: str) -> FloatArray:
        """The replayed latencies of the reported requests."""
        return run.values[name][self.chosen[run.source]]

    def curves(self, run: Replayed) -> dict[str, FloatArray]:
        """Percentiles of the reported requests."""
        return {name: curve_of(self.values(run, name)) for name in METRICS}


class _Sample:
    """Recorded or resampled traffic: its measured latencies, and the latencies of a replay without
    edits."""

    def __init__(self, reporting: _Reporting, traffic: ReplayTraffic, now: Replayed) -> None:
        self.traffic, self.now = traffic, now
        rows = np.concatenate(traffic.rows)
        rows = rows[reporting.chosen[rows]]
        measured = {name: reporting.measured[name][rows] for name in METRICS}
        self.measured = {name: curve_of(measured[name]) for name in METRICS}
        self.replayed = reporting.curves(now)
        self.corrections = {
            name: RankCorrection(reporting.values(now, name), measured[name]) for name in METRICS
        }


class _Effect(NamedTuple):
    curves: Mapping[str, FloatArray]
    """The percentiles `CURVE` of the edited replay, or NaN if unknown."""
    gains: Mapping[str, FloatArray]
    """The relative change of each percentile. The value −0.1 means 10 % lower. NaN means
    unknown."""
    good_ratios: Sequence[float | None]
    """The share of good requests in the edited replay, for each objective."""


class _Prediction:
    """The replays with one set of edits, and the draws for their confidence intervals."""

    def __init__(self, reporting: _Reporting, edits: Edits, whole: _Sample) -> None:
        self._of, self._edits, self._whole = reporting, edits, whole
        self._reproduced = {
            name: [
                Reproduced(none_if_nan(measured), none_if_nan(now))
                for measured, now in zip(whole.measured[name], whole.replayed[name], strict=True)
            ]
            for name in METRICS
        }
        self.refused = _refusal(_points(self._reproduced))
        self._draws: list[_Effect] = []
        self._shares: list[dict[str, FloatArray]] = []
        """For each draw and metric: the share of the draw's latencies that do not exceed each
        percentile of the edited replay of the whole traffic."""
        if self.refused is None:
            self._then = (
                self._replay(whole, "now", np.random.default_rng(0))
                if edits.listed()
                else whole.now
            )
            self._effect = self._effect_on(whole, self._then)

    def draw(self, sample: _Sample, seed: str, chance: np.random.Generator) -> None:
        """Add a replay of resampled traffic."""
        then = self._replay(sample, seed, chance)
        self._draws.append(self._effect_on(sample, then))
        self._shares.append(
            {
                name: shares_below(self._of.values(then, name), self._effect.curves[name])
                for name in METRICS
            }
        )

    def _replay(self, sample: _Sample, seed: str, chance: np.random.Generator) -> Replayed:
        return replayed(self._of.recorded, sample.traffic, self._edits, seed, chance)

    def answer(self) -> WhatIfAnswer:
        """The answer, with confidence intervals from the draws so far."""
        recorded, question = self._of.recorded, self._of.question
        requests = int(self._of.chosen.sum())
        length_s = recorded.window.length_s
        reproduced = _points(self._reproduced)
        answer = WhatIfAnswer(
            window=recorded.window,
            requests=requests,
            edits=self._edits.listed(),
            reproduced=reproduced,
            refused=self.refused,
            now={
                name: {point: each.measured for point, each in points.items()}
                for name, points in reproduced.items()
            },
            throughput_rps=requests / length_s,
            all_rps=int(recorded.counted.sum()) / length_s,
            usd_per_hour=question.usd_per_hour,
            left_out=recorded.left_out,
            simulated=recorded.simulated,
            binds_now=self._whole.now.binds,
        )
        if self.refused is not None:
            return answer
        then = self._then
        engines = self._edits.engines(recorded.replicas, len(recorded.engines))
        # The price of a new device is unknown here.
        usd = None if self._edits.device else question.usd_per_hour
        reported = self._of.chosen[then.source]
        predicted = nested_latencies(
            {name: self._predicted(name) for name in METRICS},
            bool(self._of.streamed[self._of.chosen].all()),
        )
        return replace(
            answer,
            predicted=_points(predicted),
            gains={
                name: {point: self._gain(name, place) for point, place in PLACES.items()}
                for name in METRICS
            },
            curves={
                name: [
                    CurvePoint(
                        CURVE[place],
                        self._reproduced[name][place].measured,
                        predicted[name][place],
                    )
                    for place in shown(self._of.number(name))
                ]
                for name in METRICS
            },
            predicted_rps=int((reported & ~then.rejected).sum()) / length_s,
            predicted_all_rps=int((recorded.counted[then.source] & ~then.rejected).sum())
            / length_s,
            predicted_usd_per_hour=None if usd is None else usd * engines / len(recorded.engines),
            rejected=int((reported & then.rejected).sum()),
            objectives=self._attainments(),
            binds=then.binds,
            saturated=then.saturated,
            extrapolated=[*self._of.assumptions, *_extrapolations(recorded, self._edits)],
        )

    def _effect_on(self, sample: _Sample, then: Replayed) -> _Effect:
        curves = self._of.curves(then)
        return _Effect(
            curves,
            {name: _changes(sample.replayed[name], curves[name]) for name in METRICS},
            self._good_ratios(sample, then),
        )

    def _gain(self, name: str, place: int) -> Predicted:
        value = none_if_nan(self._effect.gains[name][place])
        draws = [each.gains[name][place] for each in self._draws]
        draws = [each for each in draws if not np.isnan(each)]
        widening = small_sample_factor(self._of.blocks)
        if value is None or len(draws) < 2 or widening is None:
            return Predicted(value)
        off = Z_95 * widening * float(np.std(draws, ddof=1))
        return Predicted(value, max(-1.0, value - off), value + off)

    def _predicted(self, name: str) -> list[Predicted]:
        whole, q = self._whole, np.array(CURVE)
        return intervals(
            scaled(whole.measured[name], whole.replayed[name], self._effect.curves[name]),
            q,
            rank_bounds(q, [each[name] for each in self._shares], self._of.blocks),
            self._of.values(self._then, name),
            whole.corrections[name],
            np.array([each.error_ratio or 0.0 for each in self._reproduced[name]]),
        )

    def _good_ratios(self, sample: _Sample, after: Replayed) -> list[float | None]:
        """The predicted share of good requests for each counted objective."""
        if not self._of.objectives:
            return []
        reported = self._of.chosen[after.source] & after.judged
        source = after.source[reported]
        table = self._of.recorded.requests.select(self._of.judged_columns).take(pa.array(source))
        table = with_rejected(table, after.queue_full[reported])
        for name, known in self._of.known.items():
            values = self._corrected(sample, after, reported, name)
            if name == "ttft_s":
                # An objective also covers responses that are not streamed. Their first byte is sent
                # at the end.
                e2e_s = self._corrected(sample, after, reported, "e2e_s")
                values = np.where(self._of.streamed[source], values, e2e_s)
            # An undefined latency, such as the TPOT of one token, stays unknown.
            values[~known[source]] = np.nan
            place = table.column_names.index(name)
            table = table.set_column(place, name, pa.array(values, from_pandas=True))
        return [good_ratio(indicator, table) for _, indicator in self._of.objectives]

    @staticmethod
    def _corrected(sample: _Sample, after: Replayed, reported: BoolArray, name: str) -> FloatArray:
        return sample.corrections[name].corrected(after.values[name][reported])

    def _attainments(self) -> list[PredictedAttainment]:
        table = self._of.recorded.requests.filter(pa.array(self._of.chosen))
        found = []
        for place, (objective, indicator) in enumerate(self._of.objectives):
            now, value = good_ratio(indicator, table), self._effect.good_ratios[place]
            if now is None or value is None:
                continue
            draws = [each.good_ratios[place] for each in self._draws]
            predicted = ratio_interval(value, draws, self._of.blocks)
            found.append(
                PredictedAttainment(objective.name, float(objective.target), now, predicted)
            )
        return found


def usd_per_1000(usd_per_hour: float | None, rps: float | None) -> float | None:
    """The cost per 1,000 requests.

    Return None if the price is unknown, or if the rate is unknown or 0."""
    return None if usd_per_hour is None or not rps else usd_per_hour / (3.6 * rps)


def _points(curves: Mapping[str, Sequence[Value]]) -> dict[str, dict[str, Value]]:
    return {
        name: {point: curve[place] for point, place in PLACES.items()}
        for name, curve in curves.items()
    }


def _changes(before: FloatArray, after: FloatArray) -> FloatArray:
    """The relative changes. They are NaN if the durations are too short for a ratio."""
    return after / np.where(before >= NEGLIGIBLE_S, before, np.nan) - 1


def _refusal(reproduced: Mapping[str, Mapping[str, Reproduced]]) -> str | None:
    """Return why there is no prediction, or None if the replay reproduces the window."""
    for name in JUDGED:
        for point, most in MAX_ERROR.items():
            error = reproduced[name][point].error_ratio
            if error is not None and abs(error) > most:
                return (
                    f"The replay of the unchanged window is {error:+.0%} off at {point.upper()} of"
                    f" {name}; allowed: {most:.0%}"
                )
    return None


def matching(requests: pa.Table, equals: Mapping[str, str | None]) -> BoolArray:
    """Return which requests have all of these labels: (n,)."""
    chosen = np.ones(requests.num_rows, dtype=bool)
    for label, wanted in equals.items():
        values = requests[label].to_pylist()
        chosen &= np.array([_text(value) == wanted for value in values], dtype=bool)
    return chosen


def _text(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def with_rejected(table: pa.Table, rejected: BoolArray) -> pa.Table:
    """Set the outcome of the rejected requests. `rejected` (n,) selects them."""
    if not rejected.any():
        return table
    place = table.column_names.index("outcome")
    outcome = pc.if_else(
        pa.array(rejected), Outcome.REJECTED.value, table["outcome"].cast(pa.string())
    )
    return table.set_column(place, "outcome", outcome)


def good_ratio(indicator: Goodput, table: pa.Table) -> float | None:
    """Return the share of good requests, or None if the objective selects no request."""
    codes = judge_table(indicator.where, indicator.good, table)
    good = int((codes == VERDICTS.index(RequestVerdict.GOOD)).sum())
    bad = int((codes == VERDICTS.index(RequestVerdict.BAD)).sum())
    return good / (good + bad) if good + bad else None


def ratio_interval(value: float, draws: Sequence[float | None], blocks: int) -> Predicted:
    """A predicted share of good requests with its 95 % interval. `draws` contains one share for
    each resample of the traffic."""
    known = [each for each in draws if each is not None]
    widening = small_sample_factor(blocks)
    if not known or widening is None:
        return Predicted(value)
    low, high = np.quantile([*known, value], [0.025, 0.975])
    # The variance is doubled, because the recorded window and a later window are two independent
    # samples.
    low, high = (value + np.sqrt(2) * widening * (each - value) for each in (low, high))
    return Predicted(value, max(0.0, float(low)), min(1.0, float(high)))


def _extrapolations(recorded: Recorded, edits: Edits) -> list[str]:
    """Return the assumptions of the prediction for which the recorded traffic has no evidence."""
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
    if np.nansum(recorded.column("queue_held_s")) > 0:
        found.append("the waits for KV transfers and grammars stay as recorded")
    if recorded.prefill_apart:
        found.append(
            "prefill and decode are on different servers: each server's row counts as a request,"
            " with this server's times, and a change of one server does not change the other"
            " server's load; select one server by its label replica"
        )
    found += _waiting_clients(recorded, edits)
    if any(each.factor > 1 for each in edits.rates):
        found.append("added requests are copies of recorded requests")
    return found


def _waiting_clients(recorded: Recorded, edits: Edits) -> list[str]:
    """State which tenants' clients waited for each answer, and whether they wait in the replay.

    A replay links the requests of a client only if one engine served them, and if no router can
    send them to another engine."""
    linked = {recorded.tenants[each] for engine in recorded.engines for each in engine.waiting}
    all_waiting = linked | {recorded.tenants[each] for each in recorded.waiting}
    if edits.pools:
        linked = set()
    found = []
    for tenants, how in (
        (linked, "wait for each answer before the next request: latency changes their rate"),
        (
            all_waiting - linked,
            "send their requests at the recorded times, although they waited for each answer",
        ),
    ):
        if tenants:
            named = ", ".join(sorted(printable(name or "unknown", 63) for name in tenants))
            found.append(f"clients of {named} {how}")
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
    "reproduce",
    "with_rejected",
]
