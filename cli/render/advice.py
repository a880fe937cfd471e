"""The result of `tailspan advise` as text and as JSON."""

from typing import Any

from analysis.advice import Advice, AdviceAnswer
from analysis.corrected_prediction import Predicted
from analysis.what_if import PredictedAttainment
from cli.render import text
from cli.render.what_if import TITLES, left_out


def as_json(found: AdviceAnswer) -> dict[str, Any]:
    """All changes that were tried (levers), with null for unknown values."""
    return {
        "refused": found.refused,
        "metric": found.metric,
        "left_out": dict(found.advice[0].answer.left_out) if found.advice else {},
        "levers": [_lever(each) for each in found.advice],
        "unknown": list(found.unknown),
    }


def _lever(each: Advice) -> dict[str, Any]:
    answer = each.answer
    return {
        "lever": each.lever.name,
        "edits": each.lever.edits.listed(),
        "helps": each.helps,
        "effort": each.lever.effort,
        "precondition": each.lever.precondition,
        "gain": {"p50": each.median_gain._asdict(), "p99": each.gain._asdict()},
        "usd_per_hour": answer.predicted_usd_per_hour,
        "usd_per_hour_now": answer.usd_per_hour,
        "objectives": [
            {
                "slo": one.slo,
                "good_ratio_now": one.good_ratio_now,
                "good_ratio": one.good_ratio.value,
            }
            for one in answer.objectives
        ],
        "saturated": answer.saturated,
        "extrapolated": list(answer.extrapolated),
    }


def lines(found: AdviceAnswer) -> list[str]:
    """All changes that were tried (levers) as text. The changes that help are listed first."""
    title = TITLES[found.metric]
    helps = [each for each in found.advice if each.helps]
    others = [each for each in found.advice if not each.helps]
    first = found.advice[0].answer
    printed = [f"{first.requests:,} requests received {text.span(first.window)}"]
    if first.simulated:
        printed.append("simulated data")
    printed += left_out(first)
    error = first.reproduced[found.metric]["p99"].error_ratio
    if error is not None:
        printed.append(f"The replay of the unchanged range is {error:+.1%} off at P99 of {title}.")
    printed.append("")
    if helps:
        printed += _table(f"Shortens {title}, largest gain for its effort first", helps, title)
        printed.append("")
        for each in helps:
            printed.append(
                f"{', '.join(each.lever.edits.listed())}: needs {each.lever.precondition}"
            )
            printed += [f"  assumed: {one}" for one in each.answer.extrapolated]
        printed.append("")
    else:
        printed += [f"No change shortens the P99 of {title} on this traffic.", ""]
    if others:
        printed += [*_table(f"No gain at P99 of {title} here", others, title), ""]
    printed += [f"Not judged: {each}" for each in found.unknown]
    return printed


def _table(heading: str, advice: list[Advice], title: str) -> list[str]:
    slos = [each.slo for each in advice[0].answer.objectives]
    header = [heading, f"{title} P50", f"{title} P99", "95 % interval", *slos, "$/h"]
    rows = []
    for each in advice:
        answer = each.answer
        gain = each.gain
        shares = {one.slo: one for one in answer.objectives}
        rows.append(
            [
                f"{each.lever.name}: {', '.join(each.lever.edits.listed())}",
                _ratio(each.median_gain),
                "SATURATED" if answer.saturated else _ratio(gain),
                text.UNKNOWN
                if gain.low is None or gain.high is None
                else f"{gain.low:+.0%} to {gain.high:+.0%}",
                *(_points(shares.get(slo)) for slo in slos),
                _usd(answer.usd_per_hour, answer.predicted_usd_per_hour),
            ]
        )
    return text.table(header, rows, left=1, keep=len(header))


def _ratio(gain: Predicted) -> str:
    return text.UNKNOWN if gain.value is None else f"{gain.value:+.0%}"


def _points(each: PredictedAttainment | None) -> str:
    if each is None or each.good_ratio.value is None:
        return text.UNKNOWN
    return f"{text.percent(each.good_ratio_now)} to {text.percent(each.good_ratio.value)}"


def _usd(now: float | None, then: float | None) -> str:
    if now is None or then is None:
        return text.UNKNOWN
    return f"{then - now:+.2f}"
