"""Explain why a latency grew, from the columns of requests and server samples. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from diagnosis.causes import engine_hang
from diagnosis.causes.masked import MaskedCause, all_claims, masked_causes, wide_share
from diagnosis.claim import NAMED_SHARE, Claim, Evidence, divide_terms
from diagnosis.explanation import Cause, Explanation, ExplanationVerdict, PartGrowth
from diagnosis.growth.case import DiagnosisCase, case_of
from diagnosis.growth.own_work import fit_own_work
from diagnosis.inputs.hung_engines import unfinished, with_unfinished
from diagnosis.inputs.littles_law import contradictions
from diagnosis.inputs.requests import BoolArray, FloatArray, Requests
from diagnosis.inputs.same_models import same_model_requests
from diagnosis.inputs.server_labels import with_server_labels
from diagnosis.inputs.servers import Servers
from diagnosis.latency.attainment import Attainment, LatencyThreshold, attainment
from diagnosis.latency.onset import onset_unix_ns
from diagnosis.latency.parts import PARTS, REASONING, selected_latency_s, split_s
from diagnosis.latency.risk_ratios import risk_ratios
from diagnosis.latency.tail import (
    BODY_GROWTH_RATIOS,
    MAX_WIDE_TAIL,
    MIN_TAIL_REQUESTS,
    SHARES,
    TAIL_GROWTH_RATIO,
    SortedLatencies,
    interval,
    needed,
    resampled_blocks,
    share_for,
    shares_over,
    sort_latencies,
    tail_means,
    tail_starts,
)
from diagnosis.question import Metric, Question, Span

MIN_GROWTH_RATIO: Final = 1.10
"""Minimum growth ratio (now / before) of the slow requests' mean latency for an incident. The lower
bound of the ratio's confidence interval must exceed it. Without a fault, 99 % of these lower bounds
are at most 1.10. If objectives decide the verdict, this minimum is not used."""

CHANCE: Final = 0.01
"""Error probability of the confidence intervals that decide a verdict. The intervals that users see
have 1 in 20, which would cause too many wrong verdicts."""

OUTLIER_RATIO: Final = 1.5
"""A request is an outlier if its latency exceeds this multiple of the baseline's slowest latency.
Enough events with outliers show a growth, even within a single minute."""

LONE_OUTLIER_RATIO: Final = 3.0
"""If too few events caused outliers, their latency must exceed this multiple. By chance, a single
step can be long. Two ranges without a fault were compared 600 times (seeds 7001 and 7002 of
`benchmarks/_diagnosis_draws.py`). In one comparison, the longest gaps of `MIN_TAIL_REQUESTS`
requests were more than 2 times as long as the other range's longest gap. In no comparison were they
more than 2.4 times as long."""

MIN_NAMED_SHARE: Final = 0.01
"""A cause with a share below `NAMED_SHARE` is named if its share is at least this, and if its
seconds alone raise the latency by `MIN_GROWTH_RATIO`. In simulations, 4 of 11 such causes were
injected. Their true shares were 24 to 46 %."""

_MAX_SLOW_SHARE: Final = 0.10
"""Maximum share of the requests that `_hit` counts as slow. The limit affects no verdict."""

MIN_GROWTH_S: Final = {
    Metric.TTFT: 1e-3,
    Metric.QUEUE: 1e-3,
    Metric.FIRST_CONTENT: 1e-3,
    Metric.ITL_MAX: 1e-3,
    Metric.E2E: 1e-3,
    Metric.TPOT: 1e-4,
}
"""Minimum growth of each latency, in seconds. Users do not notice a smaller growth."""


def explain(
    requests: Requests,
    servers: Servers,
    question: Question,
    thresholds: Sequence[LatencyThreshold] = (),
) -> Explanation:
    """Explain the growth of a latency between two time ranges.

    Args:
        requests: requests of all clients in both ranges. The latency is explained only for the
            requests that the question's filter selects, but the evidence comes from all requests.
        servers: samples of both ranges, and engine starts, including earlier starts.
        thresholds: the thresholds that objectives set for this latency. If an objective counts
            enough requests, it decides the verdict. If no objective does, the size of the growth
            decides.
    """
    window, baseline = question.window, question.baseline
    requests, servers = with_server_labels(requests, servers)
    requests = with_unfinished(requests, servers.engines)
    now = requests.within(window.from_unix_ns, window.to_unix_ns)
    before = requests.within(baseline.from_unix_ns, baseline.to_unix_ns)
    now, before = same_model_requests(now, before, question)
    tails = _latencies(now, question, window), _latencies(before, question, baseline)
    attainments = tuple(attainment(now, before, question, each) for each in thresholds)
    share = share_for(*tails)
    if share is None:
        return Explanation(
            question,
            ExplanationVerdict.INSUFFICIENT_DATA,
            len(tails[0]),
            len(tails[1]),
            needed(),
            attainments=attainments,
        )
    answer = _explain_tails(question, servers, now, before, tails, share, attainments)
    answer = _with_causes_beside_hang(answer, servers, now, before, tails)
    # Pass all `requests`, because requests of the baseline may still wait in the window.
    return replace(answer, contradictions=contradictions(requests, servers.engines, window))


def _latencies(requests: Requests, question: Question, span: Span) -> SortedLatencies:
    latency = selected_latency_s(requests, question)
    return sort_latencies(latency, requests.received_unix_ns, span.from_unix_ns, span.seconds)


def _explain_tails(
    question: Question,
    servers: Servers,
    now: Requests,
    before: Requests,
    tails: tuple[SortedLatencies, SortedLatencies],
    share: float,
    attainments: tuple[Attainment, ...],
) -> Explanation:
    slow, usual = tails
    judging = [each for each in attainments if each.decides]
    objective_missed = any(each.fell for each in judging)
    if objective_missed:
        share = _share_that_grew(tails, share, question.metric)
    drawn = resampled_blocks(slow.block_count), resampled_blocks(usual.block_count, seed=1)
    means_now = tail_means(slow, share, drawn[0])
    means_before = tail_means(usual, share, drawn[1])
    now_s, baseline_s = _tail_mean_s(slow, share), _tail_mean_s(usual, share)
    case = case_of(question, servers, now, before, tails, share, fit_own_work(before))
    larger = now_s - baseline_s > _min_growth_s(baseline_s, question.metric)
    grown = objective_missed or (
        not judging
        and larger
        and (
            interval(means_now / np.maximum(means_before, 1e-9), CHANCE)[0] > MIN_GROWTH_RATIO
            or _many_more(slow, usual, share, drawn)
            or _enough_outliers(slow, usual)
        )
    )
    causes: Sequence[Cause] = ()
    others: Sequence[Cause] = ()
    unexplained = None
    if grown and not larger:
        unexplained = 1.0  # the tail's mean did not grow, so no growth is divided
    if grown and larger:
        causes, others, unexplained = _causes(case, baseline_s)
        wide = wide_share(slow, share)
        if causes and wide is not None and not unfinished(case.slow).any():
            wider = case_of(question, servers, now, before, tails, wide, case.work)
            masked = masked_causes(wider, slow, share, [cause.id for cause in causes])
            causes, unexplained = _with_masked(causes, unexplained, masked, baseline_s)
    selected = np.isfinite(selected_latency_s(now, question))
    hit = _hit(now, slow, usual, share)
    hits, tested = risk_ratios(now.rows(selected), hit[selected]) if grown else ([], 0)
    return Explanation(
        question=question,
        verdict=ExplanationVerdict.INCIDENT if grown else ExplanationVerdict.NO_INCIDENT,
        requests=len(slow),
        baseline_requests=len(usual),
        needed=needed(),
        attainments=attainments,
        tail_share=share,
        baseline_s=baseline_s,
        now_s=now_s,
        onset_unix_ns=onset_unix_ns(slow, usual, share, question.window) if grown else None,
        causes=causes,
        others=others,
        unexplained=unexplained,
        parts=_parts(case),
        dimensions=hits,
        dimensions_tested=tested,
    )


def _with_causes_beside_hang(
    answer: Explanation,
    servers: Servers,
    now: Requests,
    before: Requests,
    tails: tuple[SortedLatencies, SortedLatencies],
) -> Explanation:
    """Return the explanation with two kinds of causes: the hang, and causes that delay the requests
    of other engines.

    Most slow requests are requests of the hung engine, which show no other cause. So the requests
    that ended are explained as if no engine had hung. The growth is divided by the Shapley
    value of two players: the hang, and all other causes (see `masked`). Without the other causes,
    the requests that ended would be as fast as usual. Without the hang, unfinished requests would
    be as fast as the requests that ended.
    """
    hang = next((cause for cause in answer.causes if cause.id == engine_hang.ID), None)
    slow, usual = tails
    hung = unfinished(now)[slow.rows]
    share, baseline_s, now_s = answer.tail_share, answer.baseline_s, answer.now_s
    if hang is None or not hung.any() or not share or baseline_s is None or now_s is None:
        return answer
    ended = slow.only(~hung)
    share_of_ended = share_for(ended, usual)
    if share_of_ended is None:
        return answer
    beside = _explain_tails(
        answer.question, servers, now, before, (ended, usual), share_of_ended, ()
    )
    if not beside.causes:
        return answer
    hang_alone = np.where(hung, slow.latency_s, np.minimum(slow.latency_s, baseline_s))
    added_s = max(_tail_mean_s(ended, share) - baseline_s, 0.0)
    added_to_hang_s = now_s - float(np.sort(hang_alone)[-slow.tail(share) :].mean())
    of_beside = min((added_s + added_to_hang_s) / 2.0 / (now_s - baseline_s), 1.0)
    growth = Evidence(
        "slowest requests that ended, mean latency, s", beside.baseline_s, beside.now_s
    )
    found = [
        replace(each, share=each.share * of_beside, evidence=(growth, *each.evidence))
        for each in beside.causes
    ]
    of_hang = sum(cause.share for cause in found if cause.id == engine_hang.ID)
    others = [cause for cause in found if cause.id != engine_hang.ID]
    hang = replace(hang, share=1.0 - of_beside + of_hang)
    return replace(
        answer,
        causes=sorted((hang, *others), key=lambda cause: -cause.share),
        unexplained=of_beside * (beside.unexplained or 0.0),
    )


def _tail_mean_s(of: SortedLatencies, share: float) -> float:
    return float(of.latency_s[: of.tail(share)].mean())


def _min_growth_s(baseline_s: float, metric: Metric) -> float:
    return max((MIN_GROWTH_RATIO - 1.0) * baseline_s, MIN_GROWTH_S[metric])


def _share_that_grew(
    tails: tuple[SortedLatencies, SortedLatencies], share: float, metric: Metric
) -> float:
    """Return the smallest size of the tail, at least `share`, for which its mean latency grew."""
    longest = max(len(each) for each in tails)
    widest = min(1.0, MAX_WIDE_TAIL / longest)
    for wider in (*SHARES, 1.0):
        if share <= wider <= max(widest, share):
            now_s, baseline_s = (_tail_mean_s(each, wider) for each in tails)
            if now_s - baseline_s > _min_growth_s(baseline_s, metric):
                return wider
    return share


def _many_more(
    slow: SortedLatencies,
    usual: SortedLatencies,
    share: float,
    drawn: tuple[FloatArray, FloatArray],
) -> bool:
    """Return whether clearly more requests exceed a latency than in the baseline.

    Three latencies are tried: the lowest latency of the baseline's tail, the baseline's 75th
    percentile, and its median.
    """
    levels = {**BODY_GROWTH_RATIOS, share: TAIL_GROWTH_RATIO}
    for level, more in levels.items():
        _, threshold_s = interval(tail_starts(usual, level, drawn[1]), CHANCE)
        low, _ = interval(shares_over(slow, threshold_s, drawn[0]), CHANCE)
        if low > more * level:
            return True
    return False


def _enough_outliers(slow: SortedLatencies, usual: SortedLatencies) -> bool:
    """Return whether there are so many outliers (see `OUTLIER_RATIO`) that the growth is not due to
    chance.

    A long step delays several requests. They all report exactly the same longest gap. Such requests
    are one event, so the test counts different latencies. If the window has a share p of all
    requests, then by chance the n largest events are all in the window with a probability of about
    p^n.

    Source: Rosenbaum, Annals of Mathematical Statistics 25, 1954.
    """
    usual_s = usual.latency_s[0]
    outliers_s = slow.latency_s[slow.latency_s > OUTLIER_RATIO * usual_s]
    if outliers_s.size < MIN_TAIL_REQUESTS:
        return False
    events = np.unique(outliers_s).size
    in_window = len(slow) / (len(slow) + len(usual))
    beyond_chance = in_window**events <= CHANCE / 2
    return bool(beyond_chance or outliers_s[MIN_TAIL_REQUESTS - 1] > LONE_OUTLIER_RATIO * usual_s)


def _hit(now: Requests, slow: SortedLatencies, usual: SortedLatencies, share: float) -> BoolArray:
    """Return whether each request is slower than the fastest request of the baseline's tail: (n,).
    At most the slowest tenth of the requests is returned."""
    over = int((slow.latency_s > usual.latency_s[usual.tail(share) - 1]).sum())
    hit = np.zeros(len(now), dtype=np.bool_)
    hit[slow.rows[: min(max(over, slow.tail(share)), slow.tail(_MAX_SLOW_SHARE))]] = True
    return hit


def _parts(case: DiagnosisCase) -> list[PartGrowth]:
    metric = case.question.metric
    was, now = split_s(case.usual, metric).mean(axis=0), split_s(case.slow, metric).mean(axis=0)
    names = REASONING if metric is Metric.FIRST_CONTENT else {}
    return [
        PartGrowth(names.get(part, part), float(was[place]), float(now[place]))
        for place, part in enumerate(PARTS)
    ]


def _causes(case: DiagnosisCase, baseline_s: float) -> tuple[list[Cause], list[Cause], float]:
    """The named causes, the other causes, and the unexplained share.

    The named causes are sorted by share, largest first."""
    claims = all_claims(case)
    terms = case.terms
    grew = terms.mean(axis=0) > 0
    weights = divide_terms(claims, len(case.slow))
    whole_s = float(terms[:, grew].sum(axis=1).mean())
    if not whole_s > 0:
        return [], [], 1.0
    # The share of a claim is the sum of its seconds in the terms that grew, divided by the growth
    # of these terms. A term can shrink for some requests although its mean grows. The claimed
    # seconds could then exceed the growth. So the sum of the shares is limited to 1.
    seconds = np.einsum("cnt,nt->c", weights[:, :, grew], terms[:, grew]) / len(case.slow)
    shares = np.clip(seconds / whole_s, 0.0, 1.0)
    shares /= max(float(shares.sum()), 1.0)
    found = [_cause(claim, float(share)) for claim, share in zip(claims, shares, strict=True)]
    found.sort(key=lambda cause: -cause.share)
    least = min(max((MIN_GROWTH_RATIO - 1.0) * baseline_s / whole_s, MIN_NAMED_SHARE), NAMED_SHARE)
    named = [cause for cause in found if cause.share >= least]
    return named, found[len(named) :], max(0.0, 1.0 - sum(cause.share for cause in named))


def _with_masked(
    causes: Sequence[Cause], unexplained: float, masked: Sequence[MaskedCause], baseline_s: float
) -> tuple[list[Cause], float]:
    """The causes including the masked causes, and the unexplained share. The other shares are
    reduced in proportion, so that all shares sum to 1."""
    found = []
    for each in masked:
        alone = Evidence(
            "slow requests' mean with this cause alone, s", baseline_s, baseline_s + each.alone_s
        )
        cause = _cause(each.claim, each.share)
        found.append(replace(cause, evidence=(alone, *cause.evidence)))
    left = 1.0 - sum(cause.share for cause in found)
    if not found or left <= 0:
        return list(causes), unexplained
    shown = [replace(each, share=each.share * left) for each in causes]
    return sorted((*shown, *found), key=lambda cause: -cause.share), unexplained * left


def _cause(claim: Claim, share: float) -> Cause:
    return Cause(
        id=claim.cause,
        share=share,
        evidence=claim.evidence,
        levers=claim.levers,
        where=claim.where,
    )
