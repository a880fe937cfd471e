"""The cases of benchmarks/compare_real, their verdicts and reports."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

import numpy as np
from sqlalchemy import Engine

from analysis.compare.answer import CompareAnswer, answer_compare
from analysis.compare.decision import MIN_REQUESTS, QUANTILES, CompareDecision
from analysis.compare.question import CompareQuestion, CompareSide
from analysis.compare.verdict import CompareVerdict
from analysis.compare.work_terms import METRICS
from benchmarks._compare_truth import (
    MISSED,
    RIGHT,
    UNCLEAR,
    WRONG,
    TrueChange,
    WindowLatencies,
    truth_of,
)
from benchmarks._compare_windows import CHANGED, CONFIGURATIONS, FIRST, SAME, USUAL, ServedWindow
from store.columns.request_columns import request_columns

LATENCIES: Final = tuple((metric, q) for metric in ("ttft", "tpot") for q in ("p50", "p95"))
HEADING: Final = (
    f"{'before':10} {'after':10} {'traffic':9} {'latency':8} {'truth':>21} {'as it is':>8} "
    f"{'change at the same work':>23} {'in all':>7} {'compared':>8}  verdict"
)

Windows = Mapping[tuple[str, str], ServedWindow]
"""Maps a configuration and a traffic to the window."""


@dataclass(frozen=True, slots=True)
class CompareCase:
    """Two windows to compare, and two windows with the same arrivals, from which the true change is
    computed."""

    before: tuple[str, str]
    after: tuple[str, str]

    @property
    def truth(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The two windows with the same arrivals."""
        mix = CHANGED if self.after[1] == CHANGED else SAME
        return (self.before[0], mix), (self.after[0], mix)

    @property
    def changed(self) -> bool:
        """Whether vLLM's arguments differ between the two windows."""
        return CONFIGURATIONS[self.before[0]] != CONFIGURATIONS[self.after[0]]


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """The verdict on one latency of a case, and the true change."""

    case: CompareCase
    truth: TrueChange
    answer: CompareAnswer

    @property
    def verdict(self) -> CompareVerdict:
        """The verdict."""
        return self.answer.decision.verdict

    @property
    def result(self) -> str:
        """Whether the verdict is right."""
        return self.truth.judge(self.verdict, self.answer.question.margin)


def cases_of(changes: Sequence[str]) -> list[CompareCase]:
    """Return four cases per change: each direction, with the same and with a different mix of
    requests.

    The two windows from which the true change is computed are not compared with each other.
    """
    return [
        case
        for name in changes
        for case in (
            CompareCase((USUAL, FIRST), (name, SAME)),
            CompareCase((USUAL, FIRST), (name, CHANGED)),
            CompareCase((name, SAME), (USUAL, FIRST)),
            CompareCase((name, SAME), (USUAL, CHANGED)),
        )
    ]


def latencies_of(engine: Engine, served: ServedWindow, metric: str) -> WindowLatencies:
    """The stored requests of a window for which the latency is known."""
    column, received = METRICS[metric], "received_unix_ns"
    table = request_columns(engine, served.window, [received, column])
    value_s = np.asarray(table[column].to_numpy(), dtype=np.float64)
    at_s = (np.asarray(table[received].to_numpy()) - served.window.from_unix_ns) / 1e9
    known = np.isfinite(value_s)
    return WindowLatencies(at_s[known], value_s[known])


def judged(
    engine: Engine, case: CompareCase, windows: Windows, metric: str, quantile: str, looks: bool
) -> JudgedAnswer | None:
    """Return the true change of a case, and the verdict, or None if a window has too few requests.

    Args:
        looks: True if the confidence interval must hold for repeated comparisons while the window
            grows.
    """
    sides = [latencies_of(engine, windows[each], metric) for each in case.truth]
    if min(each.value_s.size for each in sides) < MIN_REQUESTS:
        return None
    seconds = windows[case.before].stretch.ended_s - windows[case.before].stretch.begun_s
    truth = truth_of(sides[0], sides[1], QUANTILES[quantile], seconds)
    before, after = (CompareSide(windows[each].window) for each in (case.before, case.after))
    question = CompareQuestion(before, after, metric, quantile, looks=looks)
    return JudgedAnswer(case, truth, answer_compare(engine, question))


def false_verdicts(engine: Engine, windows: Windows, looks: bool) -> tuple[list[str], int]:
    """Compare all pairs of windows that the same process served. Nothing changed between them, so
    every reported change is false.

    Returns: a line for each verdict `worse` or `better`, and the number of verdicts.
    """
    lines, compared = [], 0
    for before, after in permutations(windows, 2):
        if before[0] != after[0]:
            continue
        sides = CompareSide(windows[before].window), CompareSide(windows[after].window)
        for metric, quantile in LATENCIES:
            question = CompareQuestion(*sides, metric, quantile, looks=looks)
            found = answer_compare(engine, question).decision
            compared += 1
            if found.verdict in (CompareVerdict.WORSE, CompareVerdict.BETTER):
                lines.append(
                    f"{before[0]}: {before[1]} → {after[1]}, {metric} {quantile}:"
                    f" {found.verdict.value} {_change(found)}"
                )
    return lines, compared


def line(of: JudgedAnswer) -> str:
    """The table line of one verdict."""
    case, question, found, truth = of.case, of.answer.question, of.answer.decision, of.truth
    raw = ratio = "-"
    if found.before_s and found.after_s is not None:
        raw = f"{found.after_s / found.before_s - 1:+.0%}"
    total_s = of.answer.total.total_change_s
    if total_s is not None and found.after_s is not None and found.after_s > total_s:
        ratio = f"{total_s / (found.after_s - total_s):+.0%}"
    traffic = "other mix" if case.after[1] == CHANGED else "same mix"
    latency = f"{question.metric} {question.quantile}"
    return (
        f"{case.before[0]:10} {case.after[0]:10} {traffic:9} {latency:8} "
        f"{_interval(truth.ratio, truth.low, truth.high):>21} {raw:>8} "
        f"{_change(found):>23} {ratio:>7} {found.compared_ratio:8.0%}  "
        f"{of.verdict.value}: {of.result}"
    )


def _change(found: CompareDecision) -> str:
    if found.change_ratio is None or found.ratio is None:
        return "-"
    return _interval(found.change_ratio, found.ratio.low, found.ratio.high)


def _interval(middle: float, low: float, high: float) -> str:
    return f"{100 * middle:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def summary(found: Sequence[JudgedAnswer]) -> tuple[list[str], bool]:
    """The sentences below the table, and whether the goal is met."""
    lines, met = [], True
    for name, changed in (("A/A", False), ("A/B", True)):
        mine = [each for each in found if each.case.changed == changed]
        results = Counter(each.result for each in mine)
        verdicts = Counter(each.verdict for each in mine)
        clear = len(mine) - results[UNCLEAR]
        lines.append(
            f"{name}: {results[RIGHT]} of {clear} verdicts right, {results[MISSED]} changes not"
            f" found, {results[WRONG]} wrong; {results[UNCLEAR]} with an uncertain true change ("
            + ", ".join(f"{verdicts[each]} {each.value}" for each in CompareVerdict)
            + ")"
        )
        called = verdicts[CompareVerdict.WORSE] + verdicts[CompareVerdict.BETTER]
        enough = bool(clear) if changed else bool(mine) and not called
        met &= enough and results[RIGHT] == clear
    ratios = [(each.truth.ratio, each.answer.decision.ratio) for each in found]
    inside = [ratio.low <= true <= ratio.high for true, ratio in ratios if ratio is not None]
    lines.append(f"{sum(inside)} of {len(inside)} intervals contain the measured truth")
    lines.append(f"goal: right in all, no A/A worse or better: {'met' if met else 'NOT MET'}")
    return lines, met
