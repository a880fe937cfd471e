"""The charts of the Requests page: time per phase, and the engines' state. Pure."""

import math
from datetime import tzinfo
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.over_time.columns import IntArray
from analysis.over_time.engine_gauges import EngineGauges
from analysis.over_time.phases import LAYERS, Matrix
from analysis.over_time.time_bins import Bins
from telemetry.window import Window
from ui.kit import charts, colours, wording


def phases(means_s: Matrix, requests: IntArray, bins: Bins, window: Window, zone: tzinfo) -> Any:
    """Draw the mean seconds per phase as stacked bars. A bar's height is the mean E2E latency."""
    figure = go.Figure()
    at = charts.local(bins.middles_unix_ns, zone)
    totals = means_s.sum(axis=1)
    for column, layer in enumerate(LAYERS):
        values = means_s[:, column]
        if not np.nansum(values) > 0:
            continue
        figure.add_trace(
            go.Bar(
                x=at,
                y=charts.values_of(np.where(values > 0, values, np.nan)),
                width=bins.width_s * 1000 * 0.92,
                name=layer.name,
                marker={
                    "color": layer.colour,
                    "line": {
                        "width": 0.6 if layer.key in ("stall", "delivery") else 0,
                        "color": colours.OUTLINE,
                    },
                },
                customdata=[
                    f"{wording.seconds(value)} ({wording.share(value, total)})"
                    for value, total in zip(values.tolist(), totals.tolist(), strict=True)
                ],
                hovertemplate="%{customdata}<extra>" + layer.name + "</extra>",
            )
        )
    figure.add_trace(
        go.Scatter(
            x=at,
            y=charts.values_of(totals),
            mode="lines",
            line={"width": 0},
            showlegend=False,
            customdata=[
                f"{wording.seconds(total)} · {wording.counted(count, 'request')}"
                for total, count in zip(totals.tolist(), requests.tolist(), strict=True)
            ],
            hovertemplate="%{customdata}<extra>mean E2E</extra>",
        )
    )
    top = float(np.nanmax(totals, initial=0.0))
    ticks = charts.linear_ticks(top)
    figure.update_layout(barmode="stack")
    figure.update_yaxes(
        range=[0, max(top * 1.05, ticks[-1])],
        **charts.axis_ticks(ticks, wording.tick_seconds),
        title={"text": "mean per request", "standoff": 6},
    )
    return charts.over_time(figure, window, zone, height=290)


def engines(found: EngineGauges, window: Window, zone: tzinfo) -> go.Figure:
    """Draw waiting requests, running requests and KV cache in use, one below the other."""
    figure = make_subplots(rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.13)
    at = charts.local(found.bins.middles_unix_ns, zone)
    rows = (("waiting", "waiting"), ("running", "running"), ("kv_usage_ratio", "KV used"))
    for line, (name, gauges) in enumerate(found.lines.items()):
        label = wording.for_plotly(name, 24)
        colour = colours.ENGINES[line % len(colours.ENGINES)]
        for row, (gauge, _) in enumerate(rows, start=1):
            format_value = wording.percent if gauge == "kv_usage_ratio" else wording.count
            figure.add_trace(
                go.Scatter(
                    x=at,
                    y=charts.values_of(gauges[gauge]),
                    name=label,
                    legendgroup=str(line),
                    showlegend=row == 1 and (len(found.lines) > 1 or found.together),
                    mode="lines",
                    line={"color": colour, "width": 1.5, "shape": "hv"},
                    connectgaps=False,
                    customdata=[format_value(value) for value in gauges[gauge].tolist()],
                    hovertemplate="%{customdata}<extra>" + label + "</extra>",
                ),
                row=row,
                col=1,
            )
    for row, (gauge, title) in enumerate(rows, start=1):
        values = np.concatenate([gauges[gauge] for gauges in found.lines.values()] or [np.zeros(1)])
        most = float(np.nanmax(values, initial=0.0))
        if gauge == "kv_usage_ratio":
            ticks = [0.0, 0.5, 1.0]
            texts = [wording.percent(tick) for tick in ticks]
        else:
            ticks = [0.0, float(max(1, math.ceil(most)))]
            texts = [wording.count(tick) for tick in ticks]
        figure.update_yaxes(
            row=row,
            col=1,
            range=[0, ticks[-1] * 1.08],
            tickvals=ticks,
            ticktext=texts,
        )
        charts.row_title(figure, row, title)
    figure.update_layout(legend={"xanchor": "right", "x": 1})
    return charts.over_time(figure, window, zone, height=300)
