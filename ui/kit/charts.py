"""Draw series as Plotly figures. Pure.

Charts over time have the same range and margins, so an instant has the same position in each chart.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone, tzinfo
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from analysis.over_time.columns import FloatArray, IntArray
from analysis.over_time.percentiles import Percentiles
from analysis.over_time.time_bins import Bins
from telemetry.window import Window
from ui.kit import colours, wording

CONFIG: Final = {
    "displayModeBar": "hover", "displaylogo": False, "modeBarButtons": [["toImage"]],
    "scrollZoom": False, "doubleClick": False,
}  # fmt: skip
MARGIN: Final = {"l": 68, "r": 10, "t": 30, "b": 36, "pad": 4}
ZONE: Final = "zone"
"""The key in `meta` for the time zone of the time axis."""
LEGEND: Final = {
    "orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom",
    "traceorder": "normal", "itemclick": False, "itemdoubleclick": False, "font": {"size": 12},
}  # fmt: skip


def axis_zone(zone: tzinfo, window: Window) -> tzinfo:
    """The time zone of a time axis: the zone's offset from UTC at the end of the range.

    In local time, the end of daylight saving time would put two hours at the same position.
    """
    offset = datetime.fromtimestamp(window.to_unix_ns / 1e9, zone).utcoffset()
    return zone if offset is None else timezone(offset, str(zone))


def local(at_unix_ns: Sequence[int] | IntArray, zone: tzinfo) -> list[datetime]:
    """Convert instants to the time in an `axis_zone`. Plotly does not convert time zones."""
    return [datetime.fromtimestamp(int(at) / 1e9, zone).replace(tzinfo=None) for at in at_unix_ns]


def percentiles(
    found: Percentiles,
    bins: Bins,
    window: Window,
    zone: tzinfo,
    ink: colours.Ink,
    name: str,
    around_s: Sequence[float] = (),
) -> go.Figure:
    """Draw P50, P95 and P99 over time. The logarithmic axis also includes the values `around_s`."""
    figure = go.Figure()
    at = local(bins.middles_unix_ns, zone)
    styles: dict[str, dict[str, Any]] = {
        "p50": {"color": ink.weak, "width": 1.5, "dash": "dot"},
        "p95": {"color": ink.middle, "width": 1.5},
        "p99": {"color": ink.strong, "width": 2.5},
    }
    for key, style in styles.items():
        series = found.series[key]
        # A logarithmic axis cannot show 0.
        drawn = np.where(series.value_s > 0, series.value_s, np.nan)
        # A line needs two bins, so mark a bin without neighbours. Other bins get no markers,
        # because markers take time to draw.
        lone = _points_without_neighbours(drawn)
        seen = {"size": np.where(lone, 5, 0).tolist(), "color": style["color"]}
        figure.add_trace(
            go.Scatter(
                x=at,
                y=values_of(drawn),
                name=key.upper(),
                mode="lines+markers" if lone.any() else "lines",
                line=style,
                marker=seen if lone.any() else None,
                connectgaps=False,
                customdata=_hover_texts(series.value_s, series.low_s, series.high_s),
                hovertemplate="%{customdata}<extra>" + key.upper() + "</extra>",
            )
        )
    drawn_s = [each.value_s for each in found.series.values()]
    smallest, largest = _positive_range([*drawn_s, np.array(around_s, dtype=np.float64)])
    figure.add_trace(
        go.Scatter(
            x=at,
            y=[smallest if count else None for count in found.requests.tolist()],
            mode="lines",
            line={"width": 0},
            showlegend=False,
            customdata=[wording.counted(count, "request") for count in found.requests.tolist()],
            hovertemplate="%{customdata}<extra>n</extra>",
        )
    )
    ticks = log_ticks(smallest, largest)
    figure.update_yaxes(
        type="log",
        range=[math.log10(ticks[0]) - 0.05, math.log10(ticks[-1]) + 0.05],
        **axis_ticks(ticks, wording.tick_seconds),
        title={"text": f"{name}, log scale", "standoff": 6},
    )
    return over_time(figure, window, zone, height=270)


def log_ticks(smallest: float, largest: float) -> list[float]:
    """The powers of ten around a range. If there is space, 3 times each power is added."""
    low, high = math.floor(math.log10(smallest)), math.ceil(math.log10(largest))
    steps = (1, 3) if high - low <= 3 else (1,)
    every = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    first = max((i for i, tick in enumerate(every) if tick <= smallest), default=0)
    last = min((i for i, tick in enumerate(every) if tick >= largest), default=len(every) - 1)
    return every[first : max(last, first + 1) + 1]


def linear_ticks(largest: float) -> list[float]:
    """About four round values from 0 to `largest`."""
    if not largest > 0:
        return [0.0, 1.0]
    rough = largest / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    return [step * number for number in range(int(largest / step + 1e-9) + 1)]


def axis_ticks(values: Sequence[float], shown: Callable[[float], str]) -> dict[str, Any]:
    """The arguments of an axis with ticks at these values."""
    return {"tickvals": list(values), "ticktext": [shown(each) for each in values]}


def plain(figure: go.Figure, height: int, margin: Mapping[str, int], **more: Any) -> go.Figure:
    """Apply the layout of all charts: no background, and no dragging. `margin` updates `MARGIN`."""
    return figure.update_layout(
        height=height,
        margin={**MARGIN, **margin},
        dragmode=False,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        **more,
    )


def step_bar(name: str, start: float, size: float, colour: str, label: str, hover: str) -> go.Bar:
    """A horizontal bar of a waterfall, with a label beside the bar."""
    return go.Bar(
        y=[name],
        x=[size],
        base=[start],
        orientation="h",
        marker={"color": colour, "line": {"width": 1, "color": colours.OUTLINE}},
        text=[label],
        textposition="outside",
        cliponaxis=False,
        hovertemplate=f"{hover}<extra></extra>",
        showlegend=False,
    )


def waterfall(figure: go.Figure, bars: int, left: int) -> go.Figure:
    """Apply the layout of a waterfall with this many bars. The names of the bars have `left`
    pixels."""
    figure.update_yaxes(autorange="reversed", fixedrange=True, showgrid=False)
    return plain(figure, 84 + 28 * bars, {"l": left, "t": 18, "b": 40}, bargap=0.32)


def over_time(figure: go.Figure, window: Window, zone: tzinfo, height: int) -> go.Figure:
    """Apply the axis that all charts over time share."""
    figure.update_xaxes(
        range=local([window.from_unix_ns, window.to_unix_ns], zone),
        type="date",
        fixedrange=True,
        showgrid=False,
        nticks=7,
        tickformatstops=[
            {"dtickrange": [None, 60_000], "value": "%H:%M:%S"},
            {"dtickrange": [60_000, 86_400_000], "value": "%H:%M\n%b %-d"},
            {"dtickrange": [86_400_000, None], "value": "%b %-d\n%Y"},
        ],
    )
    figure.update_yaxes(fixedrange=True, zeroline=False, automargin=False)
    figure.add_annotation(
        text=wording.zone_offset(zone, window.to_unix_ns),
        # The text is beside the second line of the tick labels. Only the first tick of each day has
        # a second line.
        xref="paper",
        yref="paper",
        x=1,
        y=0,
        xanchor="right",
        yanchor="top",
        yshift=-19,
        showarrow=False,
        font={"size": 10},
        opacity=0.8,
    )
    return plain(
        figure,
        height,
        {},
        meta={ZONE: wording.zone_name(zone, window.to_unix_ns).removeprefix("times in ")},
        legend={**LEGEND, **figure.layout.legend.to_plotly_json()},
        hovermode="x unified",
        uirevision="kept",
    )


def row_title(figure: go.Figure, row: int, title: str) -> None:
    """Write a title above a row of subplots. The first row is 1."""
    figure.add_annotation(
        text=title,
        font={"size": 12},
        showarrow=False,
        x=0,
        xref="paper",
        xanchor="left",
        y=1,
        yref="y domain" if row == 1 else f"y{row} domain",
        yanchor="bottom",
    )


def values_of(values: FloatArray) -> list[float | None]:
    """Replace NaN by None, because JSON has no NaN."""
    return [None if math.isnan(value) else value for value in values.tolist()]


def _hover_texts(values: FloatArray, low: FloatArray, high: FloatArray) -> list[str]:
    return [
        f"{wording.seconds(value)} [{wording.seconds(bottom)} to {wording.seconds(top)}]"
        for value, bottom, top in zip(values.tolist(), low.tolist(), high.tolist(), strict=True)
    ]


def _points_without_neighbours(values: FloatArray) -> Any:
    gap = np.concatenate([[True], np.isnan(values), [True]])
    return gap[:-2] & ~gap[1:-1] & gap[2:]


def _positive_range(arrays: Sequence[FloatArray]) -> tuple[float, float]:
    joined = np.concatenate(arrays)
    positive = joined[joined > 0]
    if not positive.size:
        return 0.01, 1.0
    return float(positive.min()), float(positive.max())
