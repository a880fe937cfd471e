"""Draw the percentiles of one latency, measured and predicted. Pure."""

from typing import Final

import plotly.graph_objects as go

from analysis.what_if import POINTS, WhatIfAnswer
from ui.kit import charts, colours, wording
from ui.views.what_if.words import NAMES

HEIGHT: Final = 240


def percentiles(answer: WhatIfAnswer, latency: str, ink: colours.Ink) -> go.Figure:
    """Draw each percentile as measured, and as predicted for the change, with an interval."""
    names = [point.upper() for point in POINTS]
    now = [answer.now[latency][point] for point in POINTS]
    then = [answer.predicted[latency][point] for point in POINTS]
    figure = go.Figure()
    for name, values, colour, spread in (
        ("measured", now, ink.weak, None),
        (
            "predicted",
            [each.value for each in then],
            ink.strong,
            {
                "array": [(each.high or 0) - (each.value or 0) for each in then],
                "arrayminus": [(each.value or 0) - (each.low or 0) for each in then],
            },
        ),
    ):
        figure.add_trace(
            go.Scatter(
                x=names,
                y=values,
                name=name,
                mode="lines+markers",
                line={"color": colour, "width": 2},
                error_y={"type": "data", **spread} if spread else None,
                customdata=[wording.seconds(value) for value in values],
                hovertemplate="%{customdata}<extra>" + name + "</extra>",
            )
        )
    highest = max([each.high or 0.0 for each in then] + [value or 0.0 for value in now])
    ticks = charts.linear_ticks(highest)
    figure.update_yaxes(
        tickvals=ticks,
        ticktext=[wording.tick_seconds(tick) for tick in ticks],
        title={"text": NAMES[latency], "standoff": 6},
        rangemode="tozero",
        fixedrange=True,
    )
    figure.update_xaxes(fixedrange=True)
    figure.update_layout(
        height=HEIGHT,
        margin=charts.MARGIN,
        legend=charts.LEGEND,
        dragmode=False,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    return figure
