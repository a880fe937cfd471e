"""Attribute the growth of the traffic to all tenants, to a flood from one tenant, or to a few long
prompts. Pure."""

from collections.abc import Callable
from math import inf, log, sqrt
from typing import Final, NamedTuple

import numpy as np

from diagnosis.evidence.added_requests import (
    added_per_s,
    outputs_were_added,
    prompts_were_added,
    without_added,
)
from diagnosis.evidence.cached import cached_per_case
from diagnosis.evidence.driving_tenant import token_rates
from diagnosis.evidence.retries import first_requests
from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.demand import (
    CLEAR_ERRORS,
    MIN_RISE,
    NOISE,
    TenantGrowth,
    log_of_rates,
    tenant_growth_of,
)
from diagnosis.inputs.requests import MIN_REQUESTS, FloatArray, Requests
from diagnosis.question import Metric

_WAITS: Final = 0.1
"""Requests count as waiting if waits have at least this share in the growth. In simulated floods,
99 % of the shares are above 0.38."""
_WAITED_FOR: Final = (
    *("frontend", "queue_seats", "queue_budget", "queue_kv", "queue_step", "queue_unsplit"),
)


class RequestRateGrowth(NamedTuple):
    """The growth of the request rate, without the repeated requests of a retry storm."""

    tenant: TenantGrowth | None
    before_per_s: float
    now_per_s: float
    log_growth: float
    """log(now / before) of the request rate. Like `Demand.log_fleet`, it is reduced by two standard
    errors."""


@cached_per_case
def first_rates(case: DiagnosisCase) -> RequestRateGrowth:
    """Return the growth of the request rate, without repeated requests."""
    before, now = first_requests(case)
    before_s, now_s = case.baseline_observed_s, case.hot_s
    return RequestRateGrowth(
        tenant_growth_of(before, before_s, now, now_s),
        len(before) / before_s,
        len(now) / now_s,
        log_of_rates(len(before), before_s, len(now), now_s),
    )


@cached_per_case
def flooded(case: DiagnosisCase) -> bool:
    """Return whether one tenant floods the servers.

    Three conditions must hold: the tenant's rate grew, even without its added long requests; its
    traffic grew more than the traffic of other tenants; and requests wait.
    """
    rates = first_rates(case)
    tenant = rates.tenant
    return (
        tenant is not None
        and tenant.now_per_s >= MIN_RISE * tenant.before_per_s
        and without_added(case, tenant.tenant) >= MIN_RISE
        and rates.log_growth > NOISE
        and _others_wait(case)
        and _log_beyond_others(case) > NOISE
    )


def _log_beyond_others(case: DiagnosisCase) -> float:
    """Return log(growth factor of the tenant / growth factor of the other tenants).

    The result is reduced by `CLEAR_ERRORS` standard errors."""
    rates = first_rates(case)
    tenant, (others_before, others_now) = rates.tenant, _others_per_s(case)
    before_s, now_s = case.baseline_observed_s, case.hot_s
    if tenant is None or min(others_before, others_now, tenant.before_per_s) <= 0:
        return inf  # no other tenant to compare with, or a new tenant
    grew = log(tenant.now_per_s / tenant.before_per_s) - log(others_now / others_before)
    counts = (
        *(tenant.before_per_s * before_s, others_before * before_s),
        *(tenant.now_per_s * now_s, others_now * now_s),
    )
    return grew - CLEAR_ERRORS * sqrt(sum(1.0 / count for count in counts))


def _others_per_s(case: DiagnosisCase) -> tuple[float, float]:
    """Return the request rate of the other tenants, in the baseline and in the hot blocks.

    The long requests that these tenants added are not counted.
    """
    rates = first_rates(case)
    before, now = rates.before_per_s, rates.now_per_s - sum(added_by_others(case).values())
    if rates.tenant is None:
        return before, now
    return before - rates.tenant.before_per_s, now - rates.tenant.now_per_s


def _others_wait(case: DiagnosisCase) -> bool:
    """Return whether requests wait in queues. If no request waits, additional requests only fill
    the batch."""
    if case.question.metric in (Metric.TPOT, Metric.ITL_MAX):
        return False  # TPOT and ITL max contain no waiting time
    waits = case.grown_s(*_WAITED_FOR)
    if waits > _WAITS * max(float(case.terms.sum(axis=1).mean()), 0.0):
        return waits > 0
    before, now = case.mean("waiting")
    return now is not None and now > max(1.0, MIN_RISE * (before or 0.0))


@cached_per_case
def added_by_others(case: DiagnosisCase) -> dict[str, float]:
    """Return the rates of added requests with long prompts and with long outputs, per second.

    Requests of the fastest-growing tenant are excluded. The keys are "prompt_tokens" and
    "output_tokens"."""
    tenant = first_rates(case).tenant
    most = None if tenant is None else tenant.tenant
    others = [each for each in case.hot_requests.label("tenant").values if each != most]
    return {
        tokens: sum(added_per_s(case, each, tokens) for each in others) if were_added else 0.0
        for tokens, were_added in (
            ("prompt_tokens", prompts_were_added(case)),
            ("output_tokens", outputs_were_added(case)),
        )
    }


def all_tenants_share(case: DiagnosisCase) -> float:
    """Return the share of the request rate's growth that is attributed to all tenants. If one
    tenant grew by a larger factor than the other tenants, the difference is attributed to this
    tenant."""
    rates = first_rates(case)
    tenant = rates.tenant
    if tenant is None:
        return 1.0
    before, now = _others_per_s(case)
    before_s, now_s = case.baseline_observed_s, case.hot_s
    if log_of_rates(round(before * before_s), before_s, round(now * now_s), now_s) <= NOISE:
        return 0.0
    whole = tenant.now_per_s + now - rates.before_per_s
    beyond = tenant.now_per_s - tenant.before_per_s * now / before
    return 1.0 - min(max(beyond / whole, 0.0), 1.0) if whole > 0 else 1.0


@cached_per_case
def few_prompts_share(case: DiagnosisCase) -> float:
    """Return the share of the growth in prompt tokens that a few very long prompts cause.

    The growth of most prompts is the smaller of two values: the growth of the median length, and
    the growth of the mean length without the fastest-growing tenant. A few prompts cause the rest
    of the growth. If some tenants added long prompts and the prompts of the other tenants are as
    before, the share is 1.
    """
    if prompts_were_added(case):
        return 1.0
    mean = _growth(case, None, np.mean)
    if mean is None or mean <= NOISE:
        return 0.0
    shared = (
        _growth(case, None, np.median),
        _growth(case, _heaviest_tenant(case), np.mean),
    )
    of_all = min((growth for growth in shared if growth is not None), default=mean)
    few = 1.0 - min(max(of_all / mean, 0.0), 1.0)
    return few if few > NOISE else 0.0


def _growth(
    case: DiagnosisCase, without: str | None, of: Callable[[FloatArray], float]
) -> float | None:
    """The relative growth (now / before − 1) of prompt tokens.

    The tenant `without` is excluded. The result is None if there are too few requests."""
    before, now = (_prompts(requests, without) for requests in (case.before, case.hot_requests))
    if min(before.size, now.size) < MIN_REQUESTS:
        return None
    return float(of(now)) / max(float(of(before)), 1.0) - 1.0


def _prompts(requests: Requests, without: str | None) -> FloatArray:
    tokens = requests.number("prompt_tokens")
    wanted = np.isfinite(tokens)
    if without is not None:
        wanted &= ~requests.label("tenant").is_value(without)
    return tokens[wanted]


def _heaviest_tenant(case: DiagnosisCase) -> str | None:
    before, now = token_rates(case, "prompt_tokens")
    return max(now, key=lambda tenant: now[tenant] - before.get(tenant, 0.0), default=None)
