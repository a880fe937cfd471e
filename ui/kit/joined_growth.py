"""HTML about the growth of joined requests' latency. Pure. External text is escaped.

A joined request combines the data of all engines that served one user request.
"""

from analysis.cause_sentences import NAMES, first_cause_sentence
from analysis.joined.explain import JoinedExplanation, Pool, TailGrowth
from analysis.joined.requests import TRUNCATED
from analysis.joined.words import PHASE_NAMES, servers_listed
from diagnosis.explanation import ExplanationVerdict
from ui.kit import wording
from ui.kit.joined_tables import PHASE_MEANINGS
from ui.kit.tables import table

_WIDEST = 300


def summary(joined: JoinedExplanation, latency: str) -> str:
    """The growth of each phase of the slowest requests, and a sentence about each server pool."""
    counted = wording.counted(joined.requests, "joined request")
    before = wording.count(joined.baseline_requests)
    text = f"<p class='note'>{counted}, {before} in the baseline.</p>"
    if joined.truncated:
        text += f"<p class='note'>{TRUNCATED}</p>"
    if joined.growth is not None:
        text += _growth(joined.growth, latency)
    return text + "".join(map(_pool, joined.pools))


def _growth(growth: TailGrowth, latency: str) -> str:
    share = growth.slowest_share
    which = "all requests" if share == 1.0 else f"the slowest {wording.percent(share)}"
    grown = [
        (PHASE_NAMES[each.phase], PHASE_MEANINGS[each.phase], each.baseline_s, each.now_s)
        for each in growth.phases
        if max(each.baseline_s, each.now_s) > 0
    ]
    rows = [
        (f"{name}<small> · {meaning}</small>", *_times(was_s, now_s))
        for name, meaning, was_s, now_s in grown
    ]
    whole = ("<b>whole</b>", *_times(growth.baseline_s, growth.now_s))
    return table((f"{latency} of {which}", "before", "now", "growth"), [*rows, whole])


def _times(was_s: float, now_s: float) -> tuple[str, str, str]:
    return wording.seconds(was_s), wording.seconds(now_s), wording.signed_seconds(now_s - was_s)


def _pool(pool: Pool) -> str:
    servers = servers_listed(pool.replicas, wording.for_html)
    why = pool.explanation
    latency = NAMES[why.question.metric.value]
    if why.verdict is ExplanationVerdict.INSUFFICIENT_DATA:
        finding = "too little data."
    else:
        change = "rose" if why.verdict is ExplanationVerdict.INCIDENT else "did not grow"
        finding = (
            f"{latency} of its slowest requests {change}: {wording.seconds(why.now_s)}, was"
            f" {wording.seconds(why.baseline_s)}. "
            + wording.for_html(first_cause_sentence(why) or "", _WIDEST)
        )
    grown = ""
    if pool.excess_s is not None:
        grown = f", growth of its phases {wording.signed_seconds(pool.excess_s)}"
    return f"<p><b>{pool.role.value.capitalize()} pool</b> ({servers}){grown}: {finding}</p>"
