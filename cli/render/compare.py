"""A comparison as text."""

from analysis.cause_sentences import NAMES
from analysis.compare.answer import CompareAnswer
from analysis.compare.question import CompareSide
from analysis.compare.sentences import compared, finding, four_digits, predicted, total_change
from analysis.compare.step_coefficients import MEANINGS
from analysis.compare.step_coefficients import NAMES as COEFFICIENTS
from cli.render import text


def lines(answer: CompareAnswer) -> list[str]:
    """The answer. The first line states the finding."""
    question, found = answer.question, answer.decision
    name = f"{NAMES[question.metric]} {question.quantile.upper()}"
    printed = [finding(answer, text.seconds), ""]
    printed += [
        f"before: {answer.requests_before:,} requests, {_side(question.before)}",
        f"after:  {answer.requests_after:,} requests, {_side(question.after)}",
    ]
    if answer.simulated:
        printed.append("simulated data")
    printed += [*answer.notes, *(f"because {each}" for each in found.reasons), ""]
    printed += _parts(answer, name)
    if prediction := predicted(answer, text.instant):
        printed += ["", prediction]
    if found.curve:
        header = ["running at arrival", f"{name} before", "after", "95 % interval", "requests"]
        rows = [
            [
                f"{each.load:.0f}",
                text.seconds(each.before_s),
                text.seconds(each.after_s),
                f"{_signed(each.low_s)} to {_signed(each.high_s)}",
                f"{each.requests:,}",
            ]
            for each in found.curve
        ]
        printed += ["", *text.table(header, rows, left=0, keep=len(header))]
    printed += _coefficients(answer)
    printed += _objectives(answer)
    return printed


def _side(side: CompareSide) -> str:
    labels = "".join(f", {key}={text.label(value or '')}" for key, value in side.equals.items())
    return text.span(side.window) + labels


def _parts(answer: CompareAnswer, name: str) -> list[str]:
    found = answer.decision
    if found.before_s is None or found.after_s is None:
        return []
    rows = [[f"{name} before", text.seconds(found.before_s), text.UNKNOWN]]
    parts, change = found.parts, found.change_s
    if parts is not None:
        between = "" if change is None else f"{_signed(change.low)} to {_signed(change.high)}"
        rows += [
            ["mix: other requests", _signed(parts.compared_mix_s), text.UNKNOWN],
            ["load: other work at the same time", _signed(parts.load_s), text.UNKNOWN],
            ["= before, at the mix and load after", text.seconds(parts.equal_s), text.UNKNOWN],
            ["change at the same mix and load", _signed(parts.change_s), between or text.UNKNOWN],
            ["= after, comparable requests", text.seconds(parts.compared_s), text.UNKNOWN],
            ["mix: requests without a counterpart", _signed(parts.uncompared_s), text.UNKNOWN],
        ]
    rows.append([f"{name} after", text.seconds(found.after_s), text.UNKNOWN])
    which = "any number of runs" if answer.question.looks else "one run"
    printed = text.table(["part", "", f"95 % interval, {which}"], rows, left=1, keep=2)
    if parts is not None:
        printed += ["", compared(found)]
    if total := total_change(answer.total, _signed):
        printed.append(total)
    return printed


def _coefficients(answer: CompareAnswer) -> list[str]:
    found = answer.coefficients
    if found is None:
        return []
    pace = found.pace
    rows = [
        [
            f"{name} {MEANINGS[name]}",
            *(
                cell
                for side in (found.before, found.after)
                for cell in (
                    f"{four_digits(side[name].value * 1e6)} us",
                    f"{four_digits(side[name].low * 1e6)} to {four_digits(side[name].high * 1e6)}",
                )
            ),
        ]
        for name in COEFFICIENTS
    ]
    header = ["step coefficient", "before", "95 % interval", "after", "95 % interval"]
    return [
        "",
        f"For the same work, engine steps take {_percent(pace.value)}"
        f" [{_percent(pace.low)}, {_percent(pace.high)}] of their time before the change.",
        *text.table(header, rows, left=1, keep=len(header)),
    ]


def _objectives(answer: CompareAnswer) -> list[str]:
    if not answer.objectives:
        return []
    header = ["objective", "target", "good before", "mix", "load", "change", "good after"]
    rows = [
        [
            text.label(each.slo),
            text.percent(each.target),
            text.percent(each.before, 2),
            *(_points(part) for part in (each.mix, each.load, each.change)),
            text.percent(each.after, 2),
        ]
        for each in answer.objectives
    ]
    return ["", *text.table(header, rows, left=1, keep=len(header))]


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.1f} %"


def _points(share: float | None) -> str:
    return text.UNKNOWN if share is None else f"{100 * share:+.2f} pp"


def _signed(value_s: float) -> str:
    return f"{'-' if value_s < 0 else '+'}{text.seconds(abs(value_s))}"
