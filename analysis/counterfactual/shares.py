"""Shares of causes: replay the window with and without each cause.

Detectors propose causes. The window is replayed with every combination of them put back to the
baseline. A cause's share is the mean, over all orders in which the causes can be put back, of the
decrease of the slow requests' mean latency (Shapley value), divided by the whole growth. The growth
that remains when all causes are put back is unexplained.

Sources: virtual speedups, Curtsinger and Berger (Coz), SOSP 2015; Shapley values for root causes,
Budhathoki et al., 2022.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial
from typing import Final

import numpy as np

from analysis.counterfactual.factors import Factor, Kind, factor_of
from analysis.counterfactual.lost_blocks import without_lost_blocks
from analysis.counterfactual.mixed_window import Latencies, MixedWindow, Slice
from analysis.recorded_traffic import Recorded
from analysis.what_if import matching
from analysis.window_replay import Traffic, resampled, traffic_of
from diagnosis.explanation import Cause, Replay
from diagnosis.question import Metric
from replay.arrivals import BoolArray, FloatArray

MOST_FACTORS: Final = 4
"""Maximum number of factors that are put back. Each further factor doubles the replays."""
DRAWS: Final = 3
"""Replays of each combination with other step noise, and other requests that a lower rate keeps."""
RESAMPLED: Final = 12
"""Number of resampled windows for the intervals."""
MOST_ERROR: Final = 0.5
"""Maximum relative error of the replayed growth. With a larger error, the replay does not decide.

The error is part of each interval, so an interval with this error is about as wide as the share.
"""

MODEL_ERROR: Final = 0.04
"""Standard deviation of a share from errors of the model that the growth of the whole tail does not
show. Measured on seed 503 of `benchmarks/diagnosis.py`, which was used for development."""

COLUMN: Final = {metric: f"{metric.value}_s" for metric in Metric}


@dataclass(frozen=True, slots=True)
class Share:
    """A share of the growth, with the interval that contains it with a probability of 95 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What the replays decide about the proposed causes."""

    shares: Sequence[Share]
    """A share for each proposed cause."""
    unexplained: Share
    replay: Replay


class UndecidedError(ValueError):
    """The replay cannot decide. The message states the reason."""


@dataclass(frozen=True, slots=True)
class Tails:
    """The slow requests of a question."""

    metric: Metric
    share: float
    """The share of the requests that is slow."""
    equals: Mapping[str, str | None]
    """Labels that select the requests."""

    def measured_s(self, recorded: Recorded) -> float:
        """Return the mean latency of a range's slow requests, as measured."""
        asked = recorded.counted & matching(recorded.requests, self.equals)
        return tail_mean_s(recorded.column(COLUMN[self.metric])[asked], self.share)


def decide(
    window: Recorded,
    baseline: Recorded,
    causes: Sequence[Cause],
    tails: Tails,
    progress: Callable[[], None] = lambda: None,
) -> Decision:
    """Return the shares of the causes that the detectors propose.

    Args:
        window: the range to explain.
        baseline: the range to compare with.
        causes: the proposed causes, at least one, with the shares that accounting gives them. These
            shares only divide a factor among several causes that stand for it.
        tails: the slow requests.
        progress: called after each combination of factors.

    Raises:
        UndecidedError: the replay cannot remove a cause, or does not reproduce the growth.
    """
    factors = _factors(causes)
    chance = np.random.default_rng(0)
    if any(each.kind is Kind.BLOCKS for each in factors):
        window = _with_lost_blocks(window, baseline, tails, chance)
    game = _Game(window, baseline, factors, tails, progress)
    played = game.mean([(traffic_of(window), traffic_of(baseline))] * DRAWS, chance)
    baseline_s, now_s = tails.measured_s(baseline), tails.measured_s(window)
    if not now_s > baseline_s:
        raise UndecidedError("the requests of the replayed part did not become slower")
    error = played.growth_s / (now_s - baseline_s) - 1
    if abs(error) > MOST_ERROR:
        raise UndecidedError(
            f"the replayed growth is {error:+.0%} off; allowed: {MOST_ERROR:.0%} either way"
        )
    again = [
        game.mean([(resampled(window, chance), resampled(baseline, chance))], chance)
        for _ in range(RESAMPLED)
    ]
    of_factors = [
        _share(played.share(place), [each.share(place) for each in again], error)
        for place in range(len(factors))
    ]
    rest = [each.unexplained for each in (played, *again)]
    return Decision(
        _of_causes(causes, factors, of_factors),
        _share(rest[0], rest[1:], error),
        Replay(
            int(window.counted.sum()),
            baseline_s,
            played.baseline_s,
            now_s,
            played.values[frozenset()],
        ),
    )


def replays(causes: int) -> int:
    """Return the maximum number of combinations that `decide` replays, for its progress."""
    return (DRAWS + RESAMPLED) * (1 << min(causes, MOST_FACTORS))


def _factors(causes: Sequence[Cause]) -> list[Factor]:
    factors: list[Factor] = []
    for cause in causes:
        factor = factor_of(cause)
        if factor is None:
            raise UndecidedError(f"the replay cannot remove {cause.id}")
        if factor not in factors:
            factors.append(factor)
    if len(factors) > MOST_FACTORS:
        raise UndecidedError(f"{len(factors)} factors; allowed: at most {MOST_FACTORS}")
    return factors


def _with_lost_blocks(
    window: Recorded, baseline: Recorded, tails: Tails, chance: np.random.Generator
) -> Recorded:
    def replayed_s(of: Recorded) -> float:
        game = _Game(of, baseline, (), tails, lambda: None)
        return game.mean([(traffic_of(of), traffic_of(baseline))], chance).values[frozenset()]

    found = without_lost_blocks(window, tails.measured_s(window), replayed_s)
    if found is None:
        raise UndecidedError("the KV cache is exhausted, but has as many blocks as before")
    return found


def _of_causes(
    causes: Sequence[Cause], factors: Sequence[Factor], shares: Sequence[Share]
) -> list[Share]:
    """Divide the share of each factor among its causes, in proportion to their accounted shares.

    The replay cannot test this division, so each of several causes may have all or nothing.
    """
    found = []
    for cause in causes:
        factor = factor_of(cause)
        whole = sum(each.share for each in causes if factor_of(each) == factor)
        part = cause.share / whole if whole > 0 else 1.0
        share = shares[factors.index(factor)]
        low = share.low if part == 1 else 0.0
        found.append(Share(share.value * part, low, share.high))
    return found


@dataclass(frozen=True, slots=True)
class _Played:
    """The slow requests' mean latency with each combination of factors put back."""

    values: Mapping[frozenset[int], float]
    baseline_s: float
    factors: int

    @property
    def growth_s(self) -> float:
        return self.values[frozenset()] - self.baseline_s

    @property
    def unexplained(self) -> float:
        """The share of the growth that remains with all factors put back."""
        return 1.0 - sum(self.share(place) for place in range(self.factors))

    def share(self, place: int) -> float:
        """Return a factor's Shapley value, as a share of the growth."""
        others = [each for each in range(self.factors) if each != place]
        seconds = 0.0
        for size in range(self.factors):
            weight = factorial(size) * factorial(self.factors - size - 1)
            for chosen in combinations(others, size):
                without = self.values[frozenset(chosen)] - self.values[frozenset([*chosen, place])]
                seconds += weight * without
        return seconds / factorial(self.factors) / max(self.growth_s, 1e-9)


class _Game:
    """Replays the combinations of factors."""

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
        self._asked = [matching(each.requests, tails.equals) for each in (window, baseline)]

    def mean(
        self, traffics: Sequence[tuple[Traffic, Traffic]], chance: np.random.Generator
    ) -> _Played:
        """Return the means over pairs of the window's and the baseline's traffic."""
        count = len(self._factors)
        sums = {
            frozenset(chosen): 0.0
            for size in range(count + 1)
            for chosen in combinations(range(count), size)
        }
        baseline_s = 0.0
        for now, usual in traffics:
            window, baseline = Slice(self._window, now), Slice(self._baseline, usual)
            seed = str(chance.integers(2**31))
            mixed = MixedWindow(window, baseline, self._factors, chance)
            for chosen in sums:
                sums[chosen] += self._tail_s(mixed, chosen, seed, self._asked) / len(traffics)
                self._progress()
            alone = MixedWindow(baseline, baseline, (), chance)
            asked = [self._asked[1], self._asked[1]]
            baseline_s += self._tail_s(alone, frozenset(), seed, asked) / len(traffics)
        return _Played(sums, baseline_s, count)

    def _tail_s(
        self, mixed: MixedWindow, chosen: frozenset[int], seed: str, asked: Sequence[BoolArray]
    ) -> float:
        replayed = mixed.latencies(sorted(chosen), COLUMN[self._tails.metric], seed)
        return tail_mean_s(replayed.latency_s[_asked(replayed, asked)], self._tails.share)


def _asked(replayed: Latencies, asked: Sequence[BoolArray]) -> BoolArray:
    now, usual = asked
    row = replayed.row
    return np.where(row >= 0, now[np.maximum(row, 0)], usual[np.maximum(-1 - row, 0)])


def tail_mean_s(latency_s: FloatArray, share: float) -> float:
    """Return the mean of the slowest share of the known latencies."""
    known = latency_s[np.isfinite(latency_s)]
    if not known.size:
        return 0.0
    number = max(1, int(np.ceil(known.size * share)))
    return float(np.partition(known, -number)[-number:].mean())


def _share(value: float, again: Sequence[float], error: float) -> Share:
    """Return a share with its interval.

    The interval contains the difference between resampled windows, the replay's error of the
    growth, and the error of the model. The part of the growth that the replay lacks or adds may
    belong to any cause.
    """
    spread = np.std([value, *again])
    half = 2.0 * float(np.hypot(np.hypot(spread, error / 2), MODEL_ERROR))
    value = min(max(value, 0.0), 1.0)
    return Share(value, max(0.0, value - half), min(1.0, value + half))
