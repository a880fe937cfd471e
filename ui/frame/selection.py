"""Select a time range by dragging over a chart, and offer actions for it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, tzinfo
from functools import partial
from typing import Any, Final

import plotly.graph_objects as go
import streamlit as st

from analysis.over_time.time_bins import SECOND_NS
from telemetry.window import Window
from ui.frame import navigation
from ui.frame.context import Context
from ui.frame.navigation import choice
from ui.frame.view import View
from ui.kit import wording
from ui.kit.sections import chart

HELP: Final = "Drag over a range to zoom in, explain it, make it the baseline or list its requests."
SHORTEST_S: Final = 5.0
"""Minimum length of a dragged range in seconds. A shorter drag is probably an accident."""

_CHOSEN: Final = "dragged_range"
"""Session key of the dragged range and its view."""


def chosen(context: Context) -> Window | None:
    """The range that the reader dragged over in this view, or None."""
    found: tuple[View, Window] | None = st.session_state.get(_CHOSEN)
    return found[1] if found is not None and found[0] == context.view else None


def time_chart(context: Context, figure: go.Figure, key: str, alt: str | None = None) -> None:
    """Draw a chart over time on which the reader can drag over a range."""
    figure.update_layout(
        dragmode="select",
        selectdirection="h",
        newselection={"line": {"color": context.ink.strong, "width": 1.5}},
    )
    figure.update_xaxes(fixedrange=False)
    # Without this, Plotly would fade the bars outside the selection.
    figure.update_traces(unselected={"marker": {"opacity": 1}}, selector={"type": "bar"})
    chart(figure, key, alt, on_select=partial(_keep_dragged_range, key, context.axis_zone))


def offer(context: Context, window: Window, explain: View | None = None) -> None:
    """Draw the actions for a dragged range.

    "Explain it" opens the view `explain`. Without `explain`, it opens the Root cause page with the
    default baseline.
    """
    view, zone = context.view, context.zone
    inside = view.between(window.from_unix_ns, window.to_unix_ns)
    start, end = (wording.clock(each, zone) for each in (window.from_unix_ns, window.to_unix_ns))
    length = wording.span(window.length_s)
    with st.container(key="offer", horizontal=True, vertical_alignment="center", gap="small"):
        st.html(
            f"<p class='selected' role='status'>Selected <b>{start} to {end}</b> ({length}):</p>",
            width="content",
        )
        for label, key, there in (
            ("Zoom in", "zoom", inside),
            ("Explain it", "explain", explain or replace(inside, page="root-cause", baseline=None)),
            ("Use as baseline", "baseline", replace(view, page="root-cause", baseline=window)),
            ("List its requests", "list", replace(inside, page="requests", baseline=None)),
        ):
            if st.button(label, key=f"offer_{key}"):
                navigation.go(there)
        st.button("Dismiss", key="offer_dismiss", type="tertiary", on_click=_forget_range)


def dragged_over(event: Mapping[str, Any], zone: tzinfo) -> Window | None:
    """The range of a selection on a chart, or None if it is too short. The chart's times are in
    `zone`."""
    boxes = event.get("selection", {}).get("box", [])
    ends = boxes[0].get("x", []) if boxes else []
    try:
        instants = sorted(_unix_ns(each, zone) for each in ends)
    except (TypeError, ValueError, OverflowError):
        return None
    if len(instants) < 2 or instants[-1] - instants[0] < SHORTEST_S * SECOND_NS:
        return None
    return Window(instants[0], instants[-1])


@choice
def _keep_dragged_range(key: str, zone: tzinfo) -> None:
    window = dragged_over(st.session_state.get(key) or {}, zone)
    if window is not None:
        st.session_state[_CHOSEN] = (navigation.current(), window)


@choice
def _forget_range() -> None:
    st.session_state.pop(_CHOSEN, None)


def _unix_ns(text: str, zone: tzinfo) -> int:
    local = datetime.fromisoformat(text)
    return round(local.replace(tzinfo=zone).timestamp()) * SECOND_NS
