"""Changes of the traffic between baseline and window: request rate, tenants, servers, request
sizes.

Pure. A growth is log(now / before). Work is a product of factors: rate × prompt length × uncached
share. Its growth is the sum of the growths of the factors.
"""

from dataclasses import dataclass
from math import copysign, log, sqrt
from typing import Final

import numpy as np

from diagnosis.growth.own_work import OwnWork, uncached_tokens
from diagnosis.inputs.requests import MIN_REQUESTS, FloatArray, Requests

NOISE: Final = 0.08
"""Minimum growth that is not ignored, as a relative or logarithmic value. Without a fault, the
median growth of the compared quantities is 0, and 99 % grow by at most 0.17."""
CLEAR_ERRORS: Final = 3.0
"""Minimum growth of a mean, in standard errors. Without a fault, 99 % of the values are at most
2.6."""
_RATE_ERRORS: Final = 2.0
"""The growth of a rate is reduced by this number of standard errors. In a normal distribution, 95 %
of the values are within 2 standard errors."""
MIN_RISE: Final = 1.5
"""Minimum ratio (now / before) of the traffic of a tenant that caused the growth. Without a fault,
the ratio of the fastest-growing tenant is 1.2 at the median. In 99 % of cases, it is at most
2.0."""
MIN_SHARE: Final = 0.6
"""Minimum share of the traffic's growth that a tenant must have to be its cause. Without a fault,
the share of the fastest-growing tenant is 0.5 at the median. In 99 % of cases, it is at most
0.8."""


@dataclass(frozen=True, slots=True)
class TenantGrowth:
    """The tenant whose traffic grew most."""

    tenant: str
    before_per_s: float
    now_per_s: float
    share_of_growth: float
    """The growth of the tenant's rate, divided by the sum of the growths of all tenants that grew:
    in (0, 1]."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Changes of the traffic. Rates are in requests/s. `log_*` fields are log(now / before)."""

    fleet_before_per_s: float
    fleet_now_per_s: float
    slow_servers_before_per_s: float
    slow_servers_now_per_s: float
    prompt_before_tokens: float
    prompt_now_tokens: float
    log_prompt: float
    """Logarithm of the factor by which longer prompts lengthen the mean time of a request's own
    prefill, at the baseline's hit ratio."""
    log_uncached: float
    """Logarithm of the factor by which cache misses lengthen the mean time of a request's own
    prefill. Prompts of sizes that do not occur in the baseline are left out."""
    log_new_traffic_misses: float
    """The same logarithm for the cache misses of one tenant's additional requests. `log_uncached`
    does not include them."""
    output_before_tokens: float
    output_now_tokens: float
    uncached_expected_ratio: float
    uncached_now_ratio: float
    servers: int

    log_fleet: float
    """Growth of the fleet's request rate, reduced by two standard errors."""
    log_slow_servers: float
    """Growth of the request rate at the slow servers, reduced by two standard errors. It is the
    growth of the fleet's rate if no slow server served requests in the baseline."""

    @property
    def log_skew(self) -> float:
        """Growth of the slow servers' share of the fleet's request rate."""
        return self.log_slow_servers - self.log_fleet if self.servers > 1 else 0.0

    @property
    def log_output(self) -> float:
        """Growth of the mean number of output tokens."""
        return _log_ratio(self.output_now_tokens, self.output_before_tokens)


def grew(before: FloatArray, now: FloatArray) -> bool:
    """Return whether the mean of `now` exceeds the mean of `before` by more than
    `CLEAR_ERRORS` standard errors. Return False if there are too few values."""
    before, now = before[np.isfinite(before)], now[np.isfinite(now)]
    if min(before.size, now.size) < MIN_REQUESTS:
        return False
    error = np.sqrt(before.var() / before.size + now.var() / now.size)
    return bool(now.mean() - before.mean() > CLEAR_ERRORS * error)


def _log_ratio(now: float, before: float) -> float:
    return log(now / before) if now > 0 and before > 0 else 0.0


def demand_of(
    before: Requests,
    before_s: float,
    now: Requests,
    now_s: float,
    slow_servers: tuple[str, ...],
    work: OwnWork,
) -> Demand:
    """Compare the traffic of two time ranges."""
    at_before, at_now = before_at(before, slow_servers), at_servers(now, slow_servers)
    log_fleet = log_of_rates(len(before), before_s, len(now), now_s)
    log_slow_servers = log_fleet
    if _served(before, slow_servers):
        log_slow_servers = log_of_rates(len(at_before), before_s, len(at_now), now_s)
    tenant = tenant_growth_of(before, before_s, now, now_s)
    log_uncached = log_of_misses(at_now, work)
    new_traffic_misses = 0.0
    if tenant is not None and log_fleet > 0 and tenant.share_of_growth >= MIN_SHARE:
        new_traffic_misses = _misses_of_new_traffic(at_now, tenant.tenant, log_uncached, work)
    return Demand(
        fleet_before_per_s=len(before) / before_s,
        fleet_now_per_s=len(now) / now_s,
        slow_servers_before_per_s=len(at_before) / before_s,
        slow_servers_now_per_s=len(at_now) / now_s,
        prompt_before_tokens=_mean(at_before.number("prompt_tokens")),
        prompt_now_tokens=_mean(at_now.number("prompt_tokens")),
        log_prompt=_log_of_prefill(at_before, at_now, work),
        log_uncached=log_uncached - new_traffic_misses,
        log_new_traffic_misses=new_traffic_misses,
        log_fleet=log_fleet,
        log_slow_servers=log_slow_servers,
        output_before_tokens=_mean(at_before.number("output_tokens")),
        output_now_tokens=_mean(at_now.number("output_tokens")),
        uncached_expected_ratio=_expected_ratio(at_now, work),
        uncached_now_ratio=_uncached_ratio(at_now),
        servers=_server_count(before, now),
    )


def log_of_rates(before: int, before_s: float, now: int, now_s: float) -> float:
    """Return the logarithm of the ratio (now / before) of two request rates, moved towards 0 by two
    standard errors. `before` and `now` are numbers of requests."""
    if not (before and now and now_s > 0):
        return 0.0
    found = log(now / now_s / (before / before_s))
    return copysign(max(abs(found) - _RATE_ERRORS * sqrt(1 / before + 1 / now), 0.0), found)


def _log_of_prefill(before: Requests, now: Requests, work: OwnWork) -> float:
    was, is_ = _mean(work.expected_prefill_s(before)), _mean(work.expected_prefill_s(now))
    if not (was and is_):
        was, is_ = _mean(before.number("prompt_tokens")), _mean(now.number("prompt_tokens"))
    return _log_ratio(is_, was)


def log_of_misses(now: Requests, work: OwnWork) -> float:
    """Return the logarithm of the factor by which cache misses lengthened prefills: log(a / b). `a`
    and `b` are mean predicted times of a request's own prefill: `a` at the current hit ratio, and
    `b` at the baseline's hit ratio."""
    expected = _mean(work.expected_prefill_s(now))
    actual = _mean(work.prefill_s(now.number("prompt_tokens"), uncached_tokens(now)))
    if not (expected and actual):
        return _log_ratio(_uncached_ratio(now), _expected_ratio(now, work))
    return _log_ratio(actual, expected)


def _misses_of_new_traffic(now: Requests, tenant: str, log_uncached: float, work: OwnWork) -> float:
    """Return the part of `log_uncached` that one tenant's additional requests cause. The prompts of
    these requests are new, so their uncached tokens count as more work and not as cache misses."""
    others = now.rows(~now.label("tenant").is_value(tenant))
    if len(others) < MIN_REQUESTS:
        return 0.0
    return max(log_uncached - max(log_of_misses(others, work), 0.0), 0.0)


def at_servers(requests: Requests, servers: tuple[str, ...]) -> Requests:
    """Return the requests that these servers served, or all requests if no server is given."""
    return requests.rows(requests.server.is_any(servers)) if servers else requests


def before_at(before: Requests, servers: tuple[str, ...]) -> Requests:
    """Return the baseline's requests that these servers served.

    Return all requests if these servers served none. A Kubernetes rollout gives every replica a new
    name, so the window may have no server in common with the baseline."""
    return at_servers(before, servers if _served(before, servers) else ())


def _served(requests: Requests, servers: tuple[str, ...]) -> bool:
    return bool(requests.server.is_any(servers).any())


def _mean(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else 0.0


def _uncached_ratio(requests: Requests) -> float:
    prompt, uncached = requests.number("prompt_tokens"), uncached_tokens(requests)
    total = float(np.nansum(prompt))
    return float(np.nansum(uncached)) / total if total else 0.0


def _expected_ratio(requests: Requests, work: OwnWork) -> float:
    prompt = requests.number("prompt_tokens")
    total = float(np.nansum(prompt))
    expected = work.expected_cached_tokens(prompt, requests.number("cached_tokens"))
    cached = float(np.nansum(expected))
    return (total - cached) / total if total else 0.0


def _server_count(before: Requests, now: Requests) -> int:
    return len({*before.server.present, *now.server.present})


def tenant_growth_of(
    before: Requests, before_s: float, now: Requests, now_s: float
) -> TenantGrowth | None:
    """The growth of the tenant whose rate grew most.

    Return None if no rate grew, if the tenant sent too few requests, or if the baseline's requests
    have no tenant."""
    rates_before, rates_now = _rates(before, before_s), _rates(now, now_s)
    if not rates_before:
        return None
    growth = {tenant: rate - rates_before.get(tenant, 0.0) for tenant, rate in rates_now.items()}
    whole = sum(rise for rise in growth.values() if rise > 0)
    if not whole:
        return None
    tenant = max(growth, key=lambda each: growth[each])
    if rates_now[tenant] * now_s < MIN_REQUESTS:
        return None
    return TenantGrowth(
        tenant,
        rates_before.get(tenant, 0.0),
        rates_now[tenant],
        growth[tenant] / whole,
    )


def _rates(requests: Requests, seconds: float) -> dict[str, float]:
    tenant = requests.label("tenant")
    counts = np.bincount(tenant.codes[tenant.codes >= 0], minlength=len(tenant.values))
    return {
        name: int(count) / seconds
        for name, count in zip(tenant.values, counts, strict=True)
        if count
    }
