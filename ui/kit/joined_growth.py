"""HTML about the growth of joined requests' latency. Pure; external text is escaped.

A joined request is one request of a user, joined over all engines that served it.
"""

from analysis.cause_sentences import NAMES, first_cause_sentence
from analysis.joined.explain import JoinedExplanation, Pool, TailGrowth
from analysis.joined.words import PHASE_NAMES, servers_listed
from diagnosis.explanation import ExplanationVerdict
from store.joined.read import MAX_ROWS
from ui.kit import wording
from ui.kit.joined_tables import PHASE_MEANINGS

_WIDEST = 300


def summary(joined: JoinedExplanation, latency: str) -> str:
    """The growth of each phase of the slowest joined requests, and a sentence about each pool of
    servers."""
    counted = wording.counted(joined.requests, "joined request")
    before = wording.count(joined.baseline_requests)
    text = f"<p class='note'>{counted}, {before} in the baseline.</p>"
    if joined.truncated:
        text += (
            f"<p class='note'>Only the newest {wording.count(MAX_ROWS)} rows of a range were"
            " joined.</p>"
        )
    if joined.growth is not None:
        text += _growth(joined.growth, latency)
    return text + "".join(map(_pool, joined.pools))


def _growth(growth: TailGrowth, latency: str) -> str:
    share = growth.slowest_share
    which = "all requests" if share == 1.0 else f"the slowest {wording.percent(share)}"
    rows = "".join(
        f"<tr><td>{PHASE_NAMES[each.phase]}<small> · {PHASE_MEANINGS[each.phase]}</small></td>"
        f"{_cells(each.baseline_s, each.now_s)}</tr>"
        for each in growth.phases
        if max(each.baseline_s, each.now_s) > 0
    )
    return (
        f"<table class='data'><thead><tr><th>{latency} of {which}</th><th>before</th>"
        f"<th>now</th><th>growth</th></tr></thead><tbody>{rows}<tr><td><b>whole</b></td>"
        f"{_cells(growth.baseline_s, growth.now_s)}</tr></tbody></table>"
    )


def _cells(was_s: float, now_s: float) -> str:
    return (
        f"<td>{wording.seconds(was_s)}</td><td>{wording.seconds(now_s)}</td>"
        f"<td>{wording.signed_seconds(now_s - was_s)}</td>"
    )


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
