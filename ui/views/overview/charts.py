"""Draw the charts of a range: percentiles with their usual band, traffic, failures. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from analysis.over_time.columns import FloatArray
from analysis.over_time.trends import USUAL, Trend
from telemetry.requests import Outcome
from telemetry.window import Window
from ui.kit import charts, colours, wording

HEIGHT: Final = 250
BANDS: Final = ("p50", "p99")
"""The percentiles whose usual band is drawn. A reader could not distinguish three bands."""

STILL_RUNNING: Final = 3
"""Maximum number of bins to omit at the end of the range, where requests still run."""

ENDINGS: Final[Mapping[str, tuple[Outcome, ...]]] = {
    "answered": (Outcome.STOP, Outcome.LENGTH),
    "cancelled": (Outcome.ABORT,),
    "refused": (Outcome.REJECTED,),
    "failed": (Outcome.ERROR,),
}

TimeRange = tuple[int, int]
"""Start and end in unix ns."""


def latency(
    now: Trend,
    before: Trend | None,
    name: str,
    shown: str,
    thresholds_s: Sequence[float],
    incidents: Sequence[TimeRange],
    zone: tzinfo,
    ink: colours.Ink,
) -> go.Figure:
    """Draw P50, P95 and P99 of a latency, with thresholds and usual bands.

    Args:
        before: the baseline. Its percentiles are the usual values.
        name: the latency's column. The page shows it as `shown`.
        incidents: times in which an error budget burned too fast.
    """
    usual = {} if before is None else {each: before.usual(name, each) for each in BANDS}
    bands = {each: found for each, found in usual.items() if found is not None and found[0] > 0}
    around = [*thresholds_s, *(value for found in bands.values() for value in found)]
    figure = charts.percentiles(
        now.percentiles[name], now.bins, now.window, zone, ink, shown, around
    )
    ends = charts.local([now.window.from_unix_ns, now.window.to_unix_ns], zone)
    for place, (quantile, (low, high)) in enumerate(bands.items()):
        figure.add_trace(
            go.Scatter(
                x=[*ends, *reversed(ends)],
                y=[low, low, high, high],
                fill="toself",
                fillcolor=ink.band,
                line={"width": 0},
                mode="lines",
                name="usual",
                legendgroup="usual",
                showlegend=place == 0,
                hoverinfo="skip",
            )
        )
        between = f"{wording.seconds(low)} to {wording.seconds(high)}"
        _add_hover_text(figure, now, zone, high, between, f"usual {quantile.upper()}")
    for place, threshold in enumerate(sorted(set(thresholds_s))):
        figure.add_trace(
            go.Scatter(
                x=ends,
                y=[threshold, threshold],
                mode="lines",
                line={"color": colours.THRESHOLD, "width": 1.5, "dash": "dash"},
                name="SLO",
                legendgroup="threshold",
                showlegend=place == 0,
                hovertemplate=f"{wording.seconds(threshold)}<extra>SLO</extra>",
            )
        )
    _mark_incidents(figure, incidents, now.window, zone)
    figure.update_layout(height=HEIGHT, margin={**charts.MARGIN, "t": 44, "l": 60})
    return figure


def traffic(
    now: Trend, before: Trend | None, incidents: Sequence[TimeRange], zone: tzinfo, ink: colours.Ink
) -> go.Figure:
    """Draw requests per second by outcome, and their usual band."""
    figure = go.Figure()
    at, width_s = charts.local(now.bins.middles_unix_ns, zone), now.seen_s
    for name, outcomes in ENDINGS.items():
        number = now.ended(*outcomes)
        if name != "answered" and not number.sum():
            continue
        rate = number / width_s
        figure.add_trace(
            go.Bar(
                x=at,
                y=charts.values_of(rate),
                width=now.bins.width_s * 1000 * 0.92,
                name=name,
                marker={"color": colours.ENDINGS[name]},
                customdata=[
                    f"{wording.number(each)}/s ({wording.counted(many, 'request')})"
                    for each, many in zip(rate.tolist(), number.tolist(), strict=True)
                ],
                hovertemplate="%{customdata}<extra>" + name + "</extra>",
            )
        )
    rates = [_rate(now)]
    if before is not None and before.bins.count >= 1:
        usual = _usual(_rate(before))
        rates.append(np.array(usual))
        ends = charts.local([now.window.from_unix_ns, now.window.to_unix_ns], zone)
        figure.add_trace(
            go.Scatter(
                x=[*ends, *reversed(ends)],
                y=[usual[0], usual[0], usual[1], usual[1]],
                fill="toself",
                fillcolor=ink.band,
                line={"width": 1, "color": ink.weak, "dash": "dot"},
                mode="lines",
                name="usual",
                hoverinfo="skip",
            )
        )
        between = f"{wording.number(usual[0])} to {wording.number(usual[1])}/s"
        _add_hover_text(figure, now, zone, usual[1], between, "usual")
    _axis(figure, rates, wording.number, "requests/s")
    figure.update_layout(barmode="stack")
    _mark_incidents(figure, incidents, now.window, zone)
    return charts.over_time(figure, now.window, zone, HEIGHT)


def failures(
    now: Trend, before: Trend | None, incidents: Sequence[TimeRange], zone: tzinfo, ink: colours.Ink
) -> go.Figure:
    """Draw the share of requests without a complete response, by reason."""
    figure = go.Figure()
    at = charts.local(now.bins.middles_unix_ns, zone)
    drawn = []
    for name, outcomes in list(ENDINGS.items())[1:]:
        share = _share(now, outcomes)
        drawn.append(share)
        number = now.ended(*outcomes).tolist()
        figure.add_trace(
            go.Scatter(
                x=at,
                y=charts.values_of(share),
                mode="lines+markers",
                marker={"size": 4},
                line={"color": colours.ENDINGS[name], "width": 2},
                name=name,
                connectgaps=False,
                customdata=[
                    f"{wording.exact_percent(each)} ({wording.counted(many, 'request')})"
                    for each, many in zip(share.tolist(), number, strict=True)
                ],
                hovertemplate="%{customdata}<extra>" + name + "</extra>",
            )
        )
    if before is not None:
        lost = before.number - int(before.ended(*ENDINGS["answered"]).sum())
        usual = lost / before.number
        ends = charts.local([now.window.from_unix_ns, now.window.to_unix_ns], zone)
        figure.add_trace(
            go.Scatter(
                x=ends,
                y=[usual, usual],
                mode="lines",
                line={"color": ink.weak, "width": 1, "dash": "dot"},
                name="usual, all reasons",
                hovertemplate=f"{wording.exact_percent(usual)}<extra>usual, all reasons</extra>",
            )
        )
        drawn.append(np.array([usual]))
    _axis(figure, [*drawn, np.array([0.01])], wording.exact_percent, "of requests")
    _mark_incidents(figure, incidents, now.window, zone)
    return charts.over_time(figure, now.window, zone, HEIGHT)


def _add_hover_text(
    figure: go.Figure, now: Trend, zone: tzinfo, at_value: float, text: str, name: str
) -> None:
    at = charts.local(now.bins.middles_unix_ns, zone)
    figure.add_trace(
        go.Scatter(
            x=at,
            y=[at_value] * len(at),
            mode="lines",
            line={"width": 0},
            showlegend=False,
            hovertemplate=f"{text}<extra>{name}</extra>",
        )
    )


def _axis(figure: go.Figure, drawn: Sequence[FloatArray], format_tick: Any, title: str) -> None:
    top = max((float(np.nanmax(each, initial=0.0)) for each in drawn if each.size), default=0.0)
    ticks = charts.linear_ticks(top)
    figure.update_yaxes(
        range=[0, max(top * 1.08, ticks[-1])],
        **charts.axis_ticks(ticks, format_tick),
        title={"text": title, "standoff": 6},
    )


def _rate(trend: Trend) -> FloatArray:
    rate: FloatArray = trend.ended(*Outcome) / trend.seen_s
    return rate


def _usual(rate: FloatArray) -> tuple[float, float]:
    """The usual range of the rates. Bins without requests are excluded, because data may be
    missing."""
    low, high = np.quantile(rate[rate > 0], USUAL)
    return float(low), float(high)


def _share(trend: Trend, outcomes: Sequence[Outcome]) -> FloatArray:
    every = trend.ended(*Outcome)
    known = every > 0
    # Refusals are reported at once. While most requests still run, the share of refusals is too
    # high.
    enough = np.median(every[known]) / 2 if known.any() else 0.0
    for place in range(trend.bins.count - 1, max(-1, trend.bins.count - 1 - STILL_RUNNING), -1):
        if every[place] >= enough:
            break
        known[place] = False
    known &= trend.seen_s >= trend.bins.width_s / 2
    share: FloatArray = np.where(known, trend.ended(*outcomes) / np.maximum(every, 1), np.nan)
    return share


def union(time_ranges: Iterable[TimeRange]) -> list[TimeRange]:
    """The ranges in order of time. Ranges that overlap or touch are joined."""
    joined: list[TimeRange] = []
    for from_ns, to_ns in sorted(time_ranges):
        if joined and from_ns <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], to_ns)
        else:
            joined.append((from_ns, to_ns))
    return joined


def _mark_incidents(
    figure: go.Figure, incidents: Sequence[TimeRange], window: Window, zone: tzinfo
) -> None:
    for from_ns, to_ns in union(incidents):
        low, high = max(from_ns, window.from_unix_ns), min(to_ns, window.to_unix_ns)
        if low < high:
            x0, x1 = charts.local([low, high], zone)
            figure.add_vrect(x0=x0, x1=x1, fillcolor=colours.INCIDENT, line_width=0, layer="below")
