"""Whose the traffic's growth is: everybody's, one tenant's flood, a few very long prompts.

Pure.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from diagnosis.claim import Evidence, Lever
from diagnosis.evidence.cached import cached_per_case
from diagnosis.growth.case import Case
from diagnosis.inputs.requests import FloatArray, Requests
from diagnosis.question import Metric

_NOISE: Final = 0.08
"""A growth, or its logarithm, that an ordinary hour shows by chance."""

_FLOOD_SHARE: Final = 0.35
"""Of the rate's growth."""
_MOST: Final = 0.6
"""Of the tenants' growths, where the others' is but each minute's whim."""
_FLOOD_RISE: Final = 1.5
_FLOOD_SHARE_RISE: Final = 1.15
_OTHER_KIND: Final = 2.0
"""Times the work of a tenant's usual request: what is more is another kind of traffic, and no
flood of the usual."""
_OTHERS_GREW: Final = 1.3
"""Times the baseline's rate: a flood comes in minutes, of which each is a little busier or not."""
_WAITS: Final = 0.1
"""Of the growth, how much is waiting where others wait."""
_WAITED_FOR: Final = (
    *("frontend", "queue_seats", "queue_budget", "queue_kv", "queue_step", "queue_unsplit"),
)

_FEWEST: Final = 10
"""Requests of a kind, for their mean and their median to be one."""
_CHANCE_SHARE: Final = 0.25
"""Of the prompts' growth: less is what means and medians differ by, by chance."""


@cached_per_case
def flooded(case: Case) -> bool:
    """Whether one tenant makes the traffic grow, by more of what it always sends and by more than
    the others' grew, and others wait behind it."""
    tenant = case.demand.tenant
    return (
        tenant is not None
        and 1.0 - all_tenants_share(case) >= _FLOOD_SHARE
        and tenant.now_per_s >= _FLOOD_RISE * tenant.before_per_s
        and tenant.size_ratio < _OTHER_KIND
        and case.demand.log_fleet > _NOISE
        and _others_wait(case)
        and tenant.now_per_s / max(case.demand.fleet_now_per_s, 1e-9)
        > _FLOOD_SHARE_RISE * tenant.before_per_s / max(case.demand.fleet_before_per_s, 1e-9)
    )


def _others_wait(case: Case) -> bool:
    """A tenant's growth that nobody waits behind is a fuller batch, and no flood."""
    if case.question.metric in (Metric.TPOT, Metric.ITL_MAX):
        return False  # no part of these is spent waiting behind others
    waits = case.grown_s(*_WAITED_FOR)
    if waits > _WAITS * max(float(case.terms.sum(axis=1).mean()), 0.0):
        return waits > 0
    before, now = case.mean("waiting")
    return now is not None and now > max(1.0, 2.0 * (before or 0.0))


def all_tenants_share(case: Case) -> float:
    """Of the rate's growth, what all tenants brought alike: what one brought beyond the others'
    growth is its flood."""
    demand, tenant = case.demand, case.demand.tenant
    if tenant is None:
        return 1.0
    before = demand.fleet_before_per_s - tenant.before_per_s
    now = demand.fleet_now_per_s - tenant.now_per_s
    others_grew = now / before if before > 0 else 1.0
    if others_grew <= _OTHERS_GREW:
        return 0.0 if tenant.share_of_growth >= _MOST else 1.0
    beyond = tenant.now_per_s - tenant.before_per_s * others_grew
    whole = demand.fleet_now_per_s - demand.fleet_before_per_s
    return 1.0 - min(max(beyond / whole, 0.0), 1.0) if whole > 0 else 1.0


@cached_per_case
def few_prompts_share(case: Case) -> float:
    """Of the tokens that prompts grew by, the share of a few very long ones: what the median
    prompt did not grow by, or the prompts of all tenants but one; the rest is everybody's."""
    mean = _growth(case, None, np.mean)
    if mean is None or mean <= _NOISE:
        return 0.0
    shared = (
        _growth(case, None, np.median),
        _growth(case, _heaviest_tenant(case), np.mean),
    )
    of_all = min((growth for growth in shared if growth is not None), default=mean)
    few = 1.0 - min(max(of_all / mean, 0.0), 1.0)
    return min(max((few - _CHANCE_SHARE) / (1.0 - 2.0 * _CHANCE_SHARE), 0.0), 1.0)


def _growth(case: Case, without: str | None, of: Callable[[FloatArray], float]) -> float | None:
    """Of all tenants' prompts but one's, as a ratio of what was; None where there are too few."""
    before, now = (_prompts(requests, without) for requests in (case.before, case.hot_requests))
    if min(before.size, now.size) < _FEWEST:
        return None
    return float(of(now)) / max(float(of(before)), 1.0) - 1.0


def _prompts(requests: Requests, without: str | None) -> FloatArray:
    tokens = requests.number("prompt_tokens")
    wanted = np.isfinite(tokens)
    if without is not None:
        wanted &= ~requests.label("tenant").is_value(without)
    return tokens[wanted]


def _heaviest_tenant(case: Case) -> str | None:
    """The tenant whose prompts' tokens a second grew most."""
    before, now = _rates(case, "prompt_tokens")
    return max(now, key=lambda tenant: now[tenant] - before.get(tenant, 0.0), default=None)


def driving_tenant(case: Case, tokens: str) -> str | None:
    """The tenant that brought most of a growth of the traffic's tokens; None where no one did.

    Args:
        case: the question.
        tokens: "prompt_tokens" or "output_tokens".
    """
    before, now = _rates(case, tokens)
    growth = {tenant: rate - before.get(tenant, 0.0) for tenant, rate in now.items()}
    grown = sum(rise for rise in growth.values() if rise > 0)
    if len(growth) < 2 or grown <= _NOISE * sum(before.values()):
        return None
    most = max(growth, key=lambda tenant: growth[tenant])
    rose = now[most] >= _FLOOD_RISE * before.get(most, 0.0)
    return most if rose and growth[most] >= _MOST * grown else None


def tenant_evidence(case: Case, tokens: str) -> tuple[dict[str, str], list[Evidence], list[Lever]]:
    """For a mechanism's claim: where, the evidence and the first lever of who drives it; empty
    where no single tenant does."""
    tenant = driving_tenant(case, tokens)
    if tenant is None:
        return {}, [], []
    before, now = _rates(case, tokens)
    kind = tokens.removesuffix("_tokens")
    return (
        {"tenant": tenant},
        [Evidence(f"{kind} tokens/s of {tenant}", before.get(tenant, 0.0), now[tenant])],
        [Lever(f"limit the rate of {tenant} at the gateway")],
    )


def _rates(case: Case, tokens: str) -> tuple[dict[str, float], dict[str, float]]:
    """By tenant, tokens a second before and now."""
    found = case.cache.get(("rates", tokens))
    if found is None:
        found = case.cache["rates", tokens] = (
            _tokens_per_s(case.before, tokens, case.baseline_observed_s),
            _tokens_per_s(case.hot_requests, tokens, case.hot_s),
        )
    result: tuple[dict[str, float], dict[str, float]] = found
    return result


def _tokens_per_s(requests: Requests, name: str, seconds: float) -> dict[str, float]:
    tenant, tokens = requests.label("tenant"), np.nan_to_num(requests.number(name))
    known = tenant.codes >= 0
    sums = np.bincount(tenant.codes[known], tokens[known], minlength=len(tenant.values))
    return dict(zip(tenant.values, (sums / max(seconds, 1.0)).tolist(), strict=True))
