"""Find the driving tenant: the tenant that caused most of the growth of the traffic. Pure."""

from math import exp, log
from typing import Final

import numpy as np

from diagnosis.claim import Evidence, Lever
from diagnosis.evidence.levers import rate_limit
from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.demand import MIN_RISE, MIN_SHARE, NOISE
from diagnosis.growth.own_work import computed_tokens
from diagnosis.inputs.requests import FloatArray, Requests

_CHANCE: Final = 0.01
"""Significance level: the maximum probability that a tenant's share is due to chance."""


def driving_tenant(case: DiagnosisCase, tokens: str) -> str | None:
    """The tenant that caused most of the growth in tokens.

    Return None if its share is too small or may be due to chance.

    Args:
        tokens: "prompt_tokens" or "output_tokens".
    """
    before, now = (
        _tokens_per_s(requests, computed_tokens(requests, tokens), seconds)
        for requests, seconds in (
            (case.before, case.baseline_observed_s),
            (case.hot_requests, case.hot_s),
        )
    )
    whole_before = sum(before.values())
    if not whole_before:
        return None  # the baseline's requests have no tenant, so no growth is known
    growth = {tenant: rate - before.get(tenant, 0.0) for tenant, rate in now.items()}
    grown = sum(rise for rise in growth.values() if rise > 0)
    if len(growth) < 2 or grown <= NOISE * whole_before:
        return None
    most = max(growth, key=lambda tenant: growth[tenant])
    rose = now[most] >= MIN_RISE * before.get(most, 0.0)
    if not rose or growth[most] < MIN_SHARE * grown:
        return None
    usual_share = before.get(most, 0.0) / whole_before
    by_chance = _chance_of(growth[most] / grown, usual_share, _added_requests(case, tokens))
    return most if by_chance < _CHANCE else None


def _added_requests(case: DiagnosisCase, tokens: str) -> float:
    """Return the number of added requests. For this number, all added requests are assumed to have
    the same length."""
    now, before = (
        np.nan_to_num(computed_tokens(each, tokens)) for each in (case.hot_requests, case.before)
    )
    scale = case.hot_s / case.baseline_observed_s
    sums = (float((now**power).sum() - scale * (before**power).sum()) for power in (1, 2))
    first, second = (max(each, 0.0) for each in sums)
    return first**2 / second if second else float("inf")


def _chance_of(share: float, usual_share: float, requests: float) -> float:
    """An upper bound of the p-value of a tenant's share (Chernoff bound, 1952).

    It is the probability that a tenant with the share `usual_share` sends at least `share` of the
    requests by chance."""
    if share <= usual_share:
        return 1.0
    if not usual_share:
        return 0.0
    distance = share * log(share / usual_share)
    if share < 1:
        distance += (1 - share) * log((1 - share) / (1 - usual_share))
    return exp(-requests * distance)


def tenant_evidence(
    case: DiagnosisCase, tokens: str
) -> tuple[dict[str, str], list[Evidence], list[Lever]]:
    """Return a label, evidence and a rate limit for the tenant that raised the demand.

    All three results are empty if there is no such tenant.
    """
    tenant = driving_tenant(case, tokens)
    if tenant is None:
        return {}, [], []
    before, now = token_rates(case, tokens)
    kind = tokens.removesuffix("_tokens")
    return (
        {"tenant": tenant},
        [Evidence(f"{kind} tokens/s of {tenant}", before.get(tenant, 0.0), now[tenant])],
        [rate_limit(tenant, before.get(tenant, 0.0), now[tenant])],
    )


def token_rates(case: DiagnosisCase, tokens: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return each tenant's tokens per second, in the baseline and in the hot blocks."""
    found = case.cache.get(("rates", tokens))
    if found is None:
        found = case.cache["rates", tokens] = (
            _tokens_per_s(case.before, case.before.number(tokens), case.baseline_observed_s),
            _tokens_per_s(case.hot_requests, case.hot_requests.number(tokens), case.hot_s),
        )
    result: tuple[dict[str, float], dict[str, float]] = found
    return result


def _tokens_per_s(requests: Requests, tokens: FloatArray, seconds: float) -> dict[str, float]:
    tenant = requests.label("tenant")
    known = tenant.codes >= 0
    sums = np.bincount(
        tenant.codes[known], np.nan_to_num(tokens)[known], minlength=len(tenant.values)
    )
    return dict(zip(tenant.values, (sums / max(seconds, 1.0)).tolist(), strict=True))
