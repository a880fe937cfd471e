"""Measure how often `tailspan compare` reports false changes and finds true changes.

    python benchmarks/compare.py                        the default numbers of cases
    python benchmarks/compare.py --seed 5000 --cases 20 --looks 10

Each case is a pair of simulated windows of 2,000 requests. In A/A cases, the server does not
change. In A/B cases, each engine step takes 10 % longer. By default, 14 cases of each kind are
compared once. Eight A/A cases of each kind are compared 200 times. Each comparison is a look.
Between two looks, the window after the change grows. The exit status is 1 if a target value is
missed.
"""

import argparse
import sys
import time
from collections import Counter, defaultdict
from math import erfc, expm1, sqrt
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from analysis.compare.decision import (
    MIN_COMPARED,
    QUANTILES,
    CompareDecision,
    Criteria,
    comparison_of,
    decided,
)
from analysis.compare.intervals import Interval, reach_of
from analysis.compare.load_curve import edges_of
from analysis.compare.parts import Equal, percentile
from analysis.compare.step_coefficients import NAMES, coefficients_of, work_intervals_of
from analysis.compare.verdict import MARGIN, CompareVerdict, verdict_of
from benchmarks._compare_cases import (
    MILDLY,
    SAME,
    SHIFTED,
    SLOW,
    SLOW_SHIFTED,
    ChangeKind,
    ComparedWindows,
    pair,
)
from diagnosis.inputs.arrow import samples_of

REQUESTS: Final = 2_000
LOOKS: Final = 200
FALSE_ONCE, FALSE_EVER, FOUND, COVERED = 0.02, 0.05, 0.90, 0.90
"""Target values, as shares. `FALSE_ONCE` and `FALSE_EVER` are maxima: false verdicts at one look,
and cases with a false verdict at any look. `FOUND` and `COVERED` are minima: true changes found,
and intervals that contain the true change."""
LATENCIES: Final = tuple((metric, q) for metric in ("ttft", "tpot") for q in QUANTILES)
ALPHA: Final = 0.05
INTERVAL_EVERY: Final = 40
"""If the estimate is within the margin, the verdict can be neither `worse` nor `better`. The
interval is then computed only at every 40th look."""


class JudgedLatency(NamedTuple):
    """The verdicts on one latency of one case, and the true change."""

    metric: str
    quantile: str
    one: str
    every: str
    error: float | None
    """The estimated ratio minus the true ratio; None if the windows cannot be compared."""
    covered: tuple[bool, bool]
    rivals: tuple[bool, bool]
    curve: tuple[int, int] = (0, 0)
    """On the load curve: the number of points whose interval contains the true change, and the
    number of all points."""


def judged(case: ComparedWindows) -> list[JudgedLatency]:
    """Return two verdicts: with the interval for one look, and with the interval for all looks."""
    found = []
    for metric, name in LATENCIES:
        before, after = case.sides(metric)
        q = QUANTILES[name]
        rivals = (
            mann_whitney(before.value_s, after.value_s) < ALPHA,
            z_test(before.value_s, after.value_s) < ALPHA,
        )
        criteria = Criteria(q, looks=False)
        match = comparison_of(before, after, criteria)
        decision = match if isinstance(match, CompareDecision) else decided(match, criteria)
        if isinstance(match, CompareDecision) or decision.log_error is None or not decision.parts:
            undecided = CompareVerdict.UNDECIDED.value
            found.append(
                JudgedLatency(metric, name, undecided, undecided, None, (True, True), rivals)
            )
            continue
        equal = match.equal()
        without_s = case.without_change(metric)[match.comparable]
        true = percentile(equal.compared.value_s, q) / percentile(without_s, q) - 1
        middle = equal.log_ratio(q, 0.0)
        verdicts, covered = [], []
        for looks in (False, True):
            half = decision.log_error * reach_of(decision.blocks, looks)
            logs = Interval(middle - half, middle + half)
            verdict = verdict_of(middle, logs, MARGIN)
            few = match.comparable.mean() < MIN_COMPARED
            if few and verdict is not CompareVerdict.WORSE:
                verdict = CompareVerdict.UNDECIDED
            verdicts.append(verdict.value)
            covered.append(bool(expm1(logs.low) <= true <= expm1(logs.high)))
        found.append(
            JudgedLatency(
                *(metric, name, verdicts[0], verdicts[1], expm1(middle) - true),
                *((covered[0], covered[1]), rivals, on_the_curve(decision, equal, without_s, q)),
            )
        )
    return found


def on_the_curve(
    decision: CompareDecision, equal: Equal, without_s: np.ndarray, q: float
) -> tuple[int, int]:
    """For the points on the load curve, return the number whose interval contains the true change,
    and the number of all points."""
    place = np.searchsorted(edges_of(equal.compared.running, q), equal.compared.running, "right")
    inside = 0
    for point in decision.curve:
        mine = place == next(
            number
            for number in range(int(place.max()) + 1)
            if (place == number).any()
            and np.median(equal.compared.running[place == number]) == point.load
        )
        true_s = percentile(equal.compared.value_s[mine], q) - percentile(without_s[mine], q)
        inside += bool(point.low_s <= true_s <= point.high_s)
    return inside, len(decision.curve)


def false_looks(case: ComparedWindows, metric: str, name: str) -> tuple[bool, bool, bool, bool]:
    """Compare a case at each look.

    Returns: for each of four events, whether it happened at any look: a false verdict, an interval
    without 0, a significant Mann-Whitney test, a significant z-test.
    """
    criteria = Criteria(QUANTILES[name])
    before, whole = case.sides(metric)
    wrong, missed, rivals = False, False, [False, False]
    for look in range(1, LOOKS + 1):
        after = whole.take(np.arange(whole.at_s.size * look // LOOKS))
        if after.at_s.size >= 2:
            rivals[0] |= mann_whitney(before.value_s, after.value_s) < ALPHA
            rivals[1] |= z_test(before.value_s, after.value_s) < ALPHA
        found = comparison_of(before, after, criteria)
        if isinstance(found, CompareDecision):
            continue
        beyond = abs(found.equal().log_ratio(criteria.q, 0.0)) > np.log1p(MARGIN)
        if not beyond and look % INTERVAL_EVERY:
            continue
        decision = decided(found, criteria)
        wrong |= decision.verdict in (CompareVerdict.WORSE, CompareVerdict.BETTER)
        missed |= decision.ratio is not None and not decision.ratio.low <= 0 <= decision.ratio.high
    return wrong, missed, rivals[0], rivals[1]


def mann_whitney(a: np.ndarray, b: np.ndarray) -> float:
    """The two-sided p-value of the Mann-Whitney test, by the normal approximation."""
    ranks = np.empty(a.size + b.size)
    ranks[np.argsort(np.concatenate([a, b]), kind="stable")] = np.arange(1, ranks.size + 1)
    excess = ranks[: a.size].sum() - a.size * (ranks.size + 1) / 2
    spread = sqrt(a.size * b.size * (ranks.size + 1) / 12)
    return erfc(abs(excess) / spread / sqrt(2))


def z_test(a: np.ndarray, b: np.ndarray) -> float:
    """The two-sided p-value of a z-test of the difference of the means."""
    spread = sqrt(a.var() / a.size + b.var() / b.size)
    return erfc(abs(a.mean() - b.mean()) / max(spread, 1e-300) / sqrt(2))


def steps_covered(case: ComparedWindows) -> list[bool] | None:
    """Return, for each step coefficient and for the pace, whether the interval contains the true
    value."""
    sides = []
    for data in case.data:
        samples = samples_of(data.sample_table())
        sides.append(work_intervals_of(samples, np.ones(len(samples), dtype=bool), 0, 2**62))
    found = coefficients_of(sides[0], sides[1])
    if found is None:
        return None
    step = case.data[1].config.engine.step
    true = (
        *(step.base_s, step.prefill_token_s, step.prefill_pair_s),
        *(step.context_token_s, step.sequence_s),
    )
    inside = [
        found.after[name].low <= value <= found.after[name].high
        for name, value in zip(NAMES, true, strict=True)
    ]
    return [*inside, found.pace.low <= case.kind.slower <= found.pace.high]


def once(kind: ChangeKind, seeds: range) -> bool:
    """Print the verdicts on the cases of a kind, and return whether the target values are met."""
    begun = time.monotonic()
    results: dict[tuple[str, str], list[JudgedLatency]] = defaultdict(list)
    steps = []
    for seed in seeds:
        case = pair(kind, seed, REQUESTS)
        steps.append(steps_covered(case))
        for each in judged(case):
            results[each.metric, each.quantile].append(each)
    changed = kind.slower != 1.0
    print(f"\n{'A/B' if changed else 'A/A'}, {kind.name}: {len(seeds)} cases")
    print(
        "           one look: worse better no worse undecided   all looks: worse better"
        "   not comparable   error: mean, sd   truth in interval: one, all looks"
    )
    met = True
    for (metric, name), cases in results.items():
        number = len(cases)
        one = Counter(each.one for each in cases)
        every = Counter(each.every for each in cases)
        errors = [each.error for each in cases if each.error is not None]
        known = [each for each in cases if each.error is not None]
        covered = [np.mean([each.covered[i] for each in known]) if known else 1.0 for i in (0, 1)]
        print(
            f"{metric:>5} {name}           {one['worse']:5} {one['better']:6} {one['no_worse']:8}"
            f" {one['undecided']:9}              {every['worse']:5} {every['better']:6}"
            f"   {number - len(known):14}   {100 * np.mean(errors or [0]):+7.2f} %,"
            f" {100 * np.std(errors or [0]):.2f} %   {covered[0]:22.0%}, {covered[1]:.0%}",
            flush=True,
        )
        met &= bool(covered[0] >= COVERED)
        if not changed:
            met &= (one["worse"] + one["better"]) / number <= FALSE_ONCE
        elif kind == SLOW:
            met &= every["worse"] / number >= FOUND
    inside, points = np.sum([each.curve for cases in results.values() for each in cases], axis=0)
    if points:
        print(f"points of the curves with the true change: {inside / points:.0%} of {points}")
        met &= bool(inside / points >= COVERED)
    for metric in dict(LATENCIES):
        rivals = np.mean([each.rivals for each in results[metric, "p50"]], axis=0)
        print(f"{metric}: Mann-Whitney significant {rivals[0]:.0%}, z-test {rivals[1]:.0%}")
    if known_steps := [each for each in steps if each is not None]:
        shares = zip((*NAMES, "pace"), np.mean(known_steps, axis=0), strict=True)
        print(
            f"intervals of the steps with the truth ({len(known_steps)} cases): "
            + ", ".join(f"{name} {share:.0%}" for name, share in shares)
        )
    print(f"{time.monotonic() - begun:.0f} s; {'met' if met else 'NOT MET'}", flush=True)
    return met


def again(kind: ChangeKind, seeds: range) -> bool:
    """Print how often a case without a change had a false verdict at any look."""
    begun = time.monotonic()
    found = []
    for seed in seeds:
        metric, name = LATENCIES[seed % len(LATENCIES)]
        found.append(false_looks(pair(kind, seed, REQUESTS), metric, name))
    wrong, missed, rank, mean = np.mean(found, axis=0)
    met = bool(wrong <= FALSE_EVER)
    print(
        f"\nA/A, {kind.name}, {LOOKS} looks: {len(seeds)} cases\n"
        f"a false verdict at any look: {wrong:.1%} (goal: {FALSE_EVER:.0%}); an interval that"
        f" missed 0: {missed:.1%}; Mann-Whitney significant at any look: {rank:.0%}; z-test:"
        f" {mean:.0%}\n"
        f"{time.monotonic() - begun:.0f} s; {'met' if met else 'NOT MET'}",
        flush=True,
    )
    return met


def main() -> int:
    """Print the measurements, and return 1 if a target value is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=9_000, help="the first seed")
    parser.add_argument("--cases", type=int, default=14, help="cases of each kind to compare once")
    parser.add_argument("--looks", type=int, default=8, help="A/A cases to compare at 200 looks")
    given = parser.parse_args()
    print(
        f"goals: false verdicts at one look <= {FALSE_ONCE:.0%}, at any of {LOOKS} looks <="
        f" {FALSE_EVER:.0%}; changes found >= {FOUND:.0%}; intervals with the truth >="
        f" {COVERED:.0%}"
    )
    seeds = range(given.seed, given.seed + given.cases)
    met = []
    if given.cases:
        met += [once(kind, seeds) for kind in (SAME, SLOW, SHIFTED, MILDLY, SLOW_SHIFTED)]
    looks = range(given.seed + 100_000, given.seed + 100_000 + given.looks)
    if given.looks:
        met += [again(kind, looks) for kind in (SAME, MILDLY, SHIFTED)]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
