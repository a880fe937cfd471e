"""Compliance with an objective by day or hour, from the store's counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Final

import numpy as np
import plotly.graph_objects as go
from sqlalchemy import Engine

from alerts.burnrate import EventCounts
from alerts.evaluation.counting import step_counts
from alerts.objectives import GoodEvents, Objective
from analysis.over_time.time_bins import SECOND_NS
from telemetry.window import Window
from ui.kit import charts, colours, wording

HOURS: Final = 72

_HOUR_S: Final = 3_600
_QUARTER_S: Final = 900


@dataclass(frozen=True, slots=True)
class ComplianceStep:
    """A day or an hour, with its counts of requests."""

    from_unix_s: int
    to_unix_s: int
    counts: EventCounts


def read(
    engine: Engine, objective: Objective, goodput: GoodEvents, at_s: int, zone: tzinfo, by: str
) -> tuple[ComplianceStep, ...]:
    """The days of the period, or the last 72 hours, that have requests. The oldest is first.

    Args:
        goodput: decides whether a request is good or bad.
        at_s: the end of the last day or hour, in unix seconds.
        zone: time zone of the days and hours.
        by: "day" or "hour".
    """
    start_s = at_s - HOURS * _HOUR_S if by == "hour" else objective.period_at(at_s).start_s
    offset = datetime.fromtimestamp(at_s, zone).utcoffset() or timedelta(0)
    fine_s = _QUARTER_S if offset.seconds % _HOUR_S else _HOUR_S
    from_s = start_s // fine_s * fine_s
    totals: dict[int, EventCounts] = {}
    for each in step_counts(engine, goodput, from_s, at_s, fine_s):
        step_s = _start_s(each.until_s - fine_s, zone, by)
        totals[step_s] = totals.get(step_s, EventCounts(0, 0)) + each.counts
    return tuple(
        ComplianceStep(step_s, _end_s(step_s, zone, by), counts)
        for step_s, counts in sorted(totals.items())
        if counts.events
    )


def _start_s(at_s: int, zone: tzinfo, by: str) -> int:
    at = datetime.fromtimestamp(at_s, zone).replace(minute=0, second=0, microsecond=0)
    if by == "day":
        at = at.replace(hour=0, fold=0)
    return int(at.timestamp())


def _end_s(start_s: int, zone: tzinfo, by: str) -> int:
    if by == "hour":
        return start_s + _HOUR_S
    # A day ends at the next local midnight, so it may last 23 or 25 hours.
    next_day = datetime.fromtimestamp(start_s, zone) + timedelta(days=1)
    return int(next_day.replace(hour=0).timestamp())


def sentence(
    steps: Sequence[ComplianceStep], objective: Objective, by: str, at_s: int, zone: tzinfo
) -> str:
    """The number of days or hours in which the objective was met, until `at_s`."""
    if not steps:
        return "No request was counted yet."
    kept = sum(1 for each in steps if (each.counts.bad_ratio or 0) <= objective.budget)
    every = sum(each.counts.events for each in steps)
    until = wording.clock(at_s * SECOND_NS, zone)
    return (
        f"Met on {kept} of {wording.counted(len(steps), by)} with"
        f" {every:,} {objective.counted_in} until {until}; the target is"
        f" {objective.target_written}."
    )


def figure(
    steps: Sequence[ComplianceStep],
    objective: Objective,
    window: Window,
    zone: tzinfo,
    ink: colours.Ink,
) -> go.Figure:
    """Draw the share of good requests per day or hour, and the target."""
    drawn = go.Figure()
    good = np.array([1 - float(each.counts.bad_ratio or 0) for each in steps])
    target = float(objective.target)
    middles = [(each.from_unix_s + each.to_unix_s) * SECOND_NS // 2 for each in steps]
    drawn.add_trace(
        go.Scatter(
            x=charts.local(middles, zone),
            y=good.tolist(),
            mode="lines+markers",
            line={"color": ink.weak, "width": 1},
            marker={
                "size": 8,
                "color": [ink.strong if each >= target else colours.BROKEN for each in good],
                "symbol": ["circle" if each >= target else "x" for each in good],
            },
            name="good",
            customdata=[
                f"{wording.exact_percent(share)} of {number:,} {objective.counted_in}"
                for share, number in zip(
                    good.tolist(), [each.counts.events for each in steps], strict=True
                )
            ],
            hovertemplate="%{customdata}<extra>good</extra>",
        )
    )
    drawn.add_trace(
        go.Scatter(
            x=charts.local([window.from_unix_ns, window.to_unix_ns], zone),
            y=[target, target],
            mode="lines",
            line={"color": colours.THRESHOLD, "width": 1.5, "dash": "dash"},
            name="target",
            hovertemplate=f"{objective.target_written}<extra>target</extra>",
        )
    )
    lost = max(float(np.max(1 - good, initial=0.0)), 1 - target) * 1.15
    ticks = [1 - tick for tick in charts.linear_ticks(lost)]
    drawn.update_yaxes(
        range=[min(1 - lost, ticks[-1]), 1 + lost * 0.06],
        tickvals=ticks,
        ticktext=[wording.exact_percent(round(tick, 9)) for tick in ticks],
        title={"text": f"good {objective.counted_in}", "standoff": 6},
    )
    charts.over_time(drawn, window, zone, 250)
    drawn.update_layout(hovermode="closest")
    return drawn
