"""The charts of the Outside page. Pure."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import Final

import plotly.graph_objects as go

from analysis.outside.answer import EndpointResults, OutsideAnswer
from telemetry.window import Window
from ui.kit import charts, colours, wording
from ui.views.outside.words import name

MAX_BARS: Final = 24
MAX_LINES: Final = len(colours.ENGINES)

PHASES: Final = {
    "late": ("late", "#8a8f98", "the prober started later than planned"),
    "dns": ("DNS", "#8c7350", "name lookup"),
    "connect": ("connect", "#c9822b", "TCP connection"),
    "tls": ("TLS", "#e5aa1f", "TLS handshake"),
    "server": ("server", "#2a60b5", "time to the first byte at the server"),
    "network": ("network", "#b0679b", "rest of the time to the first event, outside the server"),
    "not_split": ("server and network", "#7fa3d9", "connection ready → first event"),
    "content": ("to first content", "#c693e7", "first event → first content: reasoning"),
    "transfer": ("transfer", "#1da9a3", "first content → end of the answer"),
}
"""The name, colour and meaning of each phase, in order of time."""


def phases(endpoints: Sequence[EndpointResults]) -> go.Figure:
    """Draw the mean total wait of each endpoint and region, divided into phases."""
    shown = [p for p in endpoints if p.phases_s is not None][:MAX_BARS]
    rows = [wording.for_plotly(name(p), 60) for p in shown]
    figure = go.Figure()
    for key, (title, colour, meaning) in PHASES.items():
        seconds = [p.phases_s[key] for p in shown if p.phases_s is not None]
        if not any(seconds):
            continue
        figure.add_trace(
            go.Bar(
                # Two rows may have the same name, so the axis uses row numbers.
                y=list(range(len(rows))),
                x=seconds,
                name=title,
                orientation="h",
                marker={"color": colour, "line": {"width": 1, "color": colours.OUTLINE}},
                customdata=[wording.seconds(each) for each in seconds],
                hovertemplate=f"%{{customdata}} {meaning}<extra>{title}</extra>",
            )
        )
    top = max((p.wait_mean_s or 0.0 for p in shown), default=0.0)
    ticks = charts.linear_ticks(top)
    figure.update_xaxes(
        range=[0, max(top * 1.02, ticks[-1])],
        **charts.axis_ticks(ticks, wording.tick_seconds),
        title={"text": "mean wait of an answered probe", "standoff": 6},
        fixedrange=True,
    )
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=rows,
        autorange="reversed",
        fixedrange=True,
        showgrid=False,
        automargin=True,
    )
    return charts.plain(
        figure,
        150 + 26 * max(1, len(rows)),
        {"t": 52, "b": 48},
        barmode="stack",
        # The legend has the whole width, so that a phone shows several entries in one row.
        legend={**charts.LEGEND, "xref": "container", "x": 0.02},
        bargap=0.3,
    )


def waits(answer: OutsideAnswer, window: Window, zone: tzinfo) -> go.Figure:
    """Draw the median total wait over time, with a line for each endpoint and region."""
    figure = go.Figure()
    top = 0.0
    answering = [each for each in answer.endpoints if each.wait is not None]
    for place, colour in zip(drawn_endpoints(answering), colours.ENGINES, strict=False):
        steps = [each for each in place.steps if each.wait_p50_s is not None]
        values = [each.wait_p50_s or 0.0 for each in steps]
        top = max([top, *values])
        figure.add_trace(
            go.Scatter(
                x=charts.local(
                    [_middle_of_first_step(each.from_unix_ns, answer) for each in steps], zone
                ),
                y=values,
                name=wording.for_plotly(name(place), 40),
                mode="lines+markers",
                line={"color": colour, "width": 1.8},
                marker={"size": 4},
                customdata=[
                    f"{wording.seconds(value)}, {each.answered:,} of {each.sent:,} answered"
                    for each, value in zip(steps, values, strict=True)
                ],
                hovertemplate="%{customdata}<extra>%{fullData.name}</extra>",
            )
        )
    ticks = charts.linear_ticks(top)
    figure.update_yaxes(
        range=[0, max(top * 1.05, ticks[-1])],
        **charts.axis_ticks(ticks, wording.tick_seconds),
        title={"text": "median whole wait", "standoff": 6},
    )
    charts.over_time(figure, window, zone, height=300)
    return figure.update_layout(showlegend=True, margin={**charts.MARGIN, "t": 70})


def failures(answer: OutsideAnswer, window: Window, zone: tzinfo) -> go.Figure | None:
    """Draw the share of failed probes of each endpoint and region over time."""
    shown = [p for p in answer.endpoints if p.answered < p.sent][:MAX_BARS]
    if not shown:
        return None
    rows = [wording.for_plotly(name(p), 40) for p in shown]
    at = [_middle_of_first_step(each.from_unix_ns, answer) for each in shown[0].steps]
    figure = go.Figure(
        go.Heatmap(
            x=charts.local(at, zone),
            y=list(range(len(rows))),
            z=[[1 - s.answered / s.sent if s.sent else None for s in p.steps] for p in shown],
            zmin=0,
            zmax=1,
            colorscale=[[0, colours.ENDINGS["answered"]], [1, colours.ENDINGS["failed"]]],
            showscale=False,
            xgap=1,
            ygap=2,
            customdata=[
                [f"{s.sent - s.answered:,} of {s.sent:,} failed" for s in p.steps] for p in shown
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    charts.over_time(figure, window, zone, height=90 + 24 * len(rows))
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=rows, autorange="reversed", automargin=True
    )
    return figure.update_layout(hovermode="closest")


def drawn_endpoints(endpoints: Sequence[EndpointResults]) -> list[EndpointResults]:
    """The `MAX_LINES` endpoints with the most failures. With equally many failures, the number of
    probes decides."""
    ranked = sorted(endpoints, key=lambda p: (p.answered - p.sent, -p.sent))[:MAX_LINES]
    return [p for p in endpoints if p in ranked]


def _middle_of_first_step(from_unix_ns: int, answer: OutsideAnswer) -> int:
    return from_unix_ns + answer.step_s * 10**9 // 2
