"""Divide the growth of each type of wait among its drivers. A driver is a change that raised the
demand for a resource.

Pure. The demand is a product of factors, for example rate × prompt length. Each factor that grew is
a driver. The share of a driver is the logarithm of its growth, divided by the sum of these
logarithms over all drivers. If no factor grew, the wait remains unexplained.
"""

from collections.abc import Mapping
from math import log
from typing import Final

import numpy as np

from diagnosis.evidence.added_requests import (
    outputs_were_added,
    prompts_were_added,
    without_added,
)
from diagnosis.evidence.cached import cached_per_case
from diagnosis.evidence.outside_restarts import log_skew_outside_restarts
from diagnosis.evidence.restarts import hangs_in_window, restarts
from diagnosis.evidence.retries import retries_share
from diagnosis.evidence.stalls import steadiness, surplus_ratio
from diagnosis.evidence.traffic_growth import (
    added_by_others,
    all_tenants_share,
    first_rates,
    flooded,
)
from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.demand import MIN_RISE, NOISE, grew
from diagnosis.growth.own_work import uncached_tokens
from diagnosis.growth.terms import TERM_INDEX
from diagnosis.inputs.requests import MIN_REQUESTS, FloatArray, Requests

LOAD, FLOOD, SKEW, AWAY, RETRIES = "load", "flood", "skew", "away", "retries"
PROMPTS, MISSES, OUTPUTS, PACE = "prompts", "misses", "outputs", "pace"
STALL, PREEMPTION, DRAFTS = "stall", "preemption", "drafts"
FRONTEND, ADAPTERS, BLOCKS, LINK = "frontend", "adapters", "blocks", "link"
ENCODER = "encoder"

MORE_WORK: Final = (LOAD, PROMPTS, OUTPUTS)
"""Changes of the demand (drivers) that add work to a batch."""

TRAFFIC: Final = (*MORE_WORK, FLOOD, SKEW, RETRIES)
"""Changes of the demand (drivers) that come from outside the server."""

OWN_PREFILL: Final = ("prefill_own", "prefill_longer", "prefill_uncached")
"""The terms of a request's own prefill, with the encoder's time."""

DriverShares = Mapping[str, float]
"""Maps each driver to its share in the growth of a wait. The shares sum to 1. The mapping is empty
if no driver was found."""

_QUICK: Final = 0.05
"""The time per token without waiting is estimated by this quantile of all times per token, because
the fastest requests and transfers did not wait."""


@cached_per_case
def for_prefill(case: DiagnosisCase) -> DriverShares:
    """Divide the growth of the prefill work among its drivers.

    The work is rate × prompt length × uncached share × slowdown.
    """
    demand = case.demand
    return _shares(
        case,
        demand.log_slow_servers + demand.log_new_traffic_misses,
        {
            PROMPTS: demand.log_prompt,
            MISSES: demand.log_uncached,
            PACE: _log_pace(case.machine_slowdown),
            ENCODER: _log_of_encoder(case),
            STALL: _log_of_stalls(case),
            DRAFTS: _log_of_fewer_accepted(case),
        },
    )


def _log_of_encoder(case: DiagnosisCase) -> float:
    """Return log(own / (own − added)). `own` is the mean time of a request's own prefill. `added`
    is the growth of the encoder's mean time."""
    own_s = case.hot_requests.mean("prefill_own_s") or 0.0
    added_s = encoder_added_s(case)
    return log(own_s / (own_s - added_s)) if 0.0 < added_s < own_s else 0.0


@cached_per_case
def encoder_added_s(case: DiagnosisCase) -> float:
    """The growth of the encoder's mean seconds per request.

    Return 0 if the growth may be due to chance, or if the time in the baseline is unknown."""
    before, whole = case.before.number("encoder_s"), case.now.number("encoder_s")
    # Test the growth over the whole window, because the hot blocks contain too few images.
    if not grew(before, whole):
        return 0.0
    return max((case.hot_requests.mean("encoder_s") or 0.0) - float(np.nanmean(before)), 0.0)


@cached_per_case
def encoder_share(case: DiagnosisCase) -> FloatArray:
    """Return the encoder's share in the growth of each slow request's own prefill: (n,). A share is
    0 if the encoder's time or the prefill did not grow."""
    none = np.zeros(len(case.slow))
    usual_s = case.usual.mean("encoder_s")
    if usual_s is None:
        return none
    grown_s = np.nan_to_num(case.slow.number("encoder_s")) - usual_s
    own_s = case.terms[:, [TERM_INDEX[term] for term in OWN_PREFILL]].sum(axis=1)
    if grown_s.mean() <= 0 or own_s.mean() <= 0:
        return none
    share = np.divide(grown_s, own_s, out=none, where=own_s > 0)
    return np.asarray(np.clip(share, 0.0, 1.0))


def _log_of_stalls(case: DiagnosisCase) -> float:
    """Return log(step time with stalls / step time without stalls).

    Stalls make the batch fuller, because requests that arrive during a stall start together.
    """
    surplus = None if steadiness(case) is None else surplus_ratio(case)
    return log(1.0 + surplus) if surplus is not None and surplus > 0 else 0.0


@cached_per_case
def for_frontend(case: DiagnosisCase) -> DriverShares:
    """Divide the growth of the API server's work among its drivers.

    The work is rate × prompt length × time per prompt token.
    """
    demand = case.demand
    prompts = log(max(demand.prompt_now_tokens, 1.0) / max(demand.prompt_before_tokens, 1.0))
    before, now = (_quick_s_a_token(requests) for requests in (case.before, case.hot_requests))
    slower = log(now / before) if before and now else 0.0
    return _shares(
        case,
        demand.log_slow_servers,
        {PROMPTS: prompts if case.workload.prompts_grew else 0.0, FRONTEND: slower},
    )


def _quick_s_a_token(requests: Requests) -> float | None:
    """Return the API server's seconds per prompt token, from requests that did not wait there.

    Return None if there are too few such requests."""
    each_s = requests.number("frontend_s") / np.maximum(requests.number("prompt_tokens"), 1.0)
    known = each_s[np.isfinite(each_s) & (each_s > 0)]
    return float(np.quantile(known, _QUICK)) if known.size >= MIN_REQUESTS else None


@cached_per_case
def for_adapters(case: DiagnosisCase) -> DriverShares:
    """Divide the growth of the demand for adapter slots among its drivers.

    The demand is adapters in use × rate × time that a request uses its adapter.
    """
    before, now = (_adapters(requests) for requests in (case.before, case.hot_requests))
    more = log(now / before) if before and now else 0.0
    seats = dict(for_seats(case))
    # The engine stops while it loads an adapter. So if stalls lengthen the time for which requests
    # use their adapters, the stalls are attributed to the adapters.
    own = seats.pop(STALL, 0.0)
    if more <= NOISE:
        return _summing_to_one({**seats, ADAPTERS: own})
    rest = 1.0 - own
    of_seats = demand_share(case, more)
    found = {name: share * of_seats for name, share in seats.items()}
    found[ADAPTERS] = rest * (1.0 - of_seats) + own
    return _summing_to_one(found)


@cached_per_case
def for_blocks(case: DiagnosisCase) -> DriverShares:
    """Divide the growth of the demand for KV blocks among its drivers.

    The demand is rate × time that a request keeps its blocks × own tokens per request / blocks.
    """
    demand, more = case.demand, _log_of_held_tokens(case)
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
    logs = {name: value for name, value in logs.items() if value > NOISE}
    if demand.log_slow_servers > NOISE:
        for name, share in _of_rate(case).items():
            logs[name] = logs.get(name, 0.0) + share * demand.log_slow_servers
    # If a growing load fills an unchanged cache, the cause is `kv_cache_exhausted`. So the driver
    # LOAD gets at most log(blocks before / blocks now). The rest of the load is added to the driver
    # BLOCKS.
    fewer, load = log_of_fewer_blocks(case), logs.pop(LOAD, 0.0)
    logs[LOAD] = min(load, fewer)
    logs[BLOCKS] = max(fewer, NOISE) + load - logs[LOAD]
    return _summing_to_one(logs)


def _log_of_held_tokens(case: DiagnosisCase) -> float:
    before, now = _held_tokens(case.before), _held_tokens(case.hot_requests)
    return log(now / before) if before and now else 0.0


def _held_tokens(requests: Requests) -> float | None:
    """Return the mean number of tokens of a request at the time when half of its output is
    generated.

    Cached prompt tokens are not counted, because other requests share their blocks."""
    tokens = uncached_tokens(requests) + np.nan_to_num(requests.number("output_tokens")) / 2.0
    known = tokens[np.isfinite(tokens)]
    return float(known.mean()) if known.size else None


@cached_per_case
def log_of_fewer_blocks(case: DiagnosisCase) -> float:
    """Return log(capacity before / capacity now) of the KV cache.

    Return 0 if the capacity did not fall. The capacity is computed from the cache usage and the
    tokens of the running requests."""
    (running_before, running_now), (used_before, used_now) = (
        case.mean("running"),
        case.mean("kv_usage_ratio"),
    )
    if not (running_before and running_now and used_before and used_now):
        return 0.0
    fell = log(running_before / used_before) - log(running_now / used_now)
    return max(fell - _log_of_held_tokens(case), 0.0)


def demand_share(case: DiagnosisCase, log_of_another: float) -> float:
    """Return the share of a wait that the growth of demand causes. A loss of capacity causes the
    rest. `log_of_another` is log(capacity before / capacity now)."""
    growth = max(case.demand.log_slow_servers, 0.0) + _log_residence(case)
    whole = growth + log_of_another
    return growth / whole if whole > 0 else 1.0


def _log_residence(case: DiagnosisCase) -> float:
    before_s, now_s = _residence_s(case)
    return max(log(now_s / before_s), 0.0) if before_s > 0 and now_s > 0 else 0.0


def _adapters(requests: Requests) -> float | None:
    """Return the effective number of adapters, multiplied by the share of requests that need an
    adapter.

    The effective number is exp(entropy of the adapters' shares of the requests)."""
    lora = requests.label("lora")
    counts = np.bincount(lora.codes[lora.codes >= 0], minlength=len(lora.values))
    counts = counts[counts > 0]
    if not counts.size:
        return None
    shares = counts / counts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()) * counts.sum() / max(len(requests), 1))


@cached_per_case
def for_link(case: DiagnosisCase) -> DriverShares:
    """Divide the growth of the demand for the network link among its drivers.

    The demand is rate × tokens fetched × time per token.

    The time per token is measured on the fastest transfers.
    """
    fetched, each_s = [], []
    for requests in (case.before, case.hot_requests):
        tokens = np.nan_to_num(requests.number("external_cached_tokens"))
        some = tokens > 0
        if some.sum() < MIN_REQUESTS:
            return {LINK: 1.0}
        fetched.append(float(tokens.mean()))
        loading_s = requests.number("kv_load_s")
        # Rows of older plugins do not report why a request was held back. For these rows, use the
        # whole held time.
        loading_s = np.where(np.isfinite(loading_s), loading_s, requests.number("queue_held_s"))
        of_each_s = np.nan_to_num(loading_s)[some] / tokens[some]
        each_s.append(float(np.quantile(of_each_s, _QUICK)))
    slower = log(each_s[1] / each_s[0]) if each_s[0] > 0 and each_s[1] > 0 else 0.0
    longer = log(fetched[1] / fetched[0]) if case.workload.prompts_grew else 0.0
    if max(slower, longer, case.demand.log_slow_servers) <= NOISE:
        return {LINK: 1.0}
    return _shares(case, case.demand.log_slow_servers, {PROMPTS: longer, LINK: slower})


@cached_per_case
def for_step(case: DiagnosisCase) -> DriverShares:
    """Divide the growth of the wait for the end of a step among its drivers.

    The share of a driver is proportional to the mean seconds that it adds to a request's prefill
    and decode. The means include fast requests.
    """
    body = case.body

    def grown(*terms: str) -> float:
        return max(0.0, float(sum(body[TERM_INDEX[term]] for term in terms)))

    others = grown("prefill_others_prefill", "decode_others_prefill")
    found = {driver: others * share for driver, share in for_prefill(case).items()}
    found[STALL] = grown("prefill_stall", "decode_stall")
    own = grown("prefill_own")
    encoder = min(encoder_added_s(case), own)
    found[ENCODER] = found.get(ENCODER, 0.0) + encoder
    found[PACE] = found.get(PACE, 0.0) + own - encoder + grown("decode_own")
    return _summing_to_one(found)


@cached_per_case
def for_seats(case: DiagnosisCase) -> DriverShares:
    """Divide the growth of the demand for slots in the batch among its drivers.

    The demand is rate × time that a request keeps its slot.
    """
    before_s, _ = _residence_s(case)
    # The decodes of more concurrent requests are not a driver. More concurrent decodes are the
    # growth itself, and the drivers explain this growth.
    longer = _why_longer_s(case)
    whole_s = sum(longer.values())
    if before_s > 0 and whole_s > 0:
        of_growth = log((before_s + whole_s) / before_s) / whole_s
        longer = {name: grown_s * of_growth for name, grown_s in longer.items()}
    else:
        longer = {}
    return _shares(case, case.demand.log_slow_servers, longer)


def _shares(case: DiagnosisCase, log_rate: float, others: Mapping[str, float]) -> DriverShares:
    # Any growth of the encoder's time is used, because `encoder_added_s` has already excluded
    # growth by chance.
    noise = {ENCODER: 0.0}
    logs = {name: value for name, value in others.items() if value > noise.get(name, NOISE)}
    if log_rate > NOISE:
        for name, share in _of_rate(case).items():
            logs[name] = logs.get(name, 0.0) + share * log_rate
    return _summing_to_one(logs)


def _of_rate(case: DiagnosisCase) -> DriverShares:
    """Divide the growth of the request rate among its drivers.

    The growth of the fleet's rate is attributed to one tenant, to all tenants, or to repeated
    requests. The growth of the slow servers' share of the rate is attributed to the router, or to a
    server that restarts or hangs.
    """
    demand = case.demand
    skew = away = 0.0
    if demand.log_skew > NOISE and demand.log_slow_servers > 0:
        skew = min(1.0, demand.log_skew / demand.log_slow_servers)
        if restarts(case) or hangs_in_window(case):
            routed = max(log_skew_outside_restarts(case), 0.0) / demand.log_skew
            away = skew * (1.0 - min(routed, 1.0))
    of_fleet = 1.0 - skew
    of_one = _driver_of_one_tenant(case)
    of_all = all_tenants_share(case) if of_one != LOAD else 1.0
    repeated = of_fleet * retries_share(case)
    of_fleet -= repeated
    found = {SKEW: skew - away, AWAY: away, RETRIES: repeated}
    rates = first_rates(case)
    for driver, tokens in ((PROMPTS, "prompt_tokens"), (OUTPUTS, "output_tokens")):
        added = added_by_others(case)[tokens] / max(rates.now_per_s - rates.before_per_s, 1e-9)
        found[driver] = of_fleet * min(added, 1.0)
    of_fleet = max(of_fleet - found[PROMPTS] - found[OUTPUTS], 0.0)
    found[LOAD] = of_fleet * of_all
    found[of_one] = found.get(of_one, 0.0) + of_fleet * (1.0 - of_all)
    return found


def _driver_of_one_tenant(case: DiagnosisCase) -> str:
    """Return what changed most in the traffic of the tenant whose rate grew most.

    The result is a flood, longer prompts, longer outputs or more load.
    """
    if flooded(case):
        return FLOOD
    tenant = first_rates(case).tenant
    if tenant is None or without_added(case, tenant.tenant) >= MIN_RISE:
        return LOAD
    if prompts_were_added(case):
        return PROMPTS
    return OUTPUTS if outputs_were_added(case) else LOAD


def _log_pace(pace: float | None) -> float:
    return log(pace) if pace is not None and pace > 0 else 0.0


def _residence_s(case: DiagnosisCase) -> tuple[float, float]:
    return _engine_s(case.before), _engine_s(case.hot_requests)


def _engine_s(requests: Requests) -> float:
    """Return the mean seconds that a request is in the batch."""
    seconds = np.nan_to_num(requests.number("prefill_s")) + np.nan_to_num(
        requests.number("decode_s")
    )
    return float(seconds.mean()) if seconds.size else 0.0


def _why_longer_s(case: DiagnosisCase) -> dict[str, float]:
    """Return the seconds that each change adds to a request's time in the batch."""
    body = case.body

    def grown(*terms: str) -> float:
        return max(0.0, float(sum(body[TERM_INDEX[term]] for term in terms)))

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
    encoder = min(encoder_added_s(case), found[PACE])
    found[PACE] -= encoder
    found[ENCODER] = found.get(ENCODER, 0.0) + encoder
    of_drafts = drafts_share(case)
    found[PACE] += grown("decode_own") * (1.0 - of_drafts)
    found[DRAFTS] = grown("decode_own") * of_drafts
    return found


def drafts_share(case: DiagnosisCase) -> float:
    """Return the share of the decode slowdown that fewer accepted drafts cause."""
    fewer = _log_of_fewer_accepted(case)
    prefill, _ = case.slowdowns
    return fewer / (fewer + log(max(prefill or 1.0, 1.0))) if fewer else 0.0


def _log_of_fewer_accepted(case: DiagnosisCase) -> float:
    """Return log(decode slowdown / prefill slowdown), or 0 if the acceptance rate did not fall."""
    before, now = case.ratio("accepted_tokens_total", "draft_tokens_total")
    prefill, decode = case.slowdowns
    if not before or not now or log(before / now) <= NOISE or decode is None:
        return 0.0
    return max(log(decode / max(prefill or 1.0, 1.0)), 0.0)


def _summing_to_one(found: Mapping[str, float]) -> DriverShares:
    whole = sum(found.values())
    return {name: value / whole for name, value in found.items()} if whole > 0 else {}
