"""The texts of the Compare page. Pure."""

import html
from datetime import tzinfo
from typing import Final

from analysis.compare.answer import CompareAnswer
from analysis.compare.question import CompareSide
from analysis.compare.sentences import compared, finding, four_digits, predicted, total_change
from analysis.compare.step_coefficients import MEANINGS
from analysis.compare.step_coefficients import NAMES as COEFFICIENTS
from telemetry.printable import first_upper
from telemetry.window import Window
from ui.kit import wording
from ui.kit.tables import table

SYMBOLS: Final = {"gamma": "γ", "alpha": "α", "kappa": "κ", "beta": "β", "delta": "δ"}


def headline(answer: CompareAnswer) -> str:
    """The finding as HTML."""
    return html.escape(finding(answer, wording.seconds))


def ranges(answer: CompareAnswer, zone: tzinfo) -> str:
    """The number of requests, the range and the filters before and after the change."""
    question = answer.question
    return (
        f"Before: {answer.requests_before:,} requests, {_side(question.before, zone)}. "
        f"After: {answer.requests_after:,} requests, {_side(question.after, zone)}."
    )


def _side(side: CompareSide, zone: tzinfo) -> str:
    labels = (f", {label} {wording.plain(value or '', 60)}" for label, value in side.equals.items())
    return f"{_range(side.window, zone)}{''.join(labels)}"


def _range(window: Window, zone: tzinfo) -> str:
    ends = (window.from_unix_ns, window.to_unix_ns)
    return " to ".join(wording.clock(each, zone, date=True) for each in ends)


def notes(answer: CompareAnswer, zone: tzinfo) -> list[str]:
    """The limits of the result, and whether an earlier prediction was right, as HTML."""
    found = answer.decision
    # Without parts, the headline already contains the first reason.
    sentences = [_sentence(each) for each in found.reasons[0 if found.parts else 1 :]]
    sentences += [html.escape(each) for each in answer.notes]
    if found.parts is not None:
        sentences.append(compared(found))
    if total := total_change(answer.total, wording.signed_seconds):
        sentences.append(html.escape(total))
    if before := predicted(answer, lambda at_ns: wording.clock(at_ns, zone, date=True)):
        sentences.append(html.escape(before))
    return sentences


def parts(answer: CompareAnswer) -> str:
    """An HTML table of the parts of the difference."""
    found = answer.decision
    if found.parts is None or found.before_s is None or found.after_s is None:
        return ""
    change = found.change_s
    between = (
        wording.UNKNOWN
        if change is None
        else f"{wording.signed_seconds(change.low)} to {wording.signed_seconds(change.high)}"
    )
    rows = [
        ["before", wording.seconds(found.before_s), ""],
        ["mix: other requests", wording.signed_seconds(found.parts.compared_mix_s), ""],
        ["load: other work at the same time", wording.signed_seconds(found.parts.load_s), ""],
        ["= before, at the mix and load after", wording.seconds(found.parts.equal_s), ""],
        ["change at the same mix and load", wording.signed_seconds(found.parts.change_s), between],
        ["= after, comparable requests", wording.seconds(found.parts.compared_s), ""],
        [
            "mix: requests without a counterpart",
            wording.signed_seconds(found.parts.uncompared_s),
            "",
        ],
        ["after", wording.seconds(found.after_s), ""],
    ]
    return table(["part", "", "95 % interval"], rows, "short")


def coefficients(answer: CompareAnswer) -> str:
    """The coefficients of the step model before and after the change as HTML, or an empty text."""
    found = answer.coefficients
    if found is None:
        return ""
    rows = []
    for name in COEFFICIENTS:
        cells = [f"{SYMBOLS[name]} {MEANINGS[name]}"]
        for side in (found.before, found.after):
            each = side[name]
            value, *ends = (four_digits(1e6 * one) for one in (each.value, each.low, each.high))
            cells.append(f"{value} [{', '.join(ends)}]")
        rows.append(cells)
    pace = found.pace
    pace_text = (
        f"<p>For the same work, engine steps take {100 * pace.value:.1f} % [{100 * pace.low:.1f}, "
        f"{100 * pace.high:.1f}] of their time before the change.</p>"
    )
    return pace_text + table(["µs", "before", "after"], rows, "short")


def objectives(answer: CompareAnswer) -> str:
    """An HTML table of the attainment of each objective. The text is empty without objectives."""
    if not answer.objectives:
        return ""
    rows = [
        [
            html.escape(each.slo),
            wording.exact_percent(each.before),
            *(_points(part) for part in (each.mix, each.load, each.change)),
            wording.exact_percent(each.after),
            wording.exact_percent(each.target),
        ]
        for each in answer.objectives
    ]
    heads = ("SLO", "good before", "mix", "load", "change", "good after", "target")
    return table(heads, rows, "short")


def _points(share: float | None) -> str:
    return wording.UNKNOWN if share is None else f"{100 * share:+.2f} points"


def _sentence(reason: str) -> str:
    return html.escape(f"{first_upper(reason)}.")
