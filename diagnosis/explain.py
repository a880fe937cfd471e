"""Why did this latency grow? The whole way from columns to an explanation.

Pure. No clock, no socket, no SQL; the same columns give the same answer.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from diagnosis.case import Case, case_of
from diagnosis.causes.claim import Claim, Evidence, settled
from diagnosis.dimensions import hardest_hit
from diagnosis.doubts import doubts
from diagnosis.explanation import Cause, Explanation, PartGrowth, Verdict
from diagnosis.hidden import Hidden, claims_of, hidden, wide_share
from diagnosis.onset import onset_unix_ns
from diagnosis.parts import PARTS, latency_s, split_s
from diagnosis.question import Metric, Question
from diagnosis.requests import BoolArray, FloatArray, Requests
from diagnosis.servers import Servers
from diagnosis.tail import (
    ENOUGH,
    FEW,
    MORE_OF_ALL,
    Stretch,
    block_sums,
    drawn_blocks,
    interval,
    needed,
    share_for,
    shares_over,
    stretch,
    tail_means,
    tail_starts,
)
from diagnosis.terms import TERMS
from diagnosis.work import learn

GROWN: Final = 1.10
"""The slow requests' mean has grown where even its interval's low end is above this, times the
baseline's: two quiet hours differ by less."""

CHANCE: Final = 0.01
"""Narrower than the intervals shown: a verdict is asked for more often than an interval is read."""

MORE_SLOW: Final = 1.6
"""Times as many requests beyond where the baseline's tail begins."""

UNHEARD_OF: Final = 1.5
"""Times the slowest of the baseline: as many requests as make a tail beyond that are no chance,
though all of them were in one minute, which draws of minutes often leave out."""

_MOST_HIT: Final = 0.10

LEAST_S: Final = {
    Metric.TTFT: 1e-3,
    Metric.QUEUE: 1e-3,
    Metric.ITL_MAX: 1e-3,
    Metric.E2E: 1e-3,
    Metric.TPOT: 1e-4,
}
"""A growth that nobody can feel is none."""

LEAST_SHARE: Final = 0.01
MOST_SHARE: Final = 0.05
"""A cause is named where it alone would have been a growth worth telling; at a share between
these two at least."""

LIKELY: Final = 0.3
"""A share of so much is named whatever its interval: where all of it lies in one minute, nobody
can say how it would have been without that minute, and the interval that is shown says so."""


def explain(requests: Requests, servers: Servers, question: Question) -> Explanation:
    """Explain a latency's growth from one stretch of time to another.

    Args:
        requests: at least those of window and baseline; others are left out.
        servers: what the servers told in both, and their starts before.
        question: which latency, window and baseline.
    """
    window, baseline = question.window, question.baseline
    now = requests.within(window.from_unix_ns, window.to_unix_ns)
    before = requests.within(baseline.from_unix_ns, baseline.to_unix_ns)
    tails = (
        stretch(
            latency_s(now, question.metric),
            now.received_unix_ns,
            window.from_unix_ns,
            window.seconds,
        ),
        stretch(
            latency_s(before, question.metric),
            before.received_unix_ns,
            baseline.from_unix_ns,
            baseline.seconds,
        ),
    )
    share = share_for(*tails)
    if share is None:
        return Explanation(
            question, Verdict.INSUFFICIENT_DATA, len(tails[0]), len(tails[1]), needed()
        )
    answer = _explained(question, servers, now, before, tails, share)
    # Those of the baseline too: some of them may have waited into the window.
    return replace(answer, doubts=doubts(requests, servers.engines, window))


def _explained(
    question: Question,
    servers: Servers,
    now: Requests,
    before: Requests,
    tails: tuple[Stretch, Stretch],
    share: float,
) -> Explanation:
    slow, usual = tails
    drawn = drawn_blocks(slow.block_count), drawn_blocks(usual.block_count, seed=1)
    means_now = tail_means(slow, share, drawn[0])
    means_before = tail_means(usual, share, drawn[1])
    now_s = float(slow.latency_s[: slow.tail(share)].mean())
    baseline_s = float(usual.latency_s[: usual.tail(share)].mean())
    low_s, high_s = interval(means_now - means_before)
    case = case_of(question, servers, now, before, tails, share, learn(before))
    enough_s = max((GROWN - 1.0) * baseline_s, LEAST_S[question.metric])
    grown = now_s - baseline_s > enough_s and (
        interval(means_now / np.maximum(means_before, 1e-9), CHANCE)[0] > GROWN
        or _many_more(slow, usual, share, drawn)
        or int((slow.latency_s > UNHEARD_OF * usual.latency_s[0]).sum()) >= ENOUGH
    )
    causes: Sequence[Cause] = ()
    unexplained = None
    if grown:
        causes, unexplained = _causes(case, usual, share, drawn)
        wide = wide_share(slow, share)
        if causes and wide is not None:
            wider = case_of(question, servers, now, before, tails, wide, case.work)
            beneath = hidden(wider, slow, share, drawn[0], [cause.id for cause in causes])
            causes, unexplained = _with_hidden(causes, unexplained, beneath, baseline_s)
    hits, tested = hardest_hit(now, _hit(now, slow, usual, share)) if grown else ([], 0)
    return Explanation(
        question=question,
        verdict=Verdict.INCIDENT if grown else Verdict.NO_INCIDENT,
        requests=len(slow),
        baseline_requests=len(usual),
        needed=needed(),
        tail_share=share,
        baseline_s=baseline_s,
        now_s=now_s,
        excess_low_s=low_s,
        excess_high_s=high_s,
        onset_unix_ns=onset_unix_ns(slow, usual, share, question.window) if grown else None,
        causes=causes,
        unexplained=unexplained,
        parts=_parts(case),
        dimensions=hits,
        dimensions_tested=tested,
    )


def _many_more(
    slow: Stretch, usual: Stretch, share: float, drawn: tuple[FloatArray, FloatArray]
) -> bool:
    """Whether surely more requests are as slow as the baseline's slow ones, its slower quarter or
    its slower half. A few outliers in the baseline leave its tail's mean uncertain; these they do
    not move."""
    levels = {share: MORE_SLOW}
    if len(usual) <= FEW:
        levels = {**MORE_OF_ALL, **levels}
    for level, more in levels.items():
        _, threshold_s = interval(tail_starts(usual, level, drawn[1]), CHANCE)
        low, _ = interval(shares_over(slow, threshold_s, drawn[0]), CHANCE)
        if low > more * level:
            return True
    return False


def _hit(now: Requests, slow: Stretch, usual: Stretch, share: float) -> BoolArray:
    """(n,) the requests slower than the baseline's tail begins; the slowest tenth at most, for
    where all are hit it is the hardest hit that tell something."""
    over = int((slow.latency_s > usual.latency_s[usual.tail(share) - 1]).sum())
    hit = np.zeros(len(now), dtype=np.bool_)
    hit[slow.rows[: min(max(over, slow.tail(share)), slow.tail(_MOST_HIT))]] = True
    return hit


def _parts(case: Case) -> list[PartGrowth]:
    metric = case.question.metric
    was, now = split_s(case.usual, metric).mean(axis=0), split_s(case.slow, metric).mean(axis=0)
    return [
        PartGrowth(part, float(was[place]), float(now[place])) for place, part in enumerate(PARTS)
    ]


def _causes(
    case: Case, usual: Stretch, share: float, drawn: tuple[FloatArray, FloatArray]
) -> tuple[list[Cause], float]:
    """The causes worth naming, largest first, and what no claim takes."""
    claims = claims_of(case)
    terms = case.terms
    added = np.maximum(terms.mean(axis=0), 0.0)
    grew = added > 0
    weights = settled(claims, len(case.slow))
    # What a claim takes of each slow request's terms that grew, and their whole.
    seconds = np.einsum("cnt,nt->nc", weights[:, :, grew], terms[:, grew])
    columns = np.column_stack([seconds, terms[:, grew].sum(axis=1)])
    replicates = _replicates(case, columns, drawn[0])
    replicates -= _baseline_shift(case, weights, grew, usual, share, drawn[1])
    point = columns.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = point[:-1] / point[-1]
        drawn_shares = np.where(
            replicates[:, -1:] > 0, replicates[:, :-1] / replicates[:, -1:], np.nan
        )
    causes = [
        _cause(claim, float(shares[place]), drawn_shares[:, place])
        for place, claim in enumerate(claims)
    ]
    baseline_s = float(usual.latency_s[: usual.tail(share)].mean())
    worth = min(max((GROWN - 1.0) * baseline_s / float(point[-1]), LEAST_SHARE), MOST_SHARE)
    named = [
        cause
        for cause in causes
        if cause.share >= worth and (cause.low > 0 or cause.share >= LIKELY)
    ]
    named.sort(key=lambda cause: -cause.share)
    return named, float(1.0 - sum(cause.share for cause in named))


def _with_hidden(
    causes: Sequence[Cause], unexplained: float, beneath: Sequence[Hidden], baseline_s: float
) -> tuple[list[Cause], float]:
    """The causes with those that they hide, which take their shares of theirs alike."""
    found = []
    for each in beneath:
        cause = _cause(each.claim, each.share, each.replicates)
        if cause.low > 0 or cause.share >= LIKELY:
            with_it_alone_s = baseline_s + each.alone_s
            told = Evidence("slow requests' mean with it alone, s", baseline_s, with_it_alone_s)
            found.append(replace(cause, evidence=(told, *cause.evidence)))
    left = 1.0 - sum(cause.share for cause in found)
    if not found or left <= 0:
        return list(causes), unexplained
    shown = [
        replace(each, share=each.share * left, low=each.low * left, high=each.high * left)
        for each in causes
    ]
    return sorted((*shown, *found), key=lambda cause: -cause.share), unexplained * left


def _replicates(case: Case, columns: FloatArray, drawn: FloatArray) -> FloatArray:
    """(replicates, k) the slow requests' means with their blocks drawn anew."""
    sums = block_sums(columns, case.slow_blocks, case.block_count)
    sizes = np.bincount(case.slow_blocks, minlength=case.block_count)
    number = drawn @ sizes
    # A replicate that draws none of the blocks with slow requests says nothing of them.
    with np.errstate(divide="ignore", invalid="ignore"):
        result: FloatArray = np.where(number > 0, (drawn @ sums).T / number, np.nan).T
    return result


def _baseline_shift(
    case: Case,
    weights: FloatArray,
    grew: np.ndarray[tuple[int], np.dtype[np.bool_]],
    usual: Stretch,
    share: float,
    drawn: FloatArray,
) -> FloatArray:
    """(replicates, claims + 1) how the drawn baselines move each claim's mean."""
    parts = split_s(case.usual, case.question.metric)
    blocks = usual.blocks[: usual.tail(share)]
    sums = block_sums(parts, blocks, usual.block_count)
    sizes = np.bincount(blocks, minlength=usual.block_count)
    number = np.maximum(drawn @ sizes, 1.0)[:, None]
    moved = np.zeros((drawn.shape[0], len(TERMS)))
    moved[:, : len(PARTS)] = (drawn @ sums) / number - parts.mean(axis=0)
    taken = weights.mean(axis=1) * grew  # (claims, terms)
    return np.column_stack([moved @ taken.T, moved @ grew.astype(float)])


def _cause(claim: Claim, share: float, drawn: FloatArray) -> Cause:
    known = drawn[np.isfinite(drawn)]
    low, high = interval(known) if known.size else (share, share)
    return Cause(
        id=claim.cause,
        share=share,
        low=min(low, share),
        high=max(high, share),
        evidence=claim.evidence,
        levers=claim.levers,
        where=claim.where,
    )
