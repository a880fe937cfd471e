"""The sentences about a comparison, for commands, pages and alerts. Pure."""

from collections.abc import Callable, Sequence
from typing import Final

from analysis.cause_sentences import NAMES
from analysis.compare.answer import NOT_REPLAYED, CompareAnswer, DecisionResult
from analysis.compare.decision import CompareDecision
from analysis.compare.intervals import Interval
from analysis.compare.total_change import TotalChange
from analysis.compare.verdict import CompareVerdict
from telemetry.percentages import percent

AT_EQUAL: Final = "at the same mix and load"
_WORDS: Final = {
    CompareVerdict.WORSE: "worse",
    CompareVerdict.BETTER: "better",
    CompareVerdict.NO_WORSE: "no worse",
    CompareVerdict.UNDECIDED: "undecided",
}


def finding(answer: DecisionResult, seconds: Callable[[float | None], str]) -> str:
    """The verdict as a sentence with its numbers."""
    question, found = answer.question, answer.decision
    latency = name_of(answer)
    parts, ratio, change = found.parts, found.ratio, found.change_ratio
    if parts is None:
        return f"Undecided: {first(found.reasons)}."
    numbers = f"{seconds(parts.compared_s)} instead of {seconds(parts.equal_s)}"
    if ratio is None or change is None:
        return f"{latency} is {_WORDS[found.verdict]} {AT_EQUAL}: {numbers}."
    margin = f"the margin is {100 * question.margin:.3g} %"
    match found.verdict:
        case CompareVerdict.WORSE | CompareVerdict.BETTER:
            return f"{latency} is {_size(answer)} {AT_EQUAL}: {numbers}."
        case CompareVerdict.NO_WORSE:
            size = f"changed by {100 * change:+.1f} % {_interval(ratio)}"
            return f"{latency} is no worse: it {size} {AT_EQUAL}; {margin}."
    size = f"{100 * change:+.1f} % {_interval(ratio)}"
    return f"Undecided: {latency} changed by {size} {AT_EQUAL}; {margin}."


def short_finding(answer: DecisionResult) -> str:
    """Return the verdict as a clause, such as "TPOT P99 is 18 % worse [12, 25] at …"."""
    question, found = answer.question, answer.decision
    latency, margin = name_of(answer), f"{100 * question.margin:.3g} %"
    if found.parts is None:
        return f"{latency} is undecided, because {first(found.reasons)}"
    if found.ratio is None or found.change_ratio is None:
        return f"{latency} is {_WORDS[found.verdict]} {AT_EQUAL}"
    if found.verdict is CompareVerdict.NO_WORSE:
        return f"{latency} is no worse within {margin} {_interval(found.ratio)} {AT_EQUAL}"
    if found.verdict is CompareVerdict.UNDECIDED:
        size = f"{100 * found.change_ratio:+.1f} % {_interval(found.ratio)}"
        return f"the change of {latency} is undecided: {size} {AT_EQUAL}; the margin is {margin}"
    return f"{latency} is {_size(answer)} {AT_EQUAL}"


def name_of(answer: DecisionResult) -> str:
    """The latency and the percentile, such as "TPOT P99"."""
    return f"{NAMES[answer.question.metric]} {answer.question.quantile.upper()}"


def compared(found: CompareDecision) -> str:
    """Return sentences that state how many requests were compared, and which were left out."""
    sentences = (
        f"{percent(found.compared_ratio, 0)} of the requests after the change have a counterpart"
        f" before it; they are compared with the equivalent of {found.effective:,.0f} requests."
    )
    if found.uncompared:
        sentences += f" Not compared: {'; '.join(found.uncompared)}."
    return sentences


def total_change(total: TotalChange, signed_seconds: Callable[[float], str]) -> str | None:
    """Return the total change as a sentence, or None if no replay was requested."""
    if total.total_change_s is not None:
        change = signed_seconds(total.total_change_s)
        return f"Total change, with the load that the change itself caused (by replay): {change}."
    if total.reason is None or total.reason == NOT_REPLAYED:
        return None
    return f"Total change: unknown, {total.reason.rstrip('.')}."


def predicted(answer: CompareAnswer, clock: Callable[[int], str]) -> str | None:
    """Return a sentence with the predicted and the measured change, or None without a
    prediction."""
    found = answer.expected
    if found is None:
        return None
    place = "inside" if found.contained else "outside"
    between = _interval(Interval(found.ratio.low, found.ratio.high))
    return (
        f"What-if predicted {100 * found.ratio.value:+.1f} % {between} for {name_of(answer)} with"
        f" {found.change} (prediction from {clock(found.asked_unix_ns)}). Measured, including the"
        f" effect of the load: {100 * found.measured:+.1f} %, {place} the interval."
    )


def four_digits(value: float) -> str:
    """Format a number without an exponent.

    It has four digits, or more if the part before the decimal point is longer.
    """
    return f"{value:.0f}" if abs(value) >= 999.95 else f"{value:.4g}"


def first(reasons: Sequence[str]) -> str:
    """The first reason why there is no verdict."""
    return reasons[0] if reasons else "there is too little data"


def _size(answer: DecisionResult) -> str:
    """Format the size of a change, such as `12 % worse [8, 15]`."""
    found = answer.decision
    assert found.ratio is not None
    assert found.change_ratio is not None
    change = found.change_ratio
    return (
        f"{100 * abs(change):.0f} % {found.verdict.value} {_interval(found.ratio, abs_of=change)}"
    )


def _interval(ratio: Interval, abs_of: float | None = None) -> str:
    ends = [100 * each for each in ratio]
    if abs_of is None:
        return f"[{ends[0]:+.1f}, {ends[1]:+.1f}]"
    if abs_of < 0:
        ends = [-each for each in reversed(ends)]
    return f"[{ends[0]:.0f}, {ends[1]:.0f}]"
