"""An explanation as text. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from analysis.cause_sentences import NAMES, method_sentence, network_sentence, share_text
from analysis.explain import ExplainAnswer
from cli.render import text
from diagnosis.causes.registry import SUMMARIES
from diagnosis.claim import Evidence, Lever
from diagnosis.explanation import Cause, Explanation, ExplanationVerdict
from diagnosis.latency.attainment import Attainment
from telemetry import durations, time_text
from telemetry.printable import first_upper, printable

_MAX_HITS = 6
_WIDEST = 400
_WIDEST_EVIDENCE = 120
"""Maximum characters of the name of evidence. The Root cause page prints as many."""
_SHOWN_S = 5e-5
"""Parts shorter than this are not listed, because they would be shown as 0."""


def of_answer(answer: ExplainAnswer) -> Iterator[str]:
    """Yield the lines of an explanation."""
    why = answer.explanation
    yield _sentence(answer)
    for each in why.deciding:
        yield _attainment_sentence(each, NAMES[why.question.metric.value])
    if why.grew_within_objectives:
        yield (
            "The slowest requests became slower, but no SLO shows this. To explain the growth, use"
            " --by-size."
        )
    if why.verdict is not ExplanationVerdict.INCIDENT and (still := _still_slow(answer)):
        yield still
    for cause in why.causes:
        yield ""
        yield from cause_lines(cause, NAMES[why.question.metric.value])
    if why.unexplained is not None and why.unexplained >= 0.05:
        yield ""
        left = share_text(why.unexplained, why.unexplained_low, why.unexplained_high)
        yield f"{first_upper(left)} of the growth is not explained by a known cause."
    if why.causes:
        yield ""
        yield printable(method_sentence(why, text.seconds), _WIDEST)
    if why.verdict is not ExplanationVerdict.INSUFFICIENT_DATA:
        yield ""
        yield from _parts(why)
    if why.dimensions:
        yield ""
        yield from _dimensions(why)
    for growth in why.network:
        yield ""
        yield printable(network_sentence(growth, text.seconds), _WIDEST)
    for doubt in why.contradictions:
        yield f"Note: {printable(doubt, _WIDEST)}"


def compared_with(answer: ExplainAnswer) -> str:
    """A word that describes how the baseline was chosen."""
    if answer.before is not None:
        return "before_incident"
    return "previous" if answer.just_before else "given"


def _baseline(answer: ExplainAnswer) -> str:
    span = answer.explanation.question.baseline
    if answer.before is not None:
        began = time_text.moment(answer.before.began_unix_s * 10**9)
        return f"the time before incident {answer.before.slo} (began {began} UTC)"
    if answer.just_before:
        return f"the previous {durations.render(max(1, round(span.seconds)))}"
    return f"{time_text.moment(span.from_unix_ns)} to {time_text.moment(span.to_unix_ns)} UTC"


def _attainment_sentence(each: Attainment, metric: str) -> str:
    verb = "was missed more often" if each.fell else "was missed" if each.missed else "was met"
    subject, target = f"Objective {each.slo}", "the target"
    if not each.whole:
        subject = f"Objective {each.slo} (only its limit on {metric})"
        target = "the target of the whole objective"
    return (
        f"{subject} {verb}: {text.percent(each.attained_ratio)} of"
        f" {text.count(each.requests)} requests within {text.seconds(each.threshold_s)}, before"
        f" {text.percent(each.baseline_attained_ratio)};"
        f" {target} is {text.percent(1.0 - each.budget)}."
    )


def _still_slow(answer: ExplainAnswer) -> str | None:
    """A sentence about the incident or the missed SLO, or None if there is neither."""
    going_on = [row for row in answer.incidents if row.ended_unix_s is None]
    for row in going_on or answer.incidents:
        began = f"{time_text.moment(row.began_unix_s * 10**9)} UTC"
        if row.ended_unix_s is None:
            return f"Still slow: incident {row.slo} ({row.severity}) since {began}."
        ended = f"{time_text.moment(row.ended_unix_s * 10**9)} UTC"
        return f"Incident {row.slo} ({row.severity}) lasted from {began} to {ended}."
    worst = answer.explanation.worst_missed
    if worst is None:
        return None
    return (
        f"Still slow: {text.percent(1.0 - worst.attained_ratio)} of requests take longer than"
        f" {text.seconds(worst.threshold_s)}; {worst.slo} allows {text.percent(worst.budget)}."
    )


def _sentence(answer: ExplainAnswer) -> str:
    why = answer.explanation
    name = NAMES[why.question.metric.value]
    if why.verdict is ExplanationVerdict.INSUFFICIENT_DATA:
        return (
            f"Too little data: {text.count(why.requests)} requests with {name} in the window and"
            f" {text.count(why.baseline_requests)} in the baseline; both need at least"
            f" {text.count(why.needed)}."
        )
    slowest = f"{name} of the slowest {text.percent(why.tail_share or 0, 0)}"
    was, now = text.seconds(why.baseline_s), text.seconds(why.now_s)
    of = f"{text.count(why.requests)} requests now, {text.count(why.baseline_requests)} before"
    if why.verdict is ExplanationVerdict.NO_INCIDENT:
        change = "Unchanged from" if why.unchanged else "No incident compared with"
        return f"{change} {_baseline(answer)}: {slowest} is {now}, was {was} ({of})."
    when = "" if why.onset_unix_ns is None else f" at {time_text.moment(why.onset_unix_ns)} UTC"
    return f"{slowest} rose from {was} to {now}{when}: {text.seconds(why.excess_s)} more, {of}."


def cause_lines(cause: Cause, metric: str) -> Iterator[str]:
    """Yield a cause: its share, the evidence and the actions to try."""
    where = ", ".join(f"{key} {text.label(value)}" for key, value in cause.where.items())
    share = share_text(cause.share, cause.low, cause.high)
    if cause.low is None:
        share = f"{first_upper(share)} of the growth:"
    yield f"{share} {cause.id}{f' ({where})' if where else ''}: {SUMMARIES[cause.id]}."
    known = [each for each in cause.evidence if each.now is not None or each.baseline is not None]
    if known:
        rows = [[f"  {printable(each.what, _WIDEST_EVIDENCE)}", *_values(each)] for each in known]
        yield from text.table(["  evidence", "before", "now"], rows, left=1, keep=1)
    for lever in cause.levers:
        flag = f", {lever.flag}" if lever.flag else ""
        yield f"  Try: {printable(lever.action, _WIDEST)}{flag}{_effect(lever, metric)}."


def _effect(lever: Lever, metric: str) -> str:
    effect = lever.predicted
    if effect is None:
        return ""
    between = ""
    if effect.low_s is not None and effect.high_s is not None:
        between = f" [{text.seconds(effect.low_s)} to {text.seconds(effect.high_s)}]"
    return f": {metric} P99 {text.seconds(effect.now_s)} → {text.seconds(effect.then_s)}{between}"


def _values(evidence: Evidence) -> tuple[str, str]:
    return _value(evidence.baseline), _value(evidence.now)


def _value(value: float | None) -> str:
    if value is None:
        return text.UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _parts(why: Explanation) -> Iterator[str]:
    rows = [
        [
            each.part.replace("_", " "),
            text.seconds(each.baseline_s),
            text.seconds(each.now_s),
            f"{'+' if each.excess_s >= 0 else ''}{text.seconds(each.excess_s)}",
        ]
        for each in why.parts
        if max(each.baseline_s, each.now_s) >= _SHOWN_S
    ]
    rows.append(
        [
            "sum",
            text.seconds(why.baseline_s),
            text.seconds(why.now_s),
            f"{'+' if (why.excess_s or 0) >= 0 else ''}{text.seconds(why.excess_s)}",
        ]
    )
    yield from text.table(["part of the slowest", "before", "now", "growth"], rows, left=1)


def _dimensions(why: Explanation) -> Iterator[str]:
    shown = why.dimensions[:_MAX_HITS]
    rows = [
        [
            f"{hit.dimension.replace('_', ' ')} {text.label(hit.value)}",
            f"{hit.risk_ratio:.1f}×",
            f"[{hit.low:.1f} to {hit.high:.1f}]",
            text.count(hit.requests),
        ]
        for hit in shown
    ]
    yield from text.table(["slow more often", "risk", "95 %", "requests"], rows, left=1)
    if more := len(why.dimensions) - len(shown):
        yield f"Groups with smaller factors that are not listed: {text.count(more)}."
    others = why.dimensions_tested - len(why.dimensions)
    if others > 0:
        yield f"{text.count(others)} other groups of requests were tested without a result."


def of_request(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about a request."""
    yield (
        f"{text.label(found['request_id'])} on {text.label(found['replica'])}:"
        f" {text.seconds(found['e2e_s'])}, received"
        f" {time_text.moment(int(found['received'] * 1e9))} UTC."
    )
    rows = [
        [each["part"].replace("_", " "), text.seconds(each["seconds"])] for each in found["parts"]
    ]
    yield from text.table(["part", "time"], rows, left=1)
    if found["delayed_by_tenant"]:
        yield ""
        rows = [
            [
                text.label(each["tenant"]),
                text.count(each["requests"]),
                text.seconds(each["prefill_s"]),
                text.seconds(each["decode_s"]),
                text.seconds(each["cost_s"]),
            ]
            for each in found["delayed_by_tenant"]
        ]
        yield from text.table(
            ["delayed by tenant", "requests", "prefills", "decodes", "delay"], rows, left=1
        )
    if found["delayed_by"]:
        yield ""
        rows = [
            [
                text.label(each["request_id"]),
                text.label(each["tenant"]),
                text.count(each["prompt_tokens_meanwhile"]),
                text.seconds(each["cost_s"]),
            ]
            for each in found["delayed_by"]
        ]
        yield from text.table(
            ["delayed by", "tenant", "prompt tokens at that time", "delay"], rows, left=2
        )
    else:
        yield "No other request's prefill delayed this request."
