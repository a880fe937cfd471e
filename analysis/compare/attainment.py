"""Divide the difference of an objective's attainment (share of good requests) into mix, load and
change. Pure.

For each request, each expected latency is divided by the objective's threshold for it. Requests are
matched by the largest of these ratios. A request without an answer (failed, refused or cancelled)
may have no latency, and then cannot be matched. If the share of such requests grows, the growth
belongs to the change.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from telemetry.requests import Outcome

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
    both: list[BoolArray] = []
    answered: list[BoolArray] = []
    for side, (good, known) in zip((before, after), sides, strict=True):
        rows = known.copy()
        for metric in limits:
            _, with_metric = side.requests.observed(metric, side.groups, known)
            rows &= np.isin(np.arange(known.size), with_metric)
        both.append(rows)
        # A failed request that has all latencies can be matched.
        answered.append(known & (rows | good | _answered(side)))
    if min(rows.sum() for rows in both) < MIN_REQUESTS:
        return None
    good_before = sides[0][0][both[0]].astype(np.float64)
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
        return float(good_before[of.rows[comparable]].mean())

    mixed, equal = share(nearest["mix"]), share(nearest["work"])
    compared = float(sides[1][0][both[1]][comparable].mean())
    was_good, now_good = (
        float(good[rows].mean()) for (good, _), rows in zip(sides, answered, strict=True)
    )
    was_share, now_share = (
        float(rows.sum() / known.sum()) for (_, known), rows in zip(sides, answered, strict=True)
    )
    # attainment = share of answered requests × share of good requests among them
    weight = (was_share + now_share) / 2
    without_answer = (now_share - was_share) * (was_good + now_good) / 2
    mix = mixed - was_good + now_good - compared
    change = compared - equal
    return weight * mix, weight * (equal - mixed), weight * change + without_answer


def _answered(side: Chosen) -> BoolArray:
    """Whether the client received a complete answer, for each request: (n,)."""
    outcomes = pa.array([each.value for each in Outcome if each.answered])
    found = pc.is_in(side.requests.table["outcome"].cast(pa.string()), outcomes)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)
