"""The charts of the Compare page. Pure."""

from collections.abc import Callable, Sequence
from typing import Final

import plotly.graph_objects as go

from analysis.compare.answer import CompareAnswer
from analysis.compare.intervals import Interval
from analysis.compare.load_curve import LoadPoint
from analysis.compare.parts import PercentileParts
from ui.kit import charts, colours, wording

HEIGHT: Final = 280
PARTS: Final = {
    "mix": (
        colours.ENGINES[0],
        "different requests: other prompts, tenants or cache hits, or requests that cannot be"
        " compared",
    ),
    "load": (colours.ENGINES[1], "other work on the engines at the same time"),
    "change": (colours.ENGINES[3], "the difference at the same mix and load"),
}


def waterfall(parts: PercentileParts, change: Interval | None, name: str) -> go.Figure:
    """Draw the percentile before and after the change, and the parts of the difference.

    `change` is the 95 % interval of the part "change", in seconds. `name` is a text such as `P95
    TTFT`.
    """
    figure = go.Figure()
    figure.add_trace(_bar("before", 0.0, parts.before_s, colours.TOTAL, name, wording.seconds))
    ends = [parts.before_s]
    for part, (colour, meaning) in PARTS.items():
        grown = getattr(parts, f"{part}_s")
        if part == "change" and change is not None:
            meaning += f"<br>95 % interval {wording.signed_seconds(change.low)} to "
            meaning += wording.signed_seconds(change.high)
        figure.add_trace(_bar(part, ends[-1], grown, colour, meaning, wording.signed_seconds))
        ends.append(ends[-1] + grown)
    figure.add_trace(_bar("after", 0.0, parts.after_s, colours.TOTAL, name, wording.seconds))
    low, high = min(0.0, *ends), max(ends)
    ticks = charts.linear_ticks(high)
    figure.update_xaxes(
        range=[low, low + (high - low) * 1.25],
        **charts.axis_ticks(ticks, wording.tick_seconds),
        fixedrange=True,
        title={"text": name, "standoff": 4},
    )
    return charts.waterfall(figure, len(figure.data), left=84)


def curve(answer: CompareAnswer, name: str, ink: colours.Ink) -> go.Figure:
    """Draw the percentile before and after the change, by the number of running requests at a
    request's arrival."""
    points = answer.decision.curve
    figure = go.Figure()
    loads = [each.load for each in points]
    before = [each.before_s for each in points]
    figure.add_trace(_line("before, same mix and load", loads, before, ink.weak, points))
    after = _line("after", loads, [each.after_s for each in points], ink.strong, points)
    after.error_y = {
        "type": "data",
        "symmetric": False,
        "array": [each.before_s + each.high_s - each.after_s for each in points],
        "arrayminus": [each.after_s - each.before_s - each.low_s for each in points],
        "thickness": 1,
        "width": 4,
    }
    figure.add_trace(after)
    top = max(max(each.after_s, each.before_s, each.before_s + each.high_s) for each in points)
    ticks = charts.linear_ticks(top)
    figure.update_yaxes(
        range=[0, 1.08 * max(top, ticks[-1])],
        **charts.axis_ticks(ticks, wording.tick_seconds),
        title={"text": name, "standoff": 6},
        zeroline=False,
        fixedrange=True,
    )
    figure.update_xaxes(
        title={"text": "running requests at arrival", "standoff": 6},
        fixedrange=True,
        showgrid=False,
    )
    return charts.plain(figure, HEIGHT, {"b": 52}, legend=charts.LEGEND)


def _line(
    name: str, x: Sequence[float], y: Sequence[float], colour: str, points: Sequence[LoadPoint]
) -> go.Scatter:
    return go.Scatter(
        x=list(x),
        y=list(y),
        name=name,
        mode="lines+markers",
        line={"color": colour, "width": 2},
        marker={"size": 6},
        customdata=[_hover_text(each) for each in points],
        hovertemplate="%{customdata}<extra>" + name + "</extra>",
    )


def _hover_text(each: LoadPoint) -> str:
    return (
        f"{each.load:.0f} running, {each.requests:,} requests<br>"
        f"{wording.seconds(each.before_s)} before, {wording.seconds(each.after_s)} after<br>"
        f"difference {wording.signed_seconds(each.low_s)} to {wording.signed_seconds(each.high_s)}"
    )


def _bar(
    name: str,
    from_s: float,
    size_s: float,
    colour: str,
    meaning: str,
    write: Callable[[float], str],
) -> go.Bar:
    return charts.step_bar(name, from_s, size_s, colour, write(size_s), f"{name}: {meaning}")
