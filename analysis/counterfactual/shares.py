"""Compute the shares of causes in the growth of a latency by replays with and without each cause
(README.md).

Sources: virtual speedups, Curtsinger and Berger (Coz), SOSP 2015; Shapley values for root causes,
Budhathoki et al., 2022.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from math import factorial, hypot, sqrt
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from analysis.counterfactual.evictions import evictions
from analysis.counterfactual.factors import Factor, FactorKind, factors_of
from analysis.counterfactual.lost_blocks import without_lost_blocks
from analysis.counterfactual.mixed_window import MixedWindow, RangeTraffic, ReplayedLatencies
from analysis.recorded_traffic import Recorded
from analysis.what_if import matching
from analysis.window_replay import ReplayTraffic, blocks_of, resampled, traffic_of
from diagnosis.claim import NAMED_SHARE
from diagnosis.explanation import Cause, Replay
from diagnosis.inputs.arrow import requests_of
from diagnosis.latency.parts import has_latency
from diagnosis.question import Metric
from replay.arrivals import BoolArray, FloatArray

MAX_FACTORS: Final = 4
"""Maximum number of factors. Each additional factor doubles the number of replays."""
DRAWS: Final = 3
"""Number of replays of each combination of factors. Each replay has different noise. If the rate is
reset, it also has different requests."""
RESAMPLED: Final = 12
"""Number of resampled baselines for the intervals."""
MAX_ERROR: Final = 0.5
"""Maximum relative error of the replayed growth. If the error is larger, no shares are computed."""

_THREADS: Final = min(4, os.cpu_count() or 1)
"""Number of threads. Replays run in parallel, because their compiled loop releases the GIL."""
CORRELATION_S: Final = 3.75
STEP_ERROR: Final = 0.03
FIT_FACTOR: Final = 0.5
MODEL_ERROR: Final = 0.035
"""The variance of a share is the sum of three squares:

- The standard deviation over replays with resampled baselines and changed step times (`_spread`).
  The step times of each combination of reset factors are multiplied by another random ratio, whose
  standard deviation is `STEP_ERROR`.
- `FIT_FACTOR` times the error of the share if only the replay of the unchanged window is wrong.
- `MODEL_ERROR`.

The window is not resampled, because the question is about this window. Resampled baselines are too
similar to each other, because a queue at the end of a block does not continue in the next block.
Their variance is too small by about the ratio `CORRELATION_S` / (length of a block).
Source: Lahiri, Resampling Methods for Dependent Data, 2003, section 5.2.

The values were chosen with pairs of simulated faults
(docs/decisions/108-the-interval-of-a-share.md)."""

QUANTILE: Final = 2.18
"""An interval extends by this many standard deviations to each side: the 97.5 % quantile of
Student's t distribution with `RESAMPLED` degrees of freedom."""

MIN_EFFECT: Final = 2 * NAMED_SHARE
"""A small cause is tested only if at least this part of the growth disappears when the cause alone
is reset. If its effect needs other causes, its share is about half of this part."""

_BLOCKS: Final = (FactorKind.BLOCKS, FactorKind.OUTGROWN_BLOCKS)

COLUMN: Final = {metric: f"{metric.value}_s" for metric in Metric}


@dataclass(frozen=True, slots=True)
class Share:
    """A share of the growth with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CauseShares:
    """The shares of the proposed causes, and how well the replays reproduce the measurement."""

    causes: Sequence[Cause]
    """The causes that were tested."""
    shares: Sequence[Share]
    """The share of each cause, in the order of `causes`."""
    unexplained: Share
    replay: Replay


class UndecidedError(ValueError):
    """The replay cannot determine the shares. The message states the reason."""


@dataclass(frozen=True, slots=True)
class Tails:
    """Select the slow requests of a question."""

    metric: Metric
    share: float
    """Share of the requests that count as slow: 0.05 for the slowest 5 %."""
    equals: Mapping[str, str | None]

    def selected(self, requests: pa.Table) -> BoolArray:
        """Return which requests have the labels and a defined latency: (n,).

        The explanation by accounting selects the same requests. The columns `streamed` and
        `outcome` are required."""
        return matching(requests, self.equals) & has_latency(requests_of(requests), self.metric)

    def measured_s(self, recorded: Recorded) -> float:
        """Measured mean latency of the slow requests.

        Raises:
            UndecidedError: no request is selected.
        """
        selected = recorded.counted & self.selected(recorded.requests)
        if not selected.any():
            raise UndecidedError("no request of the replayed part has the selected labels")
        return tail_mean_s(recorded.column(COLUMN[self.metric])[selected], self.share)


def decide(
    window: Recorded,
    baseline: Recorded,
    causes: Sequence[Cause],
    tails: Tails,
    progress: Callable[[], None] = lambda: None,
    others: Sequence[Cause] = (),
) -> CauseShares:
    """Compute the shares of the causes that the detectors propose.

    Args:
        causes: the proposed causes, at least one, with the shares that the detectors estimated.
        others: causes with smaller estimates. They are tested too if `causes` leave a part of the
            growth unexplained, or if the growth depends on them (`MIN_EFFECT`).

    Raises:
        UndecidedError: the replay cannot remove a cause or does not reproduce the growth, or no
            engine served requests in both ranges.
    """
    names = [{(each.replica, each.engine) for each in of.engines} for of in (window, baseline)]
    if not names[0] & names[1]:
        raise UndecidedError("no engine served requests in both the window and the baseline")
    recorded = window
    factors = removable_factors(causes)
    chance = np.random.default_rng(0)
    of_blocks = [each for each in factors if each.kind in _BLOCKS]
    if of_blocks:
        with_lost_blocks = _with_lost_blocks(window, chance)
        if with_lost_blocks is not None:
            window = with_lost_blocks
        else:
            factors = [each for each in factors if each not in of_blocks]
            if not factors:
                raise UndecidedError(
                    "the replay with all KV blocks is as slow as the measurement, so no blocks are"
                    " lost"
                )
    replayer = _Replayer(window, baseline, factors, tails, progress)
    whole = replayer.mean(replayer.recorded, chance)
    baseline_s, now_s = tails.measured_s(baseline), tails.measured_s(window)
    if not now_s > baseline_s:
        raise UndecidedError("the requests of the replayed part did not become slower")
    error = whole.growth_s / (now_s - baseline_s) - 1
    if abs(error) > MAX_ERROR:
        raise UndecidedError(
            f"the error of the replayed growth is {error:+.0%}; allowed: at most ±{MAX_ERROR:.0%}"
        )
    more = _others_to_test(replayer, whole, causes, others, chance)
    added = [each for each in factors_of(more) if each is not None]
    if any(each.kind in _BLOCKS for each in added):
        return decide(recorded, baseline, [*causes, *more], tails, progress)
    if more:
        wider = _Replayer(window, baseline, [*factors, *added], tails, progress)
        of_wider = wider.mean(wider.recorded, chance)
        # Each factor doubles the number of replays, so keep only the causes with a share of at
        # least `NAMED_SHARE`.
        kept = [
            each
            for place, each in enumerate(more, len(factors))
            if of_wider.share(place) >= NAMED_SHARE
        ]
        if len(kept) == len(more):
            causes, factors = [*causes, *more], [*factors, *added]
            replayer, whole = wider, of_wider
        elif kept:
            return decide(recorded, baseline, [*causes, *kept], tails, progress)
    redrawn = [replayer.redrawn(chance) for _ in range(RESAMPLED)]
    growths_s, length_s = [each.growth_s for each in redrawn], blocks_of(baseline).length_s

    def share(value: float, parts_s: Sequence[float], weight: float) -> Share:
        return _share(value, parts_s, growths_s, length_s, error * (weight - value))

    of_factors = [
        share(whole.share(place), [each.share_s(place) for each in redrawn], 1.0 / len(factors))
        for place in range(len(factors))
    ]
    return CauseShares(
        causes,
        _of_causes(causes, factors, of_factors),
        share(whole.unexplained, [each.unexplained_s for each in redrawn], 0.0),
        Replay(
            int(window.counted.sum()),
            baseline_s,
            whole.baseline_s,
            now_s,
            whole.values[frozenset()],
        ),
    )


def _others_to_test(
    replayer: "_Replayer",
    whole: "TailMeans",
    causes: Sequence[Cause],
    others: Sequence[Cause],
    chance: np.random.Generator,
) -> list[Cause]:
    more = untested(causes, others)
    if whole.unexplained > NAMED_SHARE:
        return more
    return [each for each in more if replayer.effect(whole, each, chance) >= MIN_EFFECT]


def replays(causes: int) -> int:
    """Maximum number of combinations that `decide` replays, for a progress bar."""
    return (DRAWS + RESAMPLED) * (1 << min(causes, MAX_FACTORS))


def untested(tested: Sequence[Cause], others: Sequence[Cause]) -> list[Cause]:
    """The causes in `others` that `decide` can test in addition to the causes in `tested`."""
    known = {each for each in factors_of(tested) if each is not None}
    found = []
    for cause in others:
        (factor,) = factors_of([cause])
        if factor is None or any(each.contains(factor) for each in known):
            continue
        if len(known) < MAX_FACTORS:
            known.add(factor)
            found.append(cause)
    return found


def removable_factors(causes: Sequence[Cause]) -> list[Factor]:
    """The factors that represent the causes.

    Raises:
        UndecidedError: the replay cannot remove a cause, or there are too many factors.
    """
    factors: list[Factor] = []
    for cause, factor in zip(causes, factors_of(causes), strict=True):
        if factor is None:
            raise UndecidedError(f"the replay cannot remove the cause {cause.id}")
        if factor not in factors:
            factors.append(factor)
    if len(factors) > MAX_FACTORS:
        raise UndecidedError(f"{len(factors)} causes to remove; allowed: at most {MAX_FACTORS}")
    return factors


def _with_lost_blocks(window: Recorded, chance: np.random.Generator) -> Recorded | None:
    """Return the window without its lost blocks, or None if no blocks are lost."""
    seed = str(chance.integers(2**31))
    # A replay repeats the time for which the scheduler held requests back, and lost blocks do not
    # change it.
    held_s = float(np.nan_to_num(window.column("queue_held_s"))[window.counted].mean())

    def waits_s(queue_s: FloatArray) -> float:
        return float(np.nanmean(queue_s)) - held_s

    def replayed_s(of: Recorded) -> float:
        unchanged = _unchanged(RangeTraffic(of, traffic_of(of)))
        return waits_s(unchanged.replay_of((), "queue_s", seed)().latency_s)

    measured_s = waits_s(window.column("queue_s")[window.counted])
    return without_lost_blocks(window, measured_s, replayed_s)


def _unchanged(of: RangeTraffic) -> MixedWindow:
    """Return a range whose replay resets nothing."""
    return MixedWindow(of, of, (), np.random.default_rng(0))


def _of_causes(
    causes: Sequence[Cause], factors: Sequence[Factor], shares: Sequence[Share]
) -> list[Share]:
    """Divide the share of each factor among its causes, in proportion to their estimates before the
    replay. The replay cannot test this division, so the confidence interval of each of these causes
    starts at 0."""
    found = []
    of_causes = factors_of(causes)
    for cause, factor in zip(causes, of_causes, strict=True):
        if factor not in factors:
            found.append(Share(0.0, 0.0, 0.0))  # the replay found no lost blocks
            continue
        whole = sum(
            each.share for each, its in zip(causes, of_causes, strict=True) if its == factor
        )
        part = cause.share / whole if whole > 0 else 1.0
        share = shares[factors.index(factor)]
        low = share.low if part == 1 else 0.0
        found.append(Share(share.value * part, low, share.high))
    return found


@dataclass(frozen=True, slots=True)
class TailMeans:
    """The slow requests' mean latency for each combination of reset factors."""

    values: Mapping[frozenset[int], float]
    baseline_s: float
    factors: int

    @property
    def growth_s(self) -> float:
        """The growth of the slow requests' mean latency in the replays."""
        return self.values[frozenset()] - self.baseline_s

    @property
    def unexplained(self) -> float:
        """The share of the growth that remains when all factors are reset."""
        return self.unexplained_s / max(self.growth_s, 1e-9)

    @property
    def unexplained_s(self) -> float:
        """The growth that remains when all factors are reset, in seconds."""
        return self.growth_s - sum(self.share_s(place) for place in range(self.factors))

    def share(self, place: int) -> float:
        """A factor's Shapley value, as a share of the growth."""
        return self.share_s(place) / max(self.growth_s, 1e-9)

    def share_s(self, place: int) -> float:
        """A factor's Shapley value, in seconds."""
        return sum(weight * self.values[of] for of, weight in self._weights(place).items())

    def _weights(self, place: int) -> Mapping[frozenset[int], float]:
        others = [each for each in range(self.factors) if each != place]
        weights = {}
        for size in range(self.factors):
            weight = factorial(size) * factorial(self.factors - size - 1) / factorial(self.factors)
            for chosen in combinations(others, size):
                weights[frozenset(chosen)] = weight
                weights[frozenset([*chosen, place])] = -weight
        return weights


class _Job(NamedTuple):
    """One replay."""

    reset: frozenset[int] | None
    """The factors that are reset to the baseline. None: replay the baseline."""
    step_ratio: float = 1.0
    """The step times are multiplied by this ratio."""


class _Replayer:
    def __init__(
        self,
        window: Recorded,
        baseline: Recorded,
        factors: Sequence[Factor],
        tails: Tails,
        progress: Callable[[], None],
    ) -> None:
        self._window, self._baseline, self._factors = window, baseline, factors
        self._tails, self._progress = tails, progress
        self._selected = [tails.selected(each.requests) for each in (window, baseline)]
        self._evictions = evictions(window, baseline, factors)

    @property
    def recorded(self) -> list[tuple[ReplayTraffic, ReplayTraffic]]:
        """The recorded traffic of both ranges, repeated `DRAWS` times."""
        return [(traffic_of(self._window), traffic_of(self._baseline))] * DRAWS

    def mean(
        self, traffics: Sequence[tuple[ReplayTraffic, ReplayTraffic]], chance: np.random.Generator
    ) -> TailMeans:
        """Replay every combination. Average the results over pairs of the window's and the
        baseline's traffic."""
        sets, usual = self._sets(), _Job(None)
        found = self._means(traffics, chance, [*map(_Job, sets), usual])
        values = {each: found[_Job(each)] for each in sets}
        return TailMeans(values, found[usual], len(self._factors))

    def redrawn(self, chance: np.random.Generator) -> TailMeans:
        """Replay every combination with a resampled baseline and other step times.

        The combinations get random errors of the step times. The measured window has none. An
        error also changes latencies that did not grow. This change is known from a baseline with
        longer steps, and is subtracted.
        """
        errors = {each: STEP_ERROR * chance.normal() if each else 0.0 for each in self._sets()}
        jobs = {each: _Job(each, 1.0 + error) for each, error in errors.items()}
        usual, slower = _Job(None), _Job(None, 1.0 + STEP_ERROR)
        traffic = traffic_of(self._window), resampled(self._baseline, chance)
        found = self._means([traffic], chance, [*jobs.values(), usual, slower])
        by_step_s = (found[slower] - found[usual]) / STEP_ERROR
        values = {each: found[job] - errors[each] * by_step_s for each, job in jobs.items()}
        return TailMeans(values, found[usual], len(self._factors))

    def _sets(self) -> list[frozenset[int]]:
        places = range(len(self._factors))
        return [
            frozenset(chosen)
            for size in range(len(self._factors) + 1)
            for chosen in combinations(places, size)
        ]

    def effect(self, whole: TailMeans, cause: Cause, chance: np.random.Generator) -> float:
        """The part of the replayed growth that disappears if only this cause is reset.

        Args:
            whole: the result of `mean`. The cause need not be one of its factors.
        """
        alone = _Replayer(
            self._window, self._baseline, removable_factors([cause]), self._tails, lambda: None
        )
        reset = _Job(frozenset([0]))
        without_s = alone._means(alone.recorded, chance, [reset])[reset]
        return (whole.values[frozenset()] - without_s) / max(whole.growth_s, 1e-9)

    def _means(
        self,
        traffics: Sequence[tuple[ReplayTraffic, ReplayTraffic]],
        chance: np.random.Generator,
        jobs: Sequence[_Job],
    ) -> dict[_Job, float]:
        """The slow requests' mean latency for each job."""
        means = dict.fromkeys(jobs, 0.0)
        with ThreadPoolExecutor(_THREADS) as threads:
            replays: list[tuple[_Job, Future[float]]] = []
            for now, usual in traffics:
                window = RangeTraffic(self._window, now)
                baseline = RangeTraffic(self._baseline, usual)
                seed = str(chance.integers(2**31))
                mixed = MixedWindow(window, baseline, self._factors, chance, self._evictions)
                unchanged = _unchanged(baseline)
                of_baseline = [self._selected[1], self._selected[1]]
                for job in jobs:
                    tail_s = (
                        self._tail_of(unchanged, job, seed, of_baseline)
                        if job.reset is None
                        else self._tail_of(mixed, job, seed, self._selected)
                    )
                    replays.append((job, threads.submit(tail_s)))
            for job, replay in replays:
                means[job] += replay.result() / len(traffics)
                if job.reset is not None:
                    self._progress()
        return means

    def _tail_of(
        self, mixed: MixedWindow, job: _Job, seed: str, selected: Sequence[BoolArray]
    ) -> Callable[[], float]:
        replay = mixed.replay_of(
            sorted(job.reset or ()), COLUMN[self._tails.metric], seed, job.step_ratio
        )

        def tail_s() -> float:
            found = replay()
            return tail_mean_s(found.latency_s[_is_selected(found, selected)], self._tails.share)

        return tail_s


def _is_selected(replayed: ReplayedLatencies, selected: Sequence[BoolArray]) -> BoolArray:
    now, usual = selected
    row = replayed.row
    return np.where(row >= 0, now[np.maximum(row, 0)], usual[np.maximum(-1 - row, 0)])


def tail_mean_s(latency_s: FloatArray, share: float) -> float:
    """Mean of the slowest latencies, without NaN values. `share` is 0.05 for the slowest 5 %."""
    known = latency_s[np.isfinite(latency_s)]
    if not known.size:
        return 0.0
    number = max(1, int(np.ceil(known.size * share)))
    return float(np.partition(known, -number)[-number:].mean())


def _share(
    value: float,
    parts_s: Sequence[float],
    growths_s: Sequence[float],
    length_s: float,
    fit_error: float,
) -> Share:
    """A share with its confidence interval (see `MODEL_ERROR`).

    Args:
        value: the share in the recorded window.
        parts_s, growths_s: the cause's part and the growth with each resampled baseline.
        length_s: the length of a resampled block.
        fit_error: the error of the share if only the replay of the unchanged window is wrong.
    """
    spread = _spread(value, np.array(parts_s), np.array(growths_s), length_s)
    value = min(max(value, 0.0), 1.0)
    half = QUANTILE * hypot(spread, FIT_FACTOR * fit_error, MODEL_ERROR)
    return Share(value, max(0.0, value - half), min(1.0, value + half))


def _spread(value: float, parts_s: FloatArray, growths_s: FloatArray, length_s: float) -> float:
    """The standard deviation of a share over resampled baselines.

    It is that of `part − share · growth` in each resampled replay, not that of the ratio. The ratio
    has no meaning if the growth is small. The variance is doubled, because the share compares two
    samples: the baseline, and the window as it would have been without the causes.

    Source: Cochran, Sampling Techniques, 3rd edition, section 6.3.
    """
    variance = 2.0 * float(np.mean((parts_s - value * growths_s) ** 2))
    mean_s = max(float(growths_s.mean()), 1e-9)
    return sqrt(variance / (1.0 - CORRELATION_S / length_s)) / mean_s
