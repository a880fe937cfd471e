"""Draw measured and predicted percentiles of a latency, and the result of a sweep. Pure.

A sweep is a range of values for which the latency is predicted.
"""

import math
from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from analysis.corrected_prediction import Predicted
from analysis.what_if import WhatIfAnswer
from analysis.what_if_search import number_of
from ui.kit import charts, colours, wording
from ui.views.what_if.read import SweepAnswer
from ui.views.what_if.words import CANNOT_KEEP_UP, NAMES, SHOWN, interval, present

HEIGHT: Final = 280
TICKS: Final = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)


def percentiles(answer: WhatIfAnswer, latency: str, ink: colours.Ink) -> go.Figure:
    """Draw the measured percentiles, and the predicted percentiles with their intervals."""
    points = answer.curves[latency]
    names = [_percentile(each.q) for each in points]
    now = [each.now for each in points]
    then = [each.predicted for each in points]
    figure = go.Figure()
    for ends, fill in (([each.low for each in then], None), ([each.high for each in then], "y")):
        figure.add_trace(
            go.Scatter(
                x=names,
                y=ends,
                mode="lines",
                line={"width": 0},
                fill="tonexty" if fill else None,
                fillcolor=ink.band,
                hoverinfo="skip",
                showlegend=False,
            )
        )
    figure.add_trace(
        _line(
            *("measured", names, now, ink.weak),
            [f"{name}: {wording.seconds(value)}" for name, value in zip(names, now, strict=True)],
        )
    )
    figure.add_trace(
        _line(
            *("predicted", names, [each.value for each in then], ink.strong),
            [f"{name}: {_with_interval(each)}" for name, each in zip(names, then, strict=True)],
        )
    )
    ticks = [_percentile(q) for q in TICKS]
    figure.update_xaxes(
        type="category",
        tickvals=[name for name in ticks if name in names],
        title={"text": "percentile", "standoff": 6},
    )
    ends = [end for each in then for end in (each.value, each.low, each.high)]
    return _with_layout(figure, latency, [*now, *ends])


def sweep(swept: SweepAnswer, latency: str, ink: colours.Ink) -> go.Figure:
    """Draw P50 and P99 over the values of a sweep.

    A cross marks a value with which the engines cannot keep up.
    """
    names = [each.value for each in swept.points]
    kept = [not each.answer.saturated for each in swept.points]
    first = swept.points[0].answer
    now = present(swept)
    figure = go.Figure()
    drawn: list[float | None] = []
    for point, colour in zip(SHOWN, (ink.middle, ink.strong), strict=True):
        found = [
            each.answer.predicted[latency][point] if keeps else Predicted(None)
            for each, keeps in zip(swept.points, kept, strict=True)
        ]
        values = [each.value for each in found]
        line = _line(point.upper(), names, values, colour, [_with_interval(each) for each in found])
        if swept.intervals:
            line.error_y = {
                "type": "data",
                "symmetric": False,
                "array": [_length(each.value, each.high) for each in found],
                "arrayminus": [_length(each.low, each.value) for each in found],
                "thickness": 1,
                "width": 4,
            }
        figure.add_trace(line)
        measured = first.now[latency][point]
        figure.add_trace(
            go.Scatter(
                x=[now],
                y=[measured],
                name=f"{point.upper()} now",
                mode="markers",
                marker={
                    "symbol": "diamond-open",
                    "size": 11,
                    "color": colour,
                    "line": {"width": 2},
                },
                customdata=[f"{wording.seconds(measured)}, measured"],
                hovertemplate="%{customdata}<extra>" + point.upper() + " now</extra>",
            )
        )
        drawn += [*values, *(end for each in found for end in (each.low, each.high)), measured]
    finished = _with_layout(figure, latency, drawn)
    if not all(kept):
        saturated = [name for name, keeps in zip(names, kept, strict=True) if not keeps]
        figure.add_trace(
            go.Scatter(
                x=saturated,
                y=[0.97] * len(saturated),
                yaxis="y2",
                name=CANNOT_KEEP_UP,
                mode="markers",
                marker={"symbol": "x", "size": 10, "color": colours.BROKEN},
                customdata=[CANNOT_KEEP_UP] * len(saturated),
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
        figure.update_layout(
            yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
        )
    # The sweep may not contain the present value.
    order = sorted(dict.fromkeys([*names, now]), key=number_of)
    figure.update_xaxes(
        type="category",
        categoryorder="array",
        categoryarray=order,
        range=[-0.5, len(order) - 0.5],
        tickvals=order,
        ticktext=[f"{name}<br>now" if name == now else name for name in order],
        title={"text": swept.name, "standoff": 6},
    )
    figure.add_vline(x=order.index(now), line={"width": 1, "dash": "dot", "color": ink.weak})
    return finished


def _percentile(q: float) -> str:
    return f"P{100 * q:g}"


def _with_interval(each: Predicted) -> str:
    return f"{wording.seconds(each.value)}{interval(each)}"


def _length(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else high - low


def _line(
    name: str,
    x: Sequence[str],
    values: Sequence[float | None],
    colour: str,
    hover_texts: Sequence[str],
) -> go.Scatter:
    return go.Scatter(
        x=x,
        y=values,
        name=name,
        mode="lines+markers",
        line={"color": colour, "width": 2},
        marker={"size": 5},
        customdata=hover_texts,
        hovertemplate="%{customdata}<extra>" + name + "</extra>",
    )


def _with_layout(figure: go.Figure, latency: str, values: Sequence[float | None]) -> go.Figure:
    known = [value for value in values if value is not None]
    smallest, largest = min(known, default=0.01), max(known, default=1.0)
    # A logarithmic axis cannot show 0, and most queueing times are 0.
    linear = smallest <= 0
    ticks = charts.linear_ticks(largest) if linear else charts.log_ticks(smallest, largest)
    logs = [] if linear else [math.log10(ticks[0]) - 0.05, math.log10(ticks[-1]) + 0.05]
    top = max(largest, ticks[-1])
    figure.update_yaxes(
        type="linear" if linear else "log",
        range=logs or [-0.05 * top, 1.05 * top],
        **charts.axis_ticks(ticks, wording.tick_seconds),
        title={"text": NAMES[latency] + ("" if linear else ", log scale"), "standoff": 6},
        zeroline=False,
        fixedrange=True,
    )
    figure.update_xaxes(fixedrange=True, showgrid=False)
    return charts.plain(figure, HEIGHT, {"b": 52}, legend=charts.LEGEND)
