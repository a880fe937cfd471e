"""The reader's controls. The view is the one truth; widgets show it, their callbacks change it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, tzinfo
from typing import Final

import streamlit as st

from store.queries import Window
from telemetry.requests import Outcome
from ui import view as views
from ui import wording
from ui.terms import LATENCY_NAMES, TERMS
from ui.view import LABELS, RANGES_S, View

CUSTOM: Final = "custom"
EVERYTHING: Final = ""
"""The choice of a filter that filters nothing; no label is the empty string."""


def current() -> View:
    """The view of this session; read from the page's address when the session is new."""
    if "view" not in st.session_state:
        view, notices = views.parse(dict(st.query_params))
        st.session_state["view"] = view
        st.session_state["notices"] = notices
    kept: View = st.session_state["view"]
    return kept


def change(view: View) -> None:
    """Take a new view, and write it to the page's address."""
    st.session_state["view"] = view
    st.session_state["notices"] = []
    write_address(view)


def write_address(view: View) -> None:
    """Make the page's address a link to this view."""
    written = views.parameters(view)
    if dict(st.query_params) != written:
        st.query_params.from_dict(written)


def bar(view: View, now_unix_ns: int, zone: tzinfo, values: Callable[[str], list[str]]) -> None:
    """One row of controls: range, latency, filters, pause.

    Args:
        view: what is shown.
        now_unix_ns: where the range ends while it follows the clock.
        zone: the reader's time zone.
        values: the values of a label to choose from.
    """
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.session_state["range"] = view.last or CUSTOM
        st.segmented_control(
            "Time range",
            [*RANGES_S, CUSTOM],
            key="range",
            required=True,
            label_visibility="collapsed",
            on_change=_range_chosen,
        )
        st.session_state["latency"] = view.latency
        st.selectbox(
            "Latency",
            list(LATENCY_NAMES),
            key="latency",
            format_func=LATENCY_NAMES.__getitem__,
            label_visibility="collapsed",
            width=125,
            on_change=_latency_chosen,
        )
        _filters(view, values)
        if view.last is not None:
            st.button(
                "Pause" if view.live else "Resume",
                icon=":material/pause:" if view.live else ":material/play_arrow:",
                key="pause",
                on_click=_pause_pressed,
            )
    if view.last is None:
        _custom_range(view.window(now_unix_ns), zone)


def _filters(view: View, values: Callable[[str], list[str]]) -> None:
    label = f"Filters · {len(view.equals)}" if view.equals else "Filters"
    with st.popover(label, icon=":material/filter_alt:"):
        for name in LABELS:
            known = list(Outcome) if name == "outcome" else values(name)
            chosen = view.equals.get(name, EVERYTHING)
            options = [EVERYTHING, *known]
            if chosen not in options:
                options.append(chosen)
            st.session_state[f"filter_{name}"] = chosen
            st.selectbox(
                name.capitalize(),
                options,
                key=f"filter_{name}",
                format_func=_shown_option,
                help=TERMS.get(name),
                on_change=_filter_chosen,
                args=(name,),
            )


def _shown_option(value: str) -> str:
    return "all" if value == EVERYTHING else wording.plain(value, 60)


def _custom_range(window: Window, zone: tzinfo) -> None:
    with st.container(horizontal=True, gap="small"):
        for name, at in (("from", window.from_unix_ns), ("to", window.to_unix_ns)):
            shown = datetime.fromtimestamp(at // 10**9, zone).replace(tzinfo=None)
            st.session_state[f"custom_{name}"] = shown
            st.datetime_input(
                name.capitalize(),
                key=f"custom_{name}",
                step=60,
                width=230,
                on_change=_custom_chosen,
                args=(zone,),
            )


def _range_chosen() -> None:
    view, chosen = current(), st.session_state["range"]
    if chosen == CUSTOM:
        window = view.window(st.session_state["now_unix_ns"])
        change(view.between(window.from_unix_ns, window.to_unix_ns))
    elif chosen in RANGES_S:
        change(view.following(chosen))


def _latency_chosen() -> None:
    change(replace(current(), latency=st.session_state["latency"]))


def _filter_chosen(name: str) -> None:
    view, chosen = current(), st.session_state[f"filter_{name}"]
    equals = {label: value for label, value in view.equals.items() if label != name}
    if chosen:
        equals[name] = chosen
    change(replace(view, equals=equals))


def _pause_pressed() -> None:
    view = current()
    if view.live:
        change(view.paused_at(st.session_state["now_unix_ns"]))
    elif view.last is not None:
        change(view.following(view.last))


def _custom_chosen(zone: tzinfo) -> None:
    start, end = (st.session_state[f"custom_{name}"] for name in ("from", "to"))
    if start is None or end is None:
        return
    from_ns, to_ns = (int(at.replace(tzinfo=zone).timestamp()) * 10**9 for at in (start, end))
    if 0 <= from_ns < to_ns:
        change(current().between(from_ns, to_ns))
    else:
        st.session_state["notices"] = ["A time range must end after it begins: kept as it was."]
