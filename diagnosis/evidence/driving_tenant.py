"""Find the tenant that caused most of the growth of the traffic.

Pure.
"""

from typing import Final

import numpy as np

from diagnosis.claim import Evidence, Lever
from diagnosis.evidence.levers import rate_limit
from diagnosis.growth.case import Case
from diagnosis.inputs.requests import Requests

_NOISE: Final = 0.08
"""A relative growth up to this value can occur by chance and is ignored."""
_MOST: Final = 0.6
"""Minimum share of all tenants' growth that the driving tenant causes."""
_RISE: Final = 1.5
"""Minimum growth of the driving tenant's tokens per second."""


def driving_tenant(case: Case, tokens: str) -> str | None:
    """Return the tenant that caused most of the growth in tokens; None if no tenant did.

    Args:
        case: the case to examine.
        tokens: "prompt_tokens" or "output_tokens".
    """
    before, now = token_rates(case, tokens)
    growth = {tenant: rate - before.get(tenant, 0.0) for tenant, rate in now.items()}
    grown = sum(rise for rise in growth.values() if rise > 0)
    if len(growth) < 2 or grown <= _NOISE * sum(before.values()):
        return None
    most = max(growth, key=lambda tenant: growth[tenant])
    rose = now[most] >= _RISE * before.get(most, 0.0)
    return most if rose and growth[most] >= _MOST * grown else None


def tenant_evidence(case: Case, tokens: str) -> tuple[dict[str, str], list[Evidence], list[Lever]]:
    """Return the label, the evidence and the first lever of a claim about the tenant that drives
    the growth.

    All are empty if no single tenant drives it.
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


def token_rates(case: Case, tokens: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return tokens per second by tenant, before and now."""
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
