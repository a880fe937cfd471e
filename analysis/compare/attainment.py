"""Divide the difference of an objective's attainment (share of good requests) into mix, load and
change. Pure.

For each request, the expected latencies are divided by the objective's thresholds. Requests are
matched by the largest of these ratios.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from alerts.evaluation.request_verdicts import RequestVerdict
from alerts.evaluation.table_verdicts import VERDICTS, judge_table
from alerts.objectives import Goodput, Objective
from analysis.compare.decision import MIN_COMPARED, MIN_REQUESTS
from analysis.compare.expected_latency import ExpectedLatency
from analysis.compare.matching import GroupedRequests, Matches, is_in_range_before, match, near
from analysis.compare.parts import joined_groups
from analysis.compare.sides import Groups, SideRequests
from analysis.compare.work_terms import METRICS
from replay.arrivals import BoolArray, FloatArray

_METRIC_OF: Final = {column: name for name, column in METRICS.items()}


@dataclass(frozen=True, slots=True)
class AttainmentParts:
    """The share of good requests before and after a change, and the parts of the difference."""

    slo: str
    target: float
    before: float
    after: float
    mix: float | None
    """`mix`, `load` and `change` are None if too few requests can be compared. They are also None
    if the objective has no latency threshold."""
    load: float | None
    change: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """The requests of one side (before or after the change)."""

    requests: SideRequests
    groups: Groups
    rows: BoolArray


def attainment_of(objective: Objective, before: Chosen, after: Chosen) -> AttainmentParts | None:
    """Return the attainment of an objective before and after a change, and the parts of the
    difference. Return None if the objective counts no requests on one side.

    Args:
        before, after: the requests of both sides, with the columns of the objective.
    """
    indicator = objective.indicator
    if not isinstance(indicator, Goodput):
        return None
    limits = {
        _METRIC_OF[name]: value
        for name, value in indicator.thresholds()
        if name in _METRIC_OF and value > 0
    }
    sides = [_good_and_counted(each, indicator) for each in (before, after)]
    if any(not known.any() for _, known in sides):
        return None
    was, now = (float(good[known].mean()) for good, known in sides)
    whole = (objective.name, float(objective.target), was, now)
    parts = _parts(before, after, sides, limits) if limits else None
    return AttainmentParts(*whole, *(parts or (None, None, None)))


def _good_and_counted(side: Chosen, indicator: Goodput) -> tuple[BoolArray, BoolArray]:
    codes = judge_table(indicator.where, indicator.good, side.requests.table)
    good = codes == VERDICTS.index(RequestVerdict.GOOD)
    return good, side.rows & (good | (codes == VERDICTS.index(RequestVerdict.BAD)))


def _parts(
    before: Chosen,
    after: Chosen,
    sides: list[tuple[BoolArray, BoolArray]],
    limits: dict[str, float],
) -> tuple[float, float, float] | None:
    both = []
    for side, (_, known) in zip((before, after), sides, strict=True):
        rows = known.copy()
        for metric in limits:
            _, with_metric = side.requests.observed(metric, side.groups, known)
            rows &= np.isin(np.arange(known.size), with_metric)
        both.append(rows)
    if min(rows.sum() for rows in both) < MIN_REQUESTS:
        return None
    good = sides[0][0][both[0]].astype(np.float64)
    nearest = {}
    comparable = np.ones(int(both[1].sum()), dtype=bool)
    for terms in ("mix", "work"):
        expected: list[FloatArray] = []
        for metric, limit in limits.items():
            was, now = joined_groups(
                *(
                    side.requests.observed(metric, side.groups, rows)[0]
                    for side, rows in zip((before, after), both, strict=True)
                )
            )
            fit = ExpectedLatency(getattr(was, terms), was.value_s)
            expected.append(
                np.concatenate([fit.of(getattr(each, terms)) / limit for each in (was, now)])
            )
            comparable &= is_in_range_before(was.work, now.work)
        closest = np.max(expected, axis=0)
        cut = int(both[0].sum())
        found = match(
            GroupedRequests(was.group, closest[:cut]), GroupedRequests(now.group, closest[cut:])
        )
        comparable &= near(found)
        nearest[terms] = found
    if comparable.sum() < MIN_REQUESTS or comparable.mean() < MIN_COMPARED:
        return None

    def share(of: Matches) -> float:
        return float(good[of.rows[comparable]].mean())

    mixed, equal = share(nearest["mix"]), share(nearest["work"])
    good_before, known_before = sides[0]
    good_after, known_after = sides[1]
    compared = float(good_after[both[1]][comparable].mean())
    uncompared = float(good_after[known_after].mean()) - compared
    was_good = float(good_before[known_before].mean())
    return mixed - was_good + uncompared, equal - mixed, compared - equal
