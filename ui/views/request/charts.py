"""The charts of one request. Pure.

All charts begin at the request's receipt, with the same range and margins.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ui.kit import charts, colours, wording
from ui.views.request.engine_state import TimeSeries
from ui.views.request.neighbours import Neighbour
from ui.views.request.timeline import Instant, Segment, TimelineStage

LEFT, RIGHT = 84, 10
ROOM: Final = 1.2
"""Length of the axis divided by the request's duration. The additional length is for labels beside
the bars."""
NEAR: Final = 0.2
"""Labels are stacked if their distance is less than this share of the axis."""
NAME_PX: Final = 15
QUIET: Final = "rgba(140,140,140,0.35)"
PREFILL_OF_OTHERS: Final = "rgba(140,140,140,0.85)"


def lifeline(
    stages: Sequence[TimelineStage], instants: Sequence[Instant], end_s: float
) -> go.Figure:
    """Draw a row for each phase, with its parts. Instants are vertical lines across all rows."""
    figure = go.Figure()
    for stage in stages:
        for segment in stage.segments:
            figure.add_trace(_bar(stage, segment))
        figure.add_annotation(
            x=stage.to_s,
            y=stage.name,
            text=wording.seconds(stage.length_s),
            xanchor="left",
            xshift=4,
            showarrow=False,
            font={"size": 12},
        )
    levels = _levels([instant.at_s / end_s if end_s else 0.0 for instant in instants])
    for instant, level in zip(instants, levels, strict=True):
        figure.add_vline(x=instant.at_s, line={"width": 1, "dash": "dot", "color": colours.OUTLINE})
        right = end_s > 0 and instant.at_s > 0.75 * end_s
        figure.add_annotation(
            x=instant.at_s,
            y=1,
            yref="paper",
            yanchor="bottom",
            yshift=2 + NAME_PX * level,
            text=instant.name,
            xanchor="right" if right else "left",
            showarrow=False,
            font={"size": 11},
        )
    top = 28 + NAME_PX * (max(levels, default=0) + 1)
    figure.update_layout(barmode="overlay", bargap=0.3)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return _since_received(figure, end_s, height=top + 44 + 30 * max(1, len(stages)), top=top)


def _bar(stage: TimelineStage, segment: Segment) -> go.Bar:
    return go.Bar(
        y=[stage.name],
        x=[segment.length_s],
        base=[segment.from_s],
        orientation="h",
        name=segment.name,
        showlegend=False,
        marker={
            "color": segment.colour,
            "line": {"width": 1, "color": colours.OUTLINE},
            "pattern": {
                "shape": segment.pattern,
                "fgcolor": colours.on(segment.colour),
                "fgopacity": 0.45,
                "size": 6,
                "solidity": 0.25,
                "fillmode": "overlay",
            },
        },
        hovertemplate=(
            f"{segment.name}: {wording.seconds(segment.length_s)}<br>{segment.meaning}"
            "<extra></extra>"
        ),
    )


def _levels(shares: Sequence[float]) -> list[int]:
    """For each label, the lowest row in which it overlaps no other label.

    `shares` are positions on the axis.
    """
    levels: list[int] = []
    for place, share in enumerate(shares):
        taken = {levels[other] for other in range(place) if abs(share - shares[other]) < NEAR}
        levels.append(next(level for level in range(len(shares)) if level not in taken))
    return levels


def neighbours(drawn: Sequence[Neighbour], end_s: float) -> go.Figure:
    """Draw a row for each neighbour.

    The prefill of a neighbour is coloured if the neighbour delayed the request.
    """
    figure = go.Figure()
    rows = [f"{place:02d}" for place in range(len(drawn))]
    whole: dict[str, Any] = {"orientation": "h", "showlegend": False, "width": 0.34}
    figure.add_trace(
        go.Bar(
            y=rows,
            x=[each.to_s - each.from_s for each in drawn],
            base=[each.from_s for each in drawn],
            marker={"color": QUIET},
            customdata=[_hover_text(each) for each in drawn],
            hovertemplate="%{customdata}<extra></extra>",
            **whole,
        )
    )
    seen = [
        (row, each, each.prefill_from_s, each.prefill_to_s)
        for row, each in zip(rows, drawn, strict=True)
        if each.prefill_from_s is not None and each.prefill_to_s is not None
    ]
    figure.add_trace(
        go.Bar(
            y=[row for row, *_ in seen],
            x=[to_s - from_s for _, _, from_s, to_s in seen],
            base=[from_s for _, _, from_s, _ in seen],
            marker={
                "color": [
                    colours.OTHERS if each.cost_s > 0 else PREFILL_OF_OTHERS for _, each, *_ in seen
                ],
                "line": {"width": 1, "color": colours.OUTLINE},
            },
            customdata=[_hover_text(each) for _, each, *_ in seen],
            hovertemplate="%{customdata}<extra></extra>",
            **{**whole, "width": 0.74},
        )
    )
    for row, each in zip(rows, drawn, strict=True):
        if each.cost_s > 0:
            figure.add_annotation(
                x=1,
                xref="paper",
                y=row,
                text=f"<b>{wording.signed_seconds(each.cost_s)}</b>",
                xanchor="right",
                showarrow=False,
                font={"size": 12},
            )
    figure.update_layout(barmode="overlay")
    figure.update_yaxes(
        autorange="reversed",
        showgrid=False,
        tickvals=rows,
        ticktext=[wording.for_plotly(_end_of_id(each.name), 11) for each in drawn],
        tickfont={"size": 10},
    )
    return _since_received(figure, end_s, height=62 + 19 * max(1, len(drawn)), top=20)


def _end_of_id(name: str) -> str:
    return name if len(name) <= 10 else f"…{name[-9:]}"


def _hover_text(each: Neighbour) -> str:
    lines = [f"<b>{wording.for_plotly(each.name, 60)}</b>"]
    if each.tenant:
        lines.append(f"tenant {wording.for_plotly(each.tenant)}")
    lines.append(
        f"{wording.count(each.prompt_tokens)} prompt tokens, "
        f"{wording.count(each.output_tokens)} output tokens"
    )
    if each.cost_s > 0:
        lines.append(
            f"delayed this request by {wording.seconds(each.cost_s)}: "
            f"{wording.count(round(each.tokens_meanwhile))} of its prompt tokens were computed "
            "while this request waited or ran"
        )
    return "<br>".join(lines)


def time_series(found: Sequence[TimeSeries], end_s: float) -> go.Figure:
    """Draw a chart for each series, one below the other."""
    figure = make_subplots(
        rows=len(found),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.4 / max(1, len(found)),
    )
    several = any(len(series.lines) > 1 for series in found)
    named: set[str] = set()
    for row, series in enumerate(found, start=1):
        most = 0.0
        for place, line in enumerate(series.lines):
            name = wording.for_plotly(line.name, 24)
            near = _samples_around(line.at_s, end_s)
            values = line.values[near]
            most = max(most, float(np.nanmax(values, initial=0.0)))
            figure.add_trace(
                go.Scatter(
                    x=line.at_s[near],
                    y=[None if np.isnan(value) else value for value in values.tolist()],
                    name=name,
                    legendgroup=name,
                    showlegend=several and name not in named,
                    mode="lines+markers",
                    # The line shape is "vh", because a sample covers the time since the previous
                    # sample.
                    line={"color": _line_colour(place), "width": 1.5, "shape": "vh"},
                    marker={"size": 3},
                    customdata=[series.shown(value) for value in values.tolist()],
                    hovertemplate="%{customdata}"
                    + (f"<extra>{name}</extra>" if several else "<extra></extra>"),
                ),
                row=row,
                col=1,
            )
            named.add(name)
        top = series.whole or (charts.linear_ticks(most)[-1] if most > 0 else 1.0)
        top = max(top, most)
        figure.update_yaxes(
            row=row,
            col=1,
            range=[0, top * 1.12],
            tickvals=[0, top],
            ticktext=[series.shown(0.0) if series.whole is None else "0", series.shown(top)],
            tickfont={"size": 11},
        )
        charts.row_title(figure, row, series.title)
    figure.update_layout(
        legend={
            "orientation": "h",
            "x": 1,
            "xanchor": "right",
            "y": 1.0,
            "yanchor": "bottom",
            "itemclick": False,
            "itemdoubleclick": False,
            "font": {"size": 11},
        },
        hovermode="x",
    )
    return _since_received(figure, end_s, height=74 + 66 * max(1, len(found)), top=46)


def _samples_around(at_s: Any, end_s: float) -> Any:
    before, after = np.flatnonzero(at_s < 0), np.flatnonzero(at_s > end_s * ROOM)
    first = int(before[-1]) if before.size else 0
    last = int(after[0]) if after.size else at_s.size - 1
    return slice(first, last + 1)


def _line_colour(place: int) -> str:
    return colours.ENGINES[place % len(colours.ENGINES)]


def _since_received(figure: go.Figure, end_s: float, height: int, top: int) -> go.Figure:
    end_s = end_s or 1e-3
    ticks = charts.linear_ticks(end_s)
    figure.update_xaxes(
        range=[-0.004 * end_s, end_s * ROOM],
        **charts.axis_ticks(ticks, wording.tick_seconds),
        showgrid=True,
        zeroline=False,
        fixedrange=True,
    )
    figure.update_yaxes(fixedrange=True, zeroline=False, automargin=False)
    return charts.plain(figure, height, {"l": LEFT, "r": RIGHT, "t": top, "b": 30})
