"""Find requests that repeat an aborted request: the client gave up and sent the same prompt again.

Pure. A repetition has the same tenant, model, adapter and prompt length as the aborted request. It
arrives shortly after the abort. The number of repetitions that is expected by chance is subtracted.
"""

from typing import Final, NamedTuple

import numpy as np

from diagnosis.evidence.cached import cached_per_case
from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.demand import MIN_SHARE
from diagnosis.inputs.requests import MIN_REQUESTS, BoolArray, IntArray, Requests

_AGAIN_US: Final = 2_000_000
"""Maximum time from an abort to the repeated request, in microseconds. Source: INITIAL_RETRY_DELAY
of the OpenAI client, doubled once."""
_NOTICED_US: Final = 250_000
"""Maximum delay, in microseconds, until the server notices that a client disconnected."""
_SAME_AGE: Final = 0.1
"""Two aborted requests have the same timeout if their ages differ by at most this ratio. In
simulated retry storms, 99 % of the ages differ from the median age by at most 2 %."""
_MAX_AGES: Final = 0.5
"""Minimum share of the repeated requests that were aborted at about the median age. Clients with a
timeout abort all requests at the same age. Users abort at any age. In five simulated retry storms,
the share was 1."""


class Retries(NamedTuple):
    """The requests of a time range that repeat an aborted request."""

    per_s: float
    share: float
    """The share of the range's requests that repeat an aborted request."""
    age_s: float | None
    """The median age, in seconds, at which repeated requests were aborted."""
    same_age: float
    """The share of the repeated requests that were aborted at about the age `age_s`."""
    number: float
    tenant: str | None
    """The tenant that sent nearly all of the repeated requests, if there is one."""


NO_RETRIES: Final = Retries(0.0, 0.0, None, 0.0, 0.0, None)


@cached_per_case
def retries(case: DiagnosisCase) -> tuple[Retries, Retries]:
    """The repeated requests in the baseline and in the hot blocks."""
    return (
        repeated_requests(case.before, case.baseline_observed_s),
        repeated_requests(case.hot_requests, case.hot_s),
    )


@cached_per_case
def first_requests(case: DiagnosisCase) -> tuple[Requests, Requests]:
    """Return the requests of the baseline, and those of the hot blocks. In a retry storm, repeated
    requests are omitted."""
    if not retries_share(case):
        return case.before, case.hot_requests
    return _without_repeated(case.before), _without_repeated(case.hot_requests)


@cached_per_case
def retries_share(case: DiagnosisCase) -> float:
    """The share of repeated requests in the growth of the request rate.

    Return 0 if clients have no common timeout."""
    if case.demand.log_fleet <= 0:
        return 0.0
    before, now = retries(case)
    if now.number < MIN_REQUESTS or now.same_age < _MAX_AGES:
        return 0.0
    grown = case.demand.fleet_now_per_s - case.demand.fleet_before_per_s
    return min(max((now.per_s - before.per_s) / grown, 0.0), 1.0)


def repeated_requests(requests: Requests, seconds: float) -> Retries:
    """Return the requests of a time range whose clients had aborted the same request before."""
    repeats = _repeated(requests)
    if repeats is None or not repeats.again.size:
        return NO_RETRIES
    ages_s = repeats.requests.number("e2e_s")[repeats.first]
    number = max(repeats.again.size - _by_chance(repeats, seconds), 0.0)
    age_s = float(np.median(ages_s))
    same = float((np.abs(ages_s - age_s) <= _SAME_AGE * age_s).mean())
    tenant = _tenant(repeats.requests, repeats.again)
    share = number / len(requests)
    return Retries(number / max(seconds, 1.0), share, age_s, same, number, tenant)


def _without_repeated(requests: Requests) -> Requests:
    repeats = _repeated(requests)
    if repeats is None:
        return requests
    first = np.ones(len(requests), dtype=bool)
    first[repeats.place[repeats.again]] = False
    return requests.rows(first)


def _aborted(requests: Requests) -> BoolArray:
    taken_s = np.nan_to_num(requests.number("e2e_s"))
    gone = requests.label("outcome").is_value("abort")
    return np.asarray(gone & (taken_s > 2 * _NOTICED_US / 1e6))


def _keys(requests: Requests) -> IntArray:
    """A key for each request: (n,).

    The key consists of tenant, model, adapter and prompt length."""
    found = np.nan_to_num(requests.number("prompt_tokens"), nan=-1.0).astype(np.int64)
    for name in ("tenant", "model", "lora"):
        label = requests.label(name)
        found = found * (len(label.values) + 1) + label.codes + 1
    return found


class _Repeats(NamedTuple):
    """The repetitions of aborted requests.

    m requests have the key of an aborted request. There are r pairs of an aborted request and its
    repetition.
    """

    requests: Requests
    place: IntArray
    """Rows of the m requests among all requests of the range: (m,)."""
    key: IntArray
    """The key of each of the m requests, as a consecutive number: (m,)."""
    aborted: BoolArray
    """Whether each of the m requests was aborted: (m,)."""
    first: IntArray
    """Rows, in `requests`, of the aborted requests that were repeated: (r,). `again` contains the
    rows of the repetitions."""
    again: IntArray


def _repeated(requests: Requests) -> _Repeats | None:
    """Find the repetitions, at most one per aborted request.

    Return None if fewer than `MIN_REQUESTS` requests were aborted."""
    aborted = _aborted(requests)
    if aborted.sum() < MIN_REQUESTS:
        return None
    key = _keys(requests)
    place = np.flatnonzero(np.isin(key, key[aborted]))
    requests, aborted = requests.rows(place), aborted[place]
    _, key = np.unique(key[place], return_inverse=True)
    at_us = (requests.received_unix_ns - requests.received_unix_ns.min()) // 1000
    taken_us = np.nan_to_num(requests.number("e2e_s")) * 1e6
    span_us = int(at_us.max()) + int(taken_us.max()) + 2 * _AGAIN_US
    at = key * span_us + at_us
    order = np.argsort(at, kind="stable")
    first = np.flatnonzero(aborted)
    left = at[first] + taken_us[first].astype(np.int64)
    after = np.searchsorted(at[order], left - _NOTICED_US)
    known = after < order.size
    first, left, again = first[known], left[known], order[after[known]]
    found = at[again] <= left + _AGAIN_US
    again, one = np.unique(again[found], return_index=True)
    return _Repeats(requests, place, key, aborted, first[found][one], again)


def _by_chance(repeats: _Repeats, seconds: float) -> float:
    """Return how many aborts are followed only by chance by a request with the same key.

    All requests that are not repetitions are assumed to arrive at random."""
    key = repeats.key
    kinds = int(key.max(initial=0)) + 1
    others = np.bincount(key, minlength=kinds) - np.bincount(key[repeats.again], minlength=kinds)
    per_s = others / max(seconds, 1.0)
    likely = 1.0 - np.exp(-per_s * (_AGAIN_US + _NOTICED_US) / 1e6)
    return float(likely[key[repeats.aborted]].sum())


def _tenant(requests: Requests, again: IntArray) -> str | None:
    tenant = requests.label("tenant")
    counts = np.bincount(tenant.codes[again][tenant.codes[again] >= 0], minlength=1)
    most = int(counts.argmax())
    return tenant.values[most] if tenant.values and counts[most] >= MIN_SHARE * again.size else None
