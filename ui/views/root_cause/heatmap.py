"""A heatmap of all requests by time and latency, with the servers' state below. Pure."""

import math
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from telemetry.starts import EngineStart
from telemetry.window import Window
from ui.kit import charts, colours, wording
from ui.views.root_cause.distribution import LatencyDistribution
from ui.views.root_cause.server_state import StateLine

HEIGHT: Final = 230
LINE_HEIGHT: Final = 46
MAX_STARTS: Final = 50
_MARGINS: Final = 66


def figure(
    found: LatencyDistribution,
    lines: Sequence[StateLine],
    *,
    name: str,
    window: Window,
    whole: Window,
    baseline: Window,
    onset_unix_ns: int | None,
    starts: Sequence[EngineStart],
    thresholds_s: Sequence[float],
    zone: tzinfo,
    ink: colours.Ink,
) -> go.Figure:
    """Draw the distribution. Below it, draw the servers' state on the same time axis.

    Args:
        lines: the servers' state, in the bins of the distribution.
        name: the name of the latency.
        window: the selected range.
        whole: the range of the chart.
        onset_unix_ns: when the latency began to grow, if known.
    """
    height = HEIGHT + LINE_HEIGHT * len(lines)
    drawn = make_subplots(
        rows=1 + len(lines),
        shared_xaxes=True,
        vertical_spacing=10 / height,
        row_heights=[HEIGHT, *(LINE_HEIGHT for _ in lines)],
    )
    at = charts.local(found.bins.middles_unix_ns, zone)
    drawn.add_trace(_heatmap(found, at, ink), row=1, col=1)
    _starts(drawn, starts, whole, float(found.edges_s[0]), zone)
    # On a heatmap, Plotly cannot select a range. The reader selects these invisible points instead.
    middle = math.sqrt(float(found.edges_s[0] * found.edges_s[-1]))
    drawn.add_trace(_invisible_points(at, middle), row=1, col=1)
    ticks = charts.log_ticks(float(found.edges_s[0]), float(found.edges_s[-1]))
    drawn.update_yaxes(
        type="log",
        range=[math.log10(float(each)) for each in (found.edges_s[0], found.edges_s[-1])],
        **charts.axis_ticks(ticks, wording.tick_seconds),
        title={"text": f"{name}, log scale", "standoff": 6},
        showgrid=False,
        row=1,
        col=1,
    )
    for place, line in enumerate(lines, start=2):
        _line(drawn, line, at, place, ink)
    charts.over_time(drawn, whole, zone, height=height + _MARGINS)
    drawn.update_layout(hovermode="closest", showlegend=False)
    _baseline(drawn, baseline, whole, zone, ink)
    _mark_ranges(drawn, window, whole, onset_unix_ns, thresholds_s, zone, ink)
    return drawn


def _baseline(
    drawn: go.Figure, baseline: Window, whole: Window, zone: tzinfo, ink: colours.Ink
) -> None:
    start = max(baseline.from_unix_ns, whole.from_unix_ns)
    end = min(baseline.to_unix_ns, whole.to_unix_ns)
    if start >= end:
        return
    x0, x1 = charts.local([start, end], zone)
    drawn.add_shape(
        type="rect",
        x0=x0,
        x1=x1,
        y0=0,
        y1=1,
        xref="x",
        yref="paper",
        line={"width": 0},
        fillcolor=ink.band,
        layer="below",
    )
    _label(drawn, "baseline", x0, "left", ink)


def _label(drawn: go.Figure, text: str, x: datetime, xanchor: str, ink: colours.Ink) -> None:
    drawn.add_annotation(
        text=text,
        x=x,
        y=1,
        xref="x",
        yref="paper",
        xanchor=xanchor,
        yanchor="bottom",
        showarrow=False,
        font={"size": 11, "color": ink.strong},
    )


def _heatmap(found: LatencyDistribution, at: Sequence[datetime], ink: colours.Ink) -> go.Heatmap:
    counts = found.counts
    # The colour follows the square root. A linear scale would hide single requests, and a
    # logarithmic scale would hide large differences.
    shown = np.where(counts > 0, np.sqrt(counts), np.nan)
    bands = [
        f"{wording.seconds(low)} to {wording.seconds(high)}"
        for low, high in zip(found.edges_s[:-1].tolist(), found.edges_s[1:].tolist(), strict=True)
    ]
    return go.Heatmap(
        x=at,
        y=found.middles_s.tolist(),
        z=[charts.values_of(line) for line in shown],
        zmin=0,
        colorscale=[[0, ink.few], [1, ink.many]],
        showscale=False,
        hoverongaps=False,
        customdata=[
            [f"{wording.counted(count, 'request')}: {band}" for count in line]
            for line, band in zip(counts.tolist(), bands, strict=True)
        ],
        hovertemplate="%{customdata}<br>%{x}<extra></extra>",
    )


def _invisible_points(at: Sequence[datetime], middle_s: float) -> go.Scatter:
    return go.Scatter(
        x=at,
        y=[middle_s] * len(at),
        mode="markers",
        marker={"size": 1, "opacity": 0},
        hoverinfo="skip",
    )


def _starts(
    drawn: go.Figure, starts: Sequence[EngineStart], whole: Window, bottom_s: float, zone: tzinfo
) -> None:
    inside = [each for each in starts if whole.from_unix_ns <= each.at_unix_ns < whole.to_unix_ns][
        -MAX_STARTS:
    ]
    if inside:
        drawn.add_trace(
            go.Scatter(
                x=charts.local([each.at_unix_ns for each in inside], zone),
                y=[bottom_s * 1.06] * len(inside),
                mode="markers",
                marker={"symbol": "triangle-up", "size": 11, "color": colours.BROKEN},
                customdata=[wording.for_plotly(each.replica, 60) for each in inside],
                hovertemplate="%{customdata} was started<br>%{x}<extra></extra>",
                name="starts",
            ),
            row=1,
            col=1,
        )


def _line(
    drawn: go.Figure, line: StateLine, at: Sequence[datetime], row: int, ink: colours.Ink
) -> None:
    most = line.whole or max(float(np.nanmax(line.values)), 1.0)
    drawn.add_trace(
        go.Scatter(
            x=at,
            y=charts.values_of(line.values),
            mode="lines",
            line={"color": ink.middle, "width": 1.5, "shape": "hvh"},
            customdata=[
                "" if math.isnan(value) else f"{line.name} {line.shown(value)}"
                for value in line.values.tolist()
            ],
            hovertemplate=f"%{{customdata}}<br>%{{x}}<extra>{line.meaning}</extra>",
            name=line.name,
        ),
        row=row,
        col=1,
    )
    drawn.update_yaxes(
        range=[-0.06 * most, 1.08 * most],
        tickvals=[0, most],
        ticktext=["", line.shown(most)],
        tickfont={"size": 10},
        showgrid=False,
        row=row,
        col=1,
    )
    drawn.add_annotation(
        text=line.name,
        xref="x domain",
        yref=f"y{row} domain",
        x=0.005,
        y=1.0,
        xanchor="left",
        yanchor="top",
        showarrow=False,
        font={"size": 11, "color": ink.middle},
    )


def _mark_ranges(
    drawn: go.Figure,
    window: Window,
    whole: Window,
    onset_unix_ns: int | None,
    thresholds_s: Sequence[float],
    zone: tzinfo,
    ink: colours.Ink,
) -> None:
    edges: dict[int, tuple[str, str]] = {}
    if window.from_unix_ns > whole.from_unix_ns:
        edges[window.from_unix_ns] = ("selected range starts", "dot")
    if window.to_unix_ns < whole.to_unix_ns:
        edges[window.to_unix_ns] = ("selected range ends", "dot")
    if onset_unix_ns is not None:
        edges[onset_unix_ns] = ("increase begins", "solid")
    late_unix_ns = whole.from_unix_ns + (whole.to_unix_ns - whole.from_unix_ns) * 4 // 5
    for instant, (text, dash) in edges.items():
        (x,) = charts.local([instant], zone)
        drawn.add_shape(
            type="line",
            x0=x,
            x1=x,
            y0=0,
            y1=1,
            xref="x",
            yref="paper",
            line={"color": ink.strong, "width": 1, "dash": dash},
        )
        # At the right end of the chart, only the left side of the line has space for the label.
        _label(drawn, text, x, "left" if instant < late_unix_ns else "right", ink)
    for threshold_s in thresholds_s:
        drawn.add_hline(
            y=threshold_s,
            line={"color": colours.THRESHOLD, "dash": "dash", "width": 1.5},
            row=1,
            col=1,
        )
