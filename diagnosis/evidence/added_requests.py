"""Distinguish requests that became longer from long requests that were added.

Pure. In both cases the mean length grows. If requests became longer, there are fewer short ones. If
long requests were added, there are as many short ones as before.
"""

from math import inf, log
from typing import Final

import numpy as np

from diagnosis.evidence.cached import cached_per_case
from diagnosis.evidence.driving_tenant import driving_tenant
from diagnosis.growth.case import Case
from diagnosis.growth.demand import grew
from diagnosis.inputs.requests import FloatArray, IntArray, Requests

LEAST_REQUESTS: Final = 20
"""Minimum number of requests in each range to compare lengths. With fewer requests, the deciles are
not known."""

LEAST_EXCESS: Final = 3.1
"""Minimum of the largest excess over all lengths, in standard deviations. Among 3,000 simulated
pairs of ranges with the same lengths and different rates, 1 % had a larger one."""


@cached_per_case
def prompts_were_added(case: Case) -> bool:
    """Return whether requests with long prompts were added, and not all prompts became longer."""
    return _added(case, "prompt_tokens")


@cached_per_case
def outputs_were_added(case: Case) -> bool:
    """Return whether requests with long outputs were added, and not all outputs became longer."""
    return _added(case, "output_tokens")


def _added(case: Case, tokens: str) -> bool:
    before, now = _lengths(case, tokens)
    scale = case.hot_s / case.baseline_observed_s
    if not were_added(now, before, scale):
        return False
    return grew(before, now) or longer_than(now, before, scale) < inf


@cached_per_case
def long_prompts_fill_steps(case: Case) -> bool:
    """Return whether the added long prompts fill several steps.

    They do if the number of prompts above the size of a step grew beyond chance, or if it grew more
    than the number of shorter prompts. The size of a step is the most prompt tokens that one step
    computed for other requests.
    """
    before, now = _lengths(case, "prompt_tokens")
    largest_step = case.hot_requests.number("others_prefill_tokens_max")
    known = largest_step[np.isfinite(largest_step)]
    if min(before.size, now.size) < LEAST_REQUESTS or not known.size:
        return True
    step = float(known.max())
    scale = case.hot_s / case.baseline_observed_s
    several = excess_above(np.array([step]), now, before, scale)
    shorter = np.unique(now[now <= step])
    one = excess_above(shorter, now[now <= step], before[before <= step], scale)
    return bool(several[0] >= min(LEAST_EXCESS, one.max(initial=0.0)))


def without_added(case: Case, tenant: str) -> float:
    """Return the growth ratio of a tenant's request rate, without the long requests that were
    added."""
    scale = case.hot_s / case.baseline_observed_s
    found = []
    for tokens in ("prompt_tokens", "output_tokens"):
        before, now = (
            _of_tenant(each, tokens, tenant) for each in (case.before, case.hot_requests)
        )
        bound = longer_than(now, before, scale) if were_added(now, before, scale) else inf
        found.append((now <= bound).sum() / max((before <= bound).sum() * scale, 1.0))
    return float(min(found))


def _lengths(case: Case, tokens: str) -> tuple[FloatArray, FloatArray]:
    """Return the lengths before and now, of the tenant that drives the growth if there is one."""
    tenant = driving_tenant(case, tokens)
    before, now = (_of_tenant(each, tokens, tenant) for each in (case.before, case.hot_requests))
    return before, now


def _of_tenant(requests: Requests, tokens: str, tenant: str | None) -> FloatArray:
    lengths = requests.number(tokens)
    known = np.isfinite(lengths)
    if tenant is not None:
        known &= requests.label("tenant").is_value(tenant)
    return lengths[known]


def were_added(now: FloatArray | IntArray, before: FloatArray | IntArray, scale: float) -> bool:
    """Return whether long requests were added, and not all requests became longer.

    If they became longer, their total number explains the growth of the rate. If long ones were
    added, the number of ordinary requests does, which are at most as long as the median before. The
    explanation with the smaller change of the rate is chosen.

    Args:
        now: the lengths in the window.
        before: the lengths in the baseline.
        scale: the window's length in seconds, divided by the baseline's.
    """
    if min(now.size, before.size) < LEAST_REQUESTS:
        return False
    median = np.median(before)
    ordinary = (now <= median).sum() / ((before <= median).sum() * scale)
    total = now.size / (before.size * scale)
    return bool(ordinary > 0 and abs(log(ordinary)) < abs(log(total)))


def longer_than(now: FloatArray | IntArray, before: FloatArray | IntArray, scale: float) -> float:
    """Return the length above which the added requests are; infinite if the excess may be chance.

    The expected number of requests is that of the baseline, multiplied by the growth of the number
    of requests up to the baseline's median length. The result is the length above which the excess
    over the expected number is least likely to be chance. For the arguments, see `were_added`.
    """
    lengths = np.concatenate([np.unique(now)[::-1], [0]])
    excess = excess_above(lengths, now, before, scale)
    return float(lengths[np.argmax(excess)]) if excess.max() > LEAST_EXCESS else inf


def excess_above(
    lengths: FloatArray | IntArray,
    now: FloatArray | IntArray,
    before: FloatArray | IntArray,
    scale: float,
) -> FloatArray:
    """Return the excess of requests above each length over the expected number, in standard
    deviations of the difference of Poisson counts. See `longer_than`."""
    median = np.median(before)
    ordinary = [max(int((each <= median).sum()), 1) for each in (now, before)]
    growth = max(ordinary[0] / ordinary[1], scale)
    above, before_above = _above(now, lengths), _above(before, lengths)
    expected = growth * before_above
    # With the sum of the two counts fixed, the count now is binomial.
    of_counts = growth * (above + before_above)
    of_growth = expected**2 * sum(1.0 / each for each in ordinary)
    return np.asarray((above - expected) / np.sqrt(np.maximum(of_counts + of_growth, 1.0)))


def _above(values: FloatArray | IntArray, lengths: FloatArray | IntArray) -> IntArray:
    return np.asarray(values.size - np.searchsorted(np.sort(values), lengths, "right"))
