"""Decide whether a latency is worse after a change.

A decision contains the verdict with its numbers, or the reason why there is no verdict. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, hypot
from typing import Final

import numpy as np

from analysis.compare.intervals import (
    MIN_BLOCKS,
    MODEL_ERROR,
    Interval,
    blocks_of_sides,
    draws_of,
    reach_of,
    spread_of,
)
from analysis.compare.load_curve import LoadPoint, edges_of, percentiles, points_of
from analysis.compare.parts import ObservedRequests, PercentileParts, SideComparison, percentile
from analysis.compare.verdict import MARGIN, CompareVerdict, verdict_of
from analysis.corrected_prediction import NEGLIGIBLE_S
from replay.arrivals import IntArray
from telemetry.percentages import percent
from telemetry.quantiles import least_number

QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
MIN_REQUESTS: Final = 100
"""Minimum number of requests on each side, and minimum of `Matches.effective`. With fewer requests,
the 95 % interval of a P50 is wider than P40 to P60."""
MIN_COMPARED: Final = 0.5
"""Minimum share of the requests after the change that can be compared."""
MIN_FOR_WORSE: Final = 0.1
"""Minimum share of comparable requests for the verdict `worse`. It is lower than `MIN_COMPARED`: if
the server became much slower, more requests run at the same time than before, so most of them have
no counterpart before the change."""
MAX_COMPARED: Final = 10_000
"""Maximum number of requests to compare on each side, which takes a few seconds. If a side has more
requests, only every n-th request is used."""


@dataclass(frozen=True, slots=True)
class Criteria:
    """The settings of a decision about a change."""

    q: float
    margin: float = MARGIN
    looks: bool = True
    """True if the confidence interval must stay valid when the comparison is repeated."""
    floor_s: float = 0.0
    """Seconds that are added to the percentiles before and after the change. Without them, the
    ratio of the percentiles could be undefined, because most queueing times are 0."""
    restart_half: float = 0.0
    """Half of the width of the 95 % interval of a restart's effect on ln(after / before)."""


@dataclass(frozen=True, slots=True)
class CompareDecision:
    """The verdict on a change, with its numbers. Unknown numbers are None."""

    verdict: CompareVerdict
    before_s: float | None
    after_s: float | None
    parts: PercentileParts | None
    ratio: Interval | None
    """The confidence interval of after / before − 1, at the same mix and load."""
    compared_ratio: float
    effective: float
    curve: Sequence[LoadPoint] = ()
    reasons: Sequence[str] = ()
    uncompared: Sequence[str] = ()
    """Why some requests after the change have no counterpart: one text for each reason, with the
    share of the requests."""
    blocks: int = 0
    """Number of blocks of time with compared requests, on the side with fewer blocks."""
    log_error: float | None = None
    """Standard error of ln(after / before) of the percentile."""

    @property
    def change_ratio(self) -> float | None:
        """The percentile's relative change, after / before − 1, at the same mix and load."""
        if self.parts is None or not self.parts.equal_s:
            return None
        return self.parts.change_s / self.parts.equal_s

    @property
    def change_s(self) -> Interval | None:
        """The confidence interval of the change in seconds."""
        if self.ratio is None or self.parts is None:
            return None
        return Interval(*(each * self.parts.equal_s for each in self.ratio))


def floor_of(metric: str) -> float:
    """`Criteria.floor_s` for a metric."""
    return NEGLIGIBLE_S if metric == "queue" else 0.0


def thinned(size: int) -> IntArray:
    """The requests to compare on one side: all, or every n-th request."""
    return np.arange(0, size, -(-size // MAX_COMPARED) or 1)


def decide(
    before: ObservedRequests, after: ObservedRequests, criteria: Criteria
) -> CompareDecision:
    """Compare the requests before and after a change.

    The groups in `before` and in `after` must have the same numbers.
    """
    found = comparison_of(before, after, criteria)
    return found if isinstance(found, CompareDecision) else decided(found, criteria)


def comparison_of(
    before: ObservedRequests, after: ObservedRequests, criteria: Criteria
) -> SideComparison | CompareDecision:
    """Match the requests of both sides, or return the decision that the sides cannot be
    compared."""
    least = max(MIN_REQUESTS, least_number(criteria.q))
    sides = {"before": before, "after": after}
    before_s, after_s = (
        percentile(each.value_s, criteria.q) if each.at_s.size else None for each in sides.values()
    )
    reasons = [
        f"{each.at_s.size:,} requests {name}; a P{100 * criteria.q:g} needs at least {least:,}"
        for name, each in sides.items()
        if each.at_s.size < least
    ]
    if reasons:
        return CompareDecision(
            *(CompareVerdict.UNDECIDED, before_s, after_s, None, None, 0.0, 0.0), reasons=reasons
        )
    found = SideComparison(
        before.take(thinned(before.at_s.size)), after.take(thinned(after.at_s.size))
    )
    reasons = _too_different(found, least, MIN_FOR_WORSE) or _too_short(found)
    if reasons:
        return CompareDecision(
            *(CompareVerdict.UNDECIDED, before_s, after_s, None, None),
            *(float(found.comparable.mean()), found.effective),
            reasons=reasons,
        )
    return found


def decided(found: SideComparison, criteria: Criteria) -> CompareDecision:
    """The verdict on a change from the comparable requests."""
    equal, parts, blocks = found.equal(), found.parts(criteria.q), _blocks(found)
    edges = edges_of(equal.compared.running, criteria.q)
    drawn = draws_of(
        found,
        lambda each: (
            each.log_ratio(criteria.q, criteria.floor_s),
            percentiles(each, edges, criteria.q),
        ),
    )
    middle = equal.log_ratio(criteria.q, criteria.floor_s)
    error = hypot(float(spread_of(np.array([each for each, _ in drawn]))), MODEL_ERROR)
    half = max(error * reach_of(blocks, criteria.looks), criteria.restart_half)
    logs = Interval(middle - half, middle + half)
    verdict = verdict_of(middle, logs, criteria.margin)
    at_loads = np.array([each for _, each in drawn])
    share = float(found.comparable.mean())
    reasons = _too_different(found, 0, MIN_COMPARED)
    if reasons and verdict is not CompareVerdict.WORSE:
        return CompareDecision(
            *(CompareVerdict.UNDECIDED, parts.before_s, parts.after_s, None, None, share),
            *(found.effective, (), reasons),
        )
    if verdict is CompareVerdict.UNDECIDED:
        reasons = [_too_wide(logs, criteria, half)]
    return CompareDecision(
        verdict=verdict,
        before_s=parts.before_s,
        after_s=parts.after_s,
        parts=parts,
        ratio=_of_seconds(logs, parts, criteria.floor_s),
        compared_ratio=share,
        effective=found.effective,
        curve=points_of(equal, at_loads, edges, criteria.q, blocks),
        reasons=reasons,
        uncompared=[
            f"{percent(number / found.comparable.size)} {text}"
            for number, text in _uncompared(found)
        ],
        blocks=blocks,
        log_error=error,
    )


def _blocks(found: SideComparison) -> int:
    return min(map(len, blocks_of_sides(found)))


def _of_seconds(logs: Interval, parts: PercentileParts, floor_s: float) -> Interval | None:
    """Convert a confidence interval of ln((after + floor_s) / (before + floor_s)) to one of
    after / before − 1.

    `before` is `PercentileParts.equal_s`. The result is None if `before` is 0."""
    if not parts.equal_s > 0:
        return None
    return Interval(*(expm1(each) * (1 + floor_s / parts.equal_s) for each in logs))


def _too_wide(logs: Interval, criteria: Criteria, half: float) -> str:
    narrower = "more requests narrow the interval"
    if half == criteria.restart_half:
        narrower = "a restart alone can change the latency as much as this; compare more replicas"
    return (
        f"the change is between {100 * expm1(logs.low):+.1f} % and"
        f" {100 * expm1(logs.high):+.1f} %, and the margin is {100 * criteria.margin:.3g} %;"
        f" {narrower}"
    )


def _too_short(found: SideComparison) -> list[str]:
    blocks = _blocks(found)
    if blocks >= MIN_BLOCKS:
        return []
    return [
        f"the compared requests of one side arrived in {blocks} blocks of time; needed: at least"
        f" {MIN_BLOCKS}. Choose a longer range"
    ]


def _too_different(found: SideComparison, least: int, least_share: float) -> list[str]:
    compared = int(found.comparable.sum())
    share = compared / found.comparable.size
    if share >= least_share and compared >= least and found.effective >= MIN_REQUESTS:
        return []
    reasons = []
    if share < MIN_COMPARED or compared < least:
        needed = f" and {least:,} requests" if compared < least else ""
        reasons.append(
            f"only {percent(share, 0)} of the requests after the change ({compared:,}) have a"
            f" counterpart before it; needed: {MIN_COMPARED:.0%}{needed}"
        )
    else:
        reasons.append(
            f"the counterparts before the change count as {found.effective:.0f} requests; needed:"
            f" at least {MIN_REQUESTS}"
        )
    return reasons + [f"{number:,} requests {text}" for number, text in _uncompared(found)]


def _uncompared(found: SideComparison) -> list[tuple[int, str]]:
    """How many requests after the change have no counterpart, and why."""
    was, now = (float(np.median(each.running)) for each in (found.before, found.after))
    far = found.known_group & found.seen & ~found.comparable
    kinds = [
        (~found.known_group, "have a new model, tenant, route or adapter"),
        (
            found.known_group & ~found.seen,
            "are larger, or shared their engine with more work, than any request before"
            f" (median running requests at arrival: {was:.0f} before, {now:.0f} after)",
        ),
        (far, "differ too much from the nearest requests before"),
    ]
    return [(int(rows.sum()), text) for rows, text in kinds if rows.any()]
