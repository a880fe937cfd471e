"""An explanation as a tired person reads it: the sentence, the reason, the evidence, the way out.

Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from cli import text, times
from diagnosis.causes.claim import Evidence
from diagnosis.causes.registry import SUMMARIES
from diagnosis.explanation import Cause, Explanation, Verdict

NAMES = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl_max": "ITL max",
    "e2e": "E2E",
    "queue": "queueing",
}

_MOST_HITS = 6
_SHOWN_S = 5e-5
"""A part of less is shown as nothing."""


def of_explanation(told: Explanation) -> Iterator[str]:
    """The lines of an explanation."""
    yield _sentence(told)
    for cause in told.causes:
        yield ""
        yield from _cause(cause)
    if told.unexplained is not None and told.unexplained >= 0.05:
        yield ""
        yield (
            f"{text.count(round(told.unexplained * 100))} % is not explained by any cause that"
            " the data tells of."
        )
    if told.verdict is not Verdict.INSUFFICIENT_DATA:
        yield ""
        yield from _parts(told)
    if told.dimensions:
        yield ""
        yield from _dimensions(told)
    for doubt in told.doubts:
        yield f"Note: {doubt}"


def _sentence(told: Explanation) -> str:
    name = NAMES[told.question.metric.value]
    if told.verdict is Verdict.INSUFFICIENT_DATA:
        return (
            f"Too little data: {text.count(told.requests)} requests with {name} in the window and"
            f" {text.count(told.baseline_requests)} in the baseline; each needs"
            f" {text.count(told.needed)}."
        )
    slowest = f"{name} of the slowest {told.tail_share or 0:.0%}"
    was, now = text.seconds(told.baseline_s), text.seconds(told.now_s)
    of = f"{text.count(told.requests)} requests against {text.count(told.baseline_requests)}"
    if told.verdict is Verdict.NO_INCIDENT:
        return (
            f"Nothing to find: {slowest} is {now}, before {was}; that is within what two"
            f" ordinary stretches differ by ({of})."
        )
    when = "" if told.onset_unix_ns is None else f" at {times.moment(told.onset_unix_ns)} UTC"
    return (
        f"{slowest} rose from {was} to {now}{when}: {text.seconds(told.excess_s)} more"
        f" [{text.seconds(told.excess_low_s)} to {text.seconds(told.excess_high_s)}], {of}."
    )


def _cause(cause: Cause) -> Iterator[str]:
    where = ", ".join(f"{key} {text.label(value)}" for key, value in cause.where.items())
    yield (f"{cause.share:.0%} {cause.id}{f' ({where})' if where else ''}: {SUMMARIES[cause.id]}.")
    known = [each for each in cause.evidence if each.now is not None or each.baseline is not None]
    if known:
        rows = [[f"  {each.what}", *_values(each)] for each in known]
        yield from text.table(["  evidence", "before", "now"], rows, left=1, keep=1)
    for lever in cause.levers:
        yield f"  Try: {lever.action}{f', {lever.flag}' if lever.flag else ''}."


def _values(evidence: Evidence) -> tuple[str, str]:
    return _value(evidence.baseline), _value(evidence.now)


def _value(value: float | None) -> str:
    if value is None:
        return text.UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _parts(told: Explanation) -> Iterator[str]:
    rows = [
        [
            each.part.replace("_", " "),
            text.seconds(each.baseline_s),
            text.seconds(each.now_s),
            f"{'+' if each.excess_s >= 0 else ''}{text.seconds(each.excess_s)}",
        ]
        for each in told.parts
        if max(each.baseline_s, each.now_s) >= _SHOWN_S
    ]
    rows.append(
        [
            "sum",
            text.seconds(told.baseline_s),
            text.seconds(told.now_s),
            f"{'+' if (told.excess_s or 0) >= 0 else ''}{text.seconds(told.excess_s)}",
        ]
    )
    yield from text.table(["part of the slowest", "before", "now", "growth"], rows, left=1)


def _dimensions(told: Explanation) -> Iterator[str]:
    rows = [
        [
            f"{hit.dimension.replace('_', ' ')} {text.label(hit.value)}",
            f"{hit.risk_ratio:.1f}×",
            f"[{hit.low:.1f} to {hit.high:.1f}]",
            text.count(hit.requests),
        ]
        for hit in told.dimensions[:_MOST_HITS]
    ]
    yield from text.table(["slow more often", "risk", "95 %", "requests"], rows, left=1)
    others = told.dimensions_tested - len(told.dimensions[:_MOST_HITS])
    if others > 0:
        yield f"{text.count(others)} other kinds of request were tested."


def of_request(found: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a single request's own account."""
    yield (
        f"{text.label(found['request_id'])} on {text.label(found['replica'])}:"
        f" {text.seconds(found['e2e_s'])}, received"
        f" {times.moment(int(found['received'] * 1e9))} UTC."
    )
    rows = [
        [each["part"].replace("_", " "), text.seconds(each["seconds"])] for each in found["parts"]
    ]
    yield from text.table(["part", "time"], rows, left=1)
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
            ["delayed by", "tenant", "prompt tokens meanwhile", "cost"], rows, left=2
        )
    else:
        yield "No other request's prefill delayed it."
