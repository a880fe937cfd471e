"""Find out why requests became longer on average: all requests became longer, or long requests were
added. Pure.

In the second case, there are as many short requests as before.
"""

from math import inf, log
from typing import Final

import numpy as np

from diagnosis.evidence.cached import cached_per_case
from diagnosis.evidence.driving_tenant import driving_tenant
from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.demand import grew
from diagnosis.growth.own_work import computed_tokens
from diagnosis.inputs.requests import MIN_REQUESTS, FloatArray, IntArray, Requests

MIN_EXCESS: Final = 3.1
"""Minimum excess of the number of long requests over the expected number, in standard deviations.
If the lengths in two ranges have the same distribution, 1 % of 3,000 simulated pairs of ranges have
a larger excess."""

_NONE: Final[FloatArray] = np.empty(0)
_SAME_LENGTHS: Final = 1.63
"""Two samples have the same distribution if their Kolmogorov-Smirnov statistic is at most this. For
equal distributions, 1 % of the statistics are larger (Smirnov, 1948)."""


@cached_per_case
def prompts_were_added(case: DiagnosisCase) -> bool:
    """Return whether requests with long prompts were added."""
    return _tenants_added_long(case, "prompt_tokens")


@cached_per_case
def outputs_were_added(case: DiagnosisCase) -> bool:
    """Return whether requests with long outputs were added."""
    return _tenants_added_long(case, "output_tokens")


def _tenants_added_long(case: DiagnosisCase, tokens: str) -> bool:
    """Return whether some tenants added long requests while the lengths of other tenants did not
    grow."""
    tenants = case.before.label("tenant").values
    lengths = [_of_tenant(case, tokens, each) for each in tenants]
    enough = [each for each in lengths if min(each[0].size, each[1].size) >= MIN_REQUESTS]
    if len(enough) < 2:
        return _tenant_added_long(
            *_of_tenant(case, tokens, None), case.hot_s / case.baseline_observed_s
        )
    # The rates of all tenants may also have grown by a common factor. The growth factor of the
    # tenant that grew least is used as the common factor.
    scale = min(now.size / before.size for before, now in enough)
    added = {
        name
        for name, (before, now) in zip(tenants, lengths, strict=True)
        if _tenant_added_long(before, now, scale)
    }
    if not added or len(added) == len(enough):
        return False
    before, now = (
        computed_tokens(each, tokens)[~each.label("tenant").is_any(added)]
        for each in (case.before, case.hot_requests)
    )
    return not grew(before, now)


def _tenant_added_long(before: FloatArray, now: FloatArray, scale: float) -> bool:
    bound = longer_than(now, before, scale)
    return were_added(now, before, scale, bound) and (bound < inf or grew(before, now))


@cached_per_case
def long_prompts_fill_steps(case: DiagnosisCase) -> bool:
    """Return whether the added long prompts fill several steps.

    The number of prompts longer than two steps must have grown more than the number of shorter
    prompts. If all prompts became longer, the difference must be larger than chance explains. The
    size of a step is the largest number of other requests' prompt tokens that any step computed.
    """
    before, now = _of_tenant(case, "prompt_tokens", driving_tenant(case, "prompt_tokens"))
    largest_step = case.hot_requests.number("others_prefill_tokens_max")
    known = largest_step[np.isfinite(largest_step)]
    if min(before.size, now.size) < MIN_REQUESTS or not known.size:
        return True
    size = 2.0 * float(known.max())
    scale = case.hot_s / case.baseline_observed_s
    several = excess_above(np.array([size]), now, before, scale)
    shorter = np.unique(now[now <= size])
    one = excess_above(shorter, now[now <= size], before[before <= size], scale)
    least = float(one.max(initial=0.0))
    return bool(several[0] >= (least if prompts_were_added(case) else min(MIN_EXCESS, least)))


def added_per_s(case: DiagnosisCase, tenant: str, tokens: str) -> float:
    """Return the rate of the long requests that a tenant added, in requests per second."""
    before, now = _of_tenant(case, tokens, tenant)
    bound = _added_above(case, tokens, tenant)
    added = (now > bound).sum() / case.hot_s - (before > bound).sum() / case.baseline_observed_s
    return max(float(added), 0.0)


def without_added(case: DiagnosisCase, tenant: str) -> float:
    """Return the ratio (now / before) of a tenant's request rate, without added long requests."""
    scale = case.hot_s / case.baseline_observed_s
    found = []
    for tokens in ("prompt_tokens", "output_tokens"):
        before, now = _of_tenant(case, tokens, tenant)
        bound = _added_above(case, tokens, tenant)
        found.append((now <= bound).sum() / max((before <= bound).sum() * scale, 1.0))
    return float(min(found))


def _added_above(case: DiagnosisCase, tokens: str, tenant: str) -> float:
    key = "added above", tokens, tenant
    if key not in case.cache:
        before, now = _of_tenant(case, tokens, tenant)
        case.cache[key] = added_above(now, before, case.hot_s / case.baseline_observed_s)
    bound: float = case.cache[key]
    return bound


def _of_tenant(
    case: DiagnosisCase, tokens: str, tenant: str | None
) -> tuple[FloatArray, FloatArray]:
    """Return the sorted lengths of a tenant's requests in the baseline and in the hot blocks.

    If `tenant` is None, the requests of all tenants are used.
    """
    ranges = case.before, case.hot_requests
    key = "lengths", tokens, tenant is None
    if key not in case.cache:
        of_range = _of_all if tenant is None else _by_tenant
        case.cache[key] = tuple(of_range(each, tokens) for each in ranges)
    was, is_ = case.cache[key]
    return was.get(tenant, _NONE), is_.get(tenant, _NONE)


def _of_all(requests: Requests, tokens: str) -> dict[None, FloatArray]:
    lengths = computed_tokens(requests, tokens)
    return {None: np.sort(lengths[np.isfinite(lengths)])}


def _by_tenant(requests: Requests, tokens: str) -> dict[str, FloatArray]:
    lengths, tenant = computed_tokens(requests, tokens), requests.label("tenant")
    known = np.isfinite(lengths)
    lengths, codes = lengths[known], tenant.codes[known]
    if len(tenant.values) <= np.iinfo(np.int16).max:
        codes = codes.astype(np.int16)  # numpy sorts short integers faster
    order = np.argsort(codes, kind="stable")
    lengths = lengths[order]
    ends = np.searchsorted(codes[order], np.arange(len(tenant.values) + 1)).tolist()
    found: dict[str, FloatArray] = {}
    for code, name in enumerate(tenant.values):
        found.setdefault(name, np.sort(lengths[ends[code] : ends[code + 1]]))
    return found


def added_above(now: FloatArray | IntArray, before: FloatArray | IntArray, scale: float) -> float:
    """Return the length above which requests were added (see `were_added`), or infinity if no
    requests were added."""
    bound = longer_than(now, before, scale)
    return bound if were_added(now, before, scale, bound) else inf


def were_added(
    now: FloatArray | IntArray,
    before: FloatArray | IntArray,
    scale: float,
    bound: float | None = None,
) -> bool:
    """Return True if long requests were added, and False if all requests became longer.

    Ordinary requests are at most as long as the baseline's median. Long requests were added if two
    conditions hold. The rate of the ordinary requests changed less than the rate of all requests.
    The lengths of the ordinary requests have the same distribution as before (Kolmogorov-Smirnov
    test).

    Args:
        now: the lengths in the window, in tokens.
        before: the lengths in the baseline, in tokens.
        scale: the duration of the window, divided by the duration of the baseline.
        bound: the result of `longer_than`, if it is already computed.
    """
    if min(now.size, before.size) < MIN_REQUESTS:
        return False
    if bound is None:
        bound = longer_than(now, before, scale)
    longest = min(float(np.median(before)), bound)
    short_now, short_before = now[now <= longest], before[before <= longest]
    if not short_before.size:
        return False
    ordinary = short_now.size / (short_before.size * scale)
    total = now.size / (before.size * scale)
    if not ordinary > 0 or abs(log(ordinary)) >= abs(log(total)):
        return False
    return _distance(short_now, short_before) < _SAME_LENGTHS


def _distance(now: FloatArray | IntArray, before: FloatArray | IntArray) -> float:
    """Return the Kolmogorov-Smirnov statistic of samples of n and m values: D·√(n·m / (n + m))."""
    now, before = _sorted(now), _sorted(before)
    values = np.concatenate([now, before])
    ranks = (np.searchsorted(each, values, "right") / each.size for each in (now, before))
    largest = np.abs(np.subtract(*ranks)).max()
    return float(largest * np.sqrt(now.size * before.size / (now.size + before.size)))


def longer_than(now: FloatArray | IntArray, before: FloatArray | IntArray, scale: float) -> float:
    """Return a length that all added requests exceed.

    The length is infinite if the growth may be due to chance.

    The result is the length for which the number of longer requests exceeds the expected number by
    the most standard deviations. The expected number is the baseline's number, multiplied by the
    growth factor of the short requests (up to the baseline's median). For the arguments, see
    `were_added`.
    """
    if not min(now.size, before.size):
        return inf
    now, before = _sorted(now), _sorted(before)
    lengths = np.append(now[np.append(now[1:] != now[:-1], True)][::-1], 0)
    excess = excess_above(lengths, now, before, scale)
    return float(lengths[np.argmax(excess)]) if excess.max() > MIN_EXCESS else inf


def excess_above(
    lengths: FloatArray | IntArray,
    now: FloatArray | IntArray,
    before: FloatArray | IntArray,
    scale: float,
) -> FloatArray:
    """The excess of the number of requests above each length (see `longer_than`).

    The unit is the standard deviation of a difference of Poisson counts."""
    median = np.median(before)
    ordinary = [max(int((each <= median).sum()), 1) for each in (now, before)]
    growth = max(ordinary[0] / ordinary[1], scale)
    above, before_above = _number_above(now, lengths), _number_above(before, lengths)
    expected = growth * before_above
    # Given the sum of the two counts, the count in the window is binomial.
    of_counts = growth * (above + before_above)
    of_growth = expected**2 * sum(1.0 / each for each in ordinary)
    return np.asarray((above - expected) / np.sqrt(np.maximum(of_counts + of_growth, 1.0)))


def _number_above(values: FloatArray | IntArray, lengths: FloatArray | IntArray) -> IntArray:
    return np.asarray(values.size - np.searchsorted(_sorted(values), lengths, "right"))


def _sorted(values: FloatArray | IntArray) -> FloatArray:
    # This method is quick for values that are already sorted, and most of these values are.
    return np.sort(values.astype(np.float64, copy=False), kind="stable")
