"""Divide requests into groups, one for each factor that changes a request rate. Pure.

The group of a factor that adds long requests contains the requests above a certain length.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Final

import numpy as np

from analysis.counterfactual.factors import RATES, Factor, FactorKind
from analysis.counterfactual.window_requests import WindowRequests, lengths_of, of_tenant
from diagnosis.evidence.added_requests import MIN_EXCESS, added_above
from diagnosis.inputs.requests import MIN_REQUESTS
from replay.arrivals import BoolArray

_LONGER: Final = {
    FactorKind.LONG_PROMPTS: FactorKind.PROMPTS,
    FactorKind.LONG_OUTPUTS: FactorKind.OUTPUTS,
}
"""Maps each factor that adds long requests to the factor that makes all requests longer."""


def grouped_by_rate(
    factors: Sequence[Factor], now: WindowRequests, usual: WindowRequests
) -> tuple[WindowRequests, WindowRequests]:
    """Return the requests of the window and of the baseline, each request with its group."""
    longer_than = [_lower_bound(factors, each, now, usual) for each in factors]
    return _grouped(factors, now, longer_than), _grouped(factors, usual, longer_than)


def _lower_bound(
    factors: Sequence[Factor], factor: Factor, now: WindowRequests, usual: WindowRequests
) -> float:
    """The length above which a request belongs to the group of a factor.

    The bound is 0 if all requests belong to the factor, and infinite if too few long requests were
    added.

    The bound is also 0 if the rate of shorter requests grew and no other factor represents this
    growth. A factor without a tenant ignores the tenants whose rate is a factor of its own.
    """
    if factor.kind not in (FactorKind.LONG_PROMPTS, FactorKind.LONG_OUTPUTS):
        return 0.0
    of_now, of_usual = (
        lengths_of(each, factor).astype(np.float64)[
            _may_have(each, factor, factors) & (each.at_s >= 0)
        ]
        for each in (now, usual)
    )
    if min(of_now.size, of_usual.size) < MIN_REQUESTS:
        return inf
    if _applies_to_whole_tenant(factors, _LONGER[factor.kind], factor.tenant):
        # Another factor makes all requests longer, so raise the bound too.
        of_usual = of_usual * _longer_ratio(factor, now, usual)
    bound = added_above(of_now, of_usual, 1.0)
    if factor.kind is FactorKind.LONG_PROMPTS:
        # All prompts longer than the baseline's longest belong to the factor.
        bound = min(bound, float(of_usual.max()))
    if _applies_to_whole_tenant(factors, FactorKind.RATE, factor.tenant):
        return bound
    ordinary = [(each <= bound).sum() for each in (of_now, of_usual)]
    more = (ordinary[0] - ordinary[1]) / max(sum(ordinary), 1) ** 0.5
    return 0.0 if more > MIN_EXCESS else bound


def _grouped(
    factors: Sequence[Factor], requests: WindowRequests, longer_than: Sequence[float]
) -> WindowRequests:
    """Assign each request to a group. Factors of long requests have priority over other factors.
    Among the other factors, factors of one tenant have priority."""
    places = [place for place, each in enumerate(factors) if each.kind in RATES]
    places.sort(key=lambda n: (not longer_than[n], not factors[n].tenant))
    group = np.full(len(requests.at_s), -1)
    for place in reversed(places):
        factor = factors[place]
        longer = lengths_of(requests, factor) > longer_than[place]
        group[longer & of_tenant(requests, factor.tenant)] = place
    group[requests.at_s < 0] = -1
    return replace(requests, group=group)


def _longer_ratio(factor: Factor, now: WindowRequests, usual: WindowRequests) -> float:
    """The ratio by which the median length of other tenants' requests grew.

    All requests are used if the factor has no tenant, or if other tenants have too few requests.
    """
    medians = []
    for each in (now, usual):
        lengths = lengths_of(each, factor)
        others = ~of_tenant(each, factor.tenant)
        some = lengths[others] if others.sum() >= MIN_REQUESTS else lengths
        medians.append(float(np.median(some)))
    return max(medians[0] / medians[1], 1.0) if medians[1] > 0 else 1.0


def _may_have(requests: WindowRequests, factor: Factor, factors: Sequence[Factor]) -> BoolArray:
    if factor.tenant is not None:
        return of_tenant(requests, factor.tenant)
    others = [each.tenant for each in factors if each.kind is FactorKind.RATE and each.tenant]
    return ~np.isin(requests.tenant, others)


def _applies_to_whole_tenant(
    factors: Sequence[Factor], kind: FactorKind, tenant: str | None
) -> bool:
    return any(each.kind is kind and each.tenant in (None, tenant) for each in factors)
