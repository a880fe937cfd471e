"""Divide the difference between a percentile before and after a change into mix, load and change.

The README describes the method. Pure.

Source: DiNardo, Fortin and Lemieux, Econometrica 1996; Chernozhukov, Fernández-Val and Melly,
Econometrica 2013.
"""

from dataclasses import dataclass, replace
from math import log, nan
from typing import Final, NamedTuple

import numpy as np

from analysis.compare.expected_latency import ExpectedLatency
from analysis.compare.matching import GroupedRequests, Matches, is_in_range_before, match, near
from replay.arrivals import BoolArray, FloatArray, IntArray
from telemetry.quantiles import nearest_rank

MIN_IN_GROUP: Final = 50
"""Minimum number of requests of a group before the change. Smaller groups of a model are joined
into one group."""
NEW: Final = -1
"""The group number of all requests whose group (model, tenant, route and adapter) does not exist
before the change."""
REST: Final = -2
"""The number of the joined group of model 0. The joined group of model m has the number
`REST` − m."""
TINY_S: Final = 1e-9
"""The shortest duration that the store can hold."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ObservedRequests:
    """The requests of one side whose compared latency is known."""

    at_s: FloatArray
    value_s: FloatArray
    group: IntArray
    """(n,) the index of each request's group. Requests of one group have the same model, tenant,
    route and adapter. A group has the same index before and after the change."""
    model: IntArray
    """(n,) the index of each request's model."""
    mix: FloatArray
    """(n, j) the amount of each kind of work of the request itself. The first column is 1."""
    load: FloatArray
    """(n, k) the amount of each kind of work of other requests that run at the same time."""
    running: FloatArray
    """(n,) number of running requests at arrival, for the load curve."""

    def take(self, rows: IntArray | BoolArray) -> "ObservedRequests":
        """The requests of the given rows."""
        return replace(
            self,
            **{name: getattr(self, name)[rows] for name in ObservedRequests.__dataclass_fields__},
        )

    @property
    def work(self) -> FloatArray:
        """Return the work of each request itself, and the work of other requests that run at the
        same time: (n, j + k)."""
        return np.concatenate([self.mix, self.load], axis=1)


class PercentileParts(NamedTuple):
    """A percentile before and after a change, and the parts of the difference, in seconds."""

    before_s: float
    after_s: float
    compared_s: float
    """The percentile of the compared requests after the change."""
    mixed_s: float
    """The percentile before the change, reweighted to the mix after it."""
    equal_s: float
    """The percentile before the change, reweighted to the mix and the load after it."""

    @property
    def uncompared_s(self) -> float:
        """The percentile of all requests after the change, minus the percentile of the compared
        requests."""
        return self.after_s - self.compared_s

    @property
    def compared_mix_s(self) -> float:
        """The effect of the mix on the requests that can be compared."""
        return self.mixed_s - self.before_s

    @property
    def mix_s(self) -> float:
        """The effect of the changed mix of requests.

        It includes requests that cannot be compared."""
        return self.compared_mix_s + self.uncompared_s

    @property
    def load_s(self) -> float:
        """The effect of a different load."""
        return self.equal_s - self.mixed_s

    @property
    def change_s(self) -> float:
        """The difference at the same mix and load."""
        return self.compared_s - self.equal_s


def percentile(values: FloatArray, q: float) -> float:
    """The percentile of values: the value at the nearest rank."""
    place = nearest_rank(values.size, q) - 1
    return float(np.partition(values, place, axis=None)[place])


def joined_groups(
    before: ObservedRequests, after: ObservedRequests
) -> tuple[ObservedRequests, ObservedRequests]:
    """Join the groups with few requests before the change into one group for each model."""
    groups, counts = np.unique(before.group, return_counts=True)
    kept = groups[counts >= MIN_IN_GROUP]

    def joined(side: ObservedRequests) -> ObservedRequests:
        small = np.where(np.isin(side.group, groups), REST - side.model, NEW)
        return replace(side, group=np.where(np.isin(side.group, kept), side.group, small))

    return joined(before), joined(after)


class Equal(NamedTuple):
    """The compared requests, and their estimated latencies before the change."""

    compared: ObservedRequests
    before_s: FloatArray
    """(m, MATCHES) latencies of the matches before the change, at a similar mix and load."""

    def log_ratio(self, q: float, floor_s: float) -> float:
        """Return ln(percentile after the change / percentile before the change), or NaN without
        requests.

        Args:
            q: the percentile, in (0, 1).
            floor_s: seconds that are added to both percentiles. The ratio is then defined if a
                percentile is 0.
        """
        if not self.compared.value_s.size:
            return nan
        after_s = percentile(self.compared.value_s, q) + floor_s
        return log(max(after_s, TINY_S) / max(percentile(self.before_s, q) + floor_s, TINY_S))


class SideComparison:
    """The requests before and after a change, and which requests after the change can be
    compared."""

    def __init__(self, before: ObservedRequests, after: ObservedRequests) -> None:
        self.before, self.after = joined_groups(before, after)
        self._by_mix = ExpectedLatency(self.before.mix, self.before.value_s)
        self._by_work = ExpectedLatency(self.before.work, self.before.value_s)
        matches = _match_by(self._by_work, self.before, self.after, "work")
        self.known_group = matches.there
        """(m,) whether the group of each request after the change has requests before the
        change."""
        self.seen = is_in_range_before(self.before.work, self.after.work)
        """(m,) whether the work of each request, and of other requests that run at the same time,
        is in the range before the change (`BEYOND`)."""
        by_mix = _match_by(self._by_mix, self.before, self.after, "mix")
        self.comparable = near(matches) & near(by_mix) & self.seen
        self.effective = matches.of(self.comparable).effective(self.before.at_s.size)
        """Effective number of requests before the change."""

    def equal(self) -> Equal:
        """The compared requests, and estimates of their latencies without the change."""
        return _equal(self.before, self.after.take(self.comparable), self._by_work)

    def resampled(self, before: IntArray, after: IntArray) -> Equal:
        """The result of `equal` for resampled rows, with a new fit.

        `after` contains only comparable requests. If a resample has no request of a group before
        the change, the group's requests after the change are left out.
        """
        drawn = self.before.take(before)
        fit = ExpectedLatency(drawn.work, drawn.value_s)
        return _equal(drawn, self.after.take(after), fit)

    def parts(self, q: float) -> PercentileParts:
        """Return the three parts of the difference of a percentile: mix, load and change."""
        compared, before_s = self.equal()
        mixed_s = _match_by(self._by_mix, self.before, compared, "mix").latencies(
            self.before.value_s
        )
        return PercentileParts(
            percentile(self.before.value_s, q),
            percentile(self.after.value_s, q),
            percentile(compared.value_s, q),
            percentile(mixed_s, q),
            percentile(before_s, q),
        )


def _equal(before: ObservedRequests, compared: ObservedRequests, fit: ExpectedLatency) -> Equal:
    matches = _match_by(fit, before, compared, "work")
    there = matches.there
    return Equal(compared.take(there), matches.of(there).latencies(before.value_s))


def _match_by(
    fit: ExpectedLatency, before: ObservedRequests, after: ObservedRequests, terms: str
) -> Matches:
    return match(
        GroupedRequests(before.group, fit.of(getattr(before, terms))),
        GroupedRequests(after.group, fit.of(getattr(after, terms))),
    )
