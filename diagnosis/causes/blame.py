"""Who is to blame for a queue: what raised the demand for what the queue waits for.

Pure. A queue's own cause is mostly elsewhere: more requests, longer prompts, fewer hits, slower
steps. What multiplies is told by logarithms, and each driver gets its share of their sum. Where
nothing grew, the server was at its capacity already: that is the load's.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from math import log
from typing import Final, TypeVar

import numpy as np

from diagnosis.case import Case
from diagnosis.requests import FloatArray, Requests
from diagnosis.terms import TERM
from diagnosis.work import uncached_tokens

_Found = TypeVar("_Found")

LOAD, FLOOD, SKEW = "load", "flood", "skew"
PROMPTS, MISSES, OUTPUTS, PACE = "prompts", "misses", "outputs", "pace"
STALL, PREEMPTION, DRAFTS = "stall", "preemption", "drafts"
FRONTEND, ADAPTERS, BLOCKS = "frontend", "adapters", "blocks"

MORE_WORK: Final = (LOAD, PROMPTS, OUTPUTS)
"""The drivers that fill a batch with more to do; the others keep the same work in it longer, or
send it elsewhere."""

TRAFFIC: Final = (*MORE_WORK, FLOOD, SKEW)
"""What no server does to itself."""

Blame = Mapping[str, float]
"""By driver, shares that sum to 1."""

_NOISE: Final = 0.08
"""A logarithm that an ordinary hour shows by chance."""

_FLOOD_SHARE: Final = 0.6
_FLOOD_RISE: Final = 1.5
_FLOOD_SHARE_RISE: Final = 1.15
_OTHERS_GREW: Final = 1.3
"""Times the baseline's rate: a flood comes in minutes, of which each is a little busier or not."""
_FEWER_ACCEPTED: Final = 0.9
"""Times the baseline's acceptance."""
_WAITS: Final = 0.1
"""Of the growth, how much is waiting where others wait."""
_WAITED_FOR: Final = (
    *("frontend", "queue_seats", "queue_budget", "queue_kv", "queue_step", "queue_unsplit"),
)
_SKEW: Final = 0.15
_QUICK: Final = 0.05
_FEWEST: Final = 20
"""Requests, for their quickest twentieth to tell anything."""


def _once(find: Callable[[Case], _Found]) -> Callable[[Case], _Found]:
    """Found out once for a case, however many detectors ask."""

    @wraps(find)
    def found(case: Case) -> _Found:
        if find.__name__ not in case.known:
            case.known[find.__name__] = find(case)
        result: _Found = case.known[find.__name__]
        return result

    return found


@_once
def for_prefill(case: Case) -> Blame:
    """Of prefill work that stood in the way: rate × prompt × share not cached × pace."""
    demand = case.demand
    return _shares(
        case,
        demand.log_victims,
        {
            PROMPTS: demand.log_prompt,
            MISSES: demand.log_uncached,
            PACE: _log_pace(case.machine_pace),
        },
    )


@_once
def for_frontend(case: Case) -> Blame:
    """Of the API server, which takes one thing after the other: rate × prompt × what it takes for
    each token of it, as the requests show that waited for nobody there."""
    demand = case.demand
    prompts = log(max(demand.prompt_now_tokens, 1.0) / max(demand.prompt_before_tokens, 1.0))
    before, now = (_quick_s_a_token(requests) for requests in (case.before, case.hot_requests))
    slower = log(now / before) if before and now else 0.0
    return _shares(
        case,
        demand.log_victims,
        {PROMPTS: prompts if case.workload.prompts_grew else 0.0, FRONTEND: slower},
    )


def _quick_s_a_token(requests: Requests) -> float | None:
    """What the front end takes for a token of a prompt, where nothing else is in its way."""
    each_s = requests.number("frontend_s") / np.maximum(requests.number("prompt_tokens"), 1.0)
    known = each_s[np.isfinite(each_s) & (each_s > 0)]
    return float(np.quantile(known, _QUICK)) if known.size >= _FEWEST else None


@_once
def for_adapters(case: Case) -> Blame:
    """Of places for adapters: more kinds of them × rate × time that each is in use."""
    before, now = (_adapters(requests) for requests in (case.before, case.hot_requests))
    more = log(now / before) if before and now else 0.0
    seats = dict(for_seats(case))
    # Loading adapters stops the engine: that it is in use for longer is the adapters' own doing.
    own = seats.pop(STALL, 0.0)
    if more <= _NOISE:
        return _summing_to_one({**seats, ADAPTERS: own})
    rest = 1.0 - own
    of_seats = beside(case, more)
    found = {name: share * of_seats for name, share in seats.items()}
    found[ADAPTERS] = rest * (1.0 - of_seats) + own
    return _summing_to_one(found)


@_once
def for_blocks(case: Case) -> Blame:
    """Of the KV cache: rate × time that a request keeps its blocks × tokens that it holds alone,
    over the blocks there are."""
    before_tokens, now_tokens = _held_tokens(case.before), _held_tokens(case.hot_requests)
    more = log(now_tokens / before_tokens) if before_tokens and now_tokens else 0.0
    demand = case.demand
    tokens = {
        PROMPTS: max(demand.log_prompt, 0.0) if case.workload.prompts_grew else 0.0,
        MISSES: max(demand.log_uncached, 0.0),
        OUTPUTS: max(demand.log_output, 0.0) if case.workload.outputs_grew else 0.0,
    }
    whole = sum(tokens.values())
    logs = {each: max(more, 0.0) * value / whole for each, value in tokens.items() if whole > 0}
    longer = _log_residence(case)
    for name, share in for_seats(case).items():
        logs[name] = logs.get(name, 0.0) + longer * share
    logs = {name: value for name, value in logs.items() if value > _NOISE}
    if demand.log_victims > _NOISE:
        for name, share in _of_rate(case).items():
            logs[name] = logs.get(name, 0.0) + share * demand.log_victims
    # More of the same than the cache can hold is what its exhaustion means.
    logs[BLOCKS] = max(_log_of_fewer_blocks(case, more), _NOISE) + logs.pop(LOAD, 0.0)
    return _summing_to_one(logs)


def _held_tokens(requests: Requests) -> float | None:
    """What a request keeps in the cache for itself alone, in the mean and halfway through."""
    held = uncached_tokens(requests) + np.nan_to_num(requests.number("output_tokens")) / 2.0
    known = held[np.isfinite(held)]
    return float(known.mean()) if known.size else None


def _log_of_fewer_blocks(case: Case, more: float) -> float:
    """Of the tokens that there was room for, by how full the cache was with so many running."""
    (running_before, running_now), (used_before, used_now) = (
        case.mean("running"),
        case.mean("kv_usage_ratio"),
    )
    if not (running_before and running_now and used_before and used_now):
        return 0.0
    return max(log(running_before / used_before) - log(running_now / used_now) - more, 0.0)


def beside(case: Case, log_of_another: float) -> float:
    """What is left to the growth of demand where capacity fell besides, by that logarithm."""
    growth = max(case.demand.log_victims, 0.0) + _log_residence(case)
    whole = growth + log_of_another
    return growth / whole if whole > 0 else 1.0


def _log_residence(case: Case) -> float:
    before_s, now_s = _residence_s(case)
    return max(log(now_s / before_s), 0.0) if before_s > 0 and now_s > 0 else 0.0


def _adapters(requests: Requests) -> float | None:
    """How many adapters are asked for, as many as would be if all were asked for alike, times
    the share of requests that ask for one."""
    lora = requests.label("lora")
    counts = np.bincount(lora.codes[lora.codes >= 0], minlength=len(lora.values))
    counts = counts[counts > 0]
    if not counts.size:
        return None
    shares = counts / counts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()) * counts.sum() / max(len(requests), 1))


@_once
def for_step(case: Case) -> Blame:
    """Of the step under way, that had to end first: what made the ordinary step longer."""
    body = case.body

    def grown(*terms: str) -> float:
        return max(0.0, float(sum(body[TERM[term]] for term in terms)))

    others = grown("prefill_others_prefill", "decode_others_prefill")
    found = {driver: others * share for driver, share in for_prefill(case).items()}
    found[STALL] = grown("prefill_stall", "decode_stall")
    found[PACE] = found.get(PACE, 0.0) + grown("prefill_own", "decode_own")
    return _summing_to_one(found)


@_once
def for_seats(case: Case) -> Blame:
    """Of places in the batch: rate × time that a request keeps its place."""
    before_s, now_s = _residence_s(case)
    longer = {}
    if 0 < before_s < now_s:
        # What the others' decodes added is the batch's growth itself: it blames nobody.
        of_growth = log(now_s / before_s) / (now_s - before_s)
        longer = {name: grown_s * of_growth for name, grown_s in _why_longer_s(case).items()}
    return _shares(case, case.demand.log_victims, longer)


@_once
def flooded(case: Case) -> bool:
    """Whether one tenant alone makes the traffic grow, and others wait behind it."""
    tenant = case.demand.tenant
    return (
        tenant is not None
        and tenant.share_of_growth >= _FLOOD_SHARE
        and tenant.now_per_s >= _FLOOD_RISE * tenant.before_per_s
        and case.demand.log_fleet > _NOISE
        and _others_wait(case)
        and tenant.now_per_s / max(case.demand.fleet_now_per_s, 1e-9)
        > _FLOOD_SHARE_RISE * tenant.before_per_s / max(case.demand.fleet_before_per_s, 1e-9)
    )


def _others_wait(case: Case) -> bool:
    """A tenant's growth that nobody waits behind is a fuller batch, and no flood."""
    waits = case.grown_s(*_WAITED_FOR)
    if waits > _WAITS * max(float(case.terms.sum(axis=1).mean()), 0.0):
        return waits > 0
    before, now = case.mean("waiting")
    return now is not None and now > max(1.0, 2.0 * (before or 0.0))


@_once
def few_long_prompts(case: Case) -> bool:
    """Whether prompts grew by a few very long ones, rather than all of them."""
    before = _known(case.before.number("prompt_tokens"))
    now = _known(case.hot_requests.number("prompt_tokens"))
    if before.size < 10 or now.size < 10:
        return False
    middle = log(max(np.median(now), 1.0) / max(np.median(before), 1.0))
    mean = log(max(now.mean(), 1.0) / max(before.mean(), 1.0))
    return middle < mean / 2.0


def _known(values: FloatArray) -> FloatArray:
    return values[np.isfinite(values)]


def _shares(case: Case, log_rate: float, others: Mapping[str, float]) -> Blame:
    logs = {name: value for name, value in others.items() if value > _NOISE}
    rate = max(log_rate, 0.0)
    if rate > _NOISE or not logs:
        for name, share in _of_rate(case).items():
            logs[name] = logs.get(name, 0.0) + share * max(rate, _NOISE)
    return _summing_to_one(logs)


def _of_rate(case: Case) -> Blame:
    """The rate's growth: of the fleet's, one tenant's or all tenants', and of the skew's."""
    demand = case.demand
    skew = 0.0
    if demand.log_skew > _SKEW and demand.log_victims > 0:
        skew = min(1.0, demand.log_skew / demand.log_victims)
    if not flooded(case):
        return {SKEW: skew, LOAD: 1.0 - skew}
    of_all = _of_all_tenants(case)
    return {SKEW: skew, FLOOD: (1.0 - skew) * (1.0 - of_all), LOAD: (1.0 - skew) * of_all}


def _of_all_tenants(case: Case) -> float:
    """Of the rate's growth, what the other tenants brought beside one's flood."""
    demand, tenant = case.demand, case.demand.tenant
    if tenant is None:
        return 1.0
    before = demand.fleet_before_per_s - tenant.before_per_s
    now = demand.fleet_now_per_s - tenant.now_per_s
    if before <= 0 or now <= _OTHERS_GREW * before:
        return 0.0
    return 1.0 - tenant.share_of_growth


def _log_pace(pace: float | None) -> float:
    return log(pace) if pace is not None and pace > 0 else 0.0


def _residence_s(case: Case) -> tuple[float, float]:
    return _engine_s(case.before), _engine_s(case.hot_requests)


def _engine_s(requests: Requests) -> float:
    """How long a request is in the batch, in the mean."""
    seconds = np.nan_to_num(requests.number("prefill_s")) + np.nan_to_num(
        requests.number("decode_s")
    )
    return float(seconds.mean()) if seconds.size else 0.0


def _why_longer_s(case: Case) -> dict[str, float]:
    """What made a request keep its place longer, by the ordinary request's own terms: seconds."""
    body = case.body

    def grown(*terms: str) -> float:
        return max(0.0, float(sum(body[TERM[term]] for term in terms)))

    prefill = for_prefill(case)
    others = grown("prefill_others_prefill", "decode_others_prefill")
    found = {driver: others * share for driver, share in prefill.items()}
    for driver, terms in {
        PROMPTS: ("prefill_longer",),
        MISSES: ("prefill_uncached",),
        OUTPUTS: ("decode_longer",),
        PACE: ("prefill_own",),
        STALL: ("prefill_stall", "decode_stall"),
        PREEMPTION: ("prefill_preempted", "decode_preempted"),
    }.items():
        found[driver] = found.get(driver, 0.0) + grown(*terms)
    of_drafts = drafts_share(case)
    found[PACE] += grown("decode_own") * (1.0 - of_drafts)
    found[DRAFTS] = grown("decode_own") * of_drafts
    return found


def drafts_share(case: Case) -> float:
    """Of slower tokens, how much is fewer drafts being accepted: what is slower beyond the pace
    that prefill shows too; 0 where as many are accepted as before."""
    before, now = case.ratio("accepted_tokens_total", "draft_tokens_total")
    prefill, decode = case.pace
    if before is None or now is None or now > _FEWER_ACCEPTED * before or decode is None:
        return 0.0
    if decode <= 1.02:
        return 0.0
    return max(0.0, 1.0 - log(max(prefill or 1.0, 1.0)) / log(decode))


def _summing_to_one(found: Mapping[str, float]) -> Blame:
    whole = sum(found.values())
    return {name: value / whole for name, value in found.items()} if whole > 0 else {}
