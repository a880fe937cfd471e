"""The controls above a page. They show the view, and their callbacks change the view."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import streamlit as st

from analysis.compare.question import SPLITS
from analysis.over_time.time_bins import SECOND_NS
from telemetry.durations import parse_ns
from telemetry.requests import Outcome
from telemetry.window import Window
from ui.frame import navigation
from ui.frame.navigation import choice
from ui.frame.pages import ExplorerPage
from ui.frame.view import (
    CONTENT,
    DECIDERS,
    DEFAULT_RANGE,
    EARLIER,
    LABELS,
    LATENCIES,
    RANGES_S,
    View,
)
from ui.kit import wording
from ui.kit.terms import LATENCY_NAMES, TERMS

CUSTOM: Final = "custom"
BEFORE: Final = "vs. the previous range"
CHOSEN: Final = "vs. a custom range"
SPLIT_BY: Final = {
    "replica": "vs. another replica",
    "config": "vs. another configuration",
    "version": "vs. another version",
}
DECIDED_BY: Final = {"slo": "SLOs decide", "size": "size decides"}
EVERYTHING: Final = ""
"""The choice that disables a filter. It is the empty text, which no label has as its value."""


def bar(
    page: ExplorerPage,
    view: View,
    now_unix_ns: int,
    zone: tzinfo,
    values: Callable[[str], list[str]],
) -> None:
    """Draw the page's controls in a row.

    `values` returns the values that a label's filter offers.
    """
    with st.container(key="controls", horizontal=True, vertical_alignment="center", gap="small"):
        st.session_state["range"] = view.last or CUSTOM
        st.segmented_control(
            "Time range",
            [*RANGES_S, CUSTOM],
            key="range",
            required=True,
            label_visibility="collapsed",
            on_change=_range_chosen,
        )
        if page.by_latency:
            _latency(page, view)
        if page.compares:
            _comparison(page, view, view.window(now_unix_ns), values)
        if page.decides:
            _detection_control(view)
        if page.filters:
            _filters(view, values)
        st.button(
            "Pause" if view.live else "Resume live",
            icon=":material/pause:" if view.live else ":material/play_arrow:",
            key="pause",
            on_click=_pause_pressed,
        )
    if page.filters and view.equals:
        _chips(view)
    if view.last is None:
        _custom_range("custom", view.window(now_unix_ns), zone, _custom_chosen)
    if page.splits and view.split:
        _sides(view, values)
    elif page.compares and isinstance(view.baseline, Window):
        _custom_range("baseline", view.baseline, zone, _baseline_chosen, "Compare from", "to")


def setting(
    name: str, label: str, options: Sequence[str], shown: Callable[[str], str] = str
) -> None:
    """A choice for a field of the view. The control has the same key as the field."""
    st.session_state[name] = getattr(navigation.current(), name)
    st.segmented_control(
        label,
        options,
        key=name,
        required=True,
        format_func=shown,
        label_visibility="collapsed",
        on_change=setting_chosen,
        args=(name, options),
    )


@choice
def setting_chosen(name: str, options: Collection[str]) -> None:
    """Change the view to the control's value, if the value is one of the options."""
    if (chosen := st.session_state[name]) in options:
        navigation.change(replace(navigation.current(), **{name: chosen}))


def _latency(page: ExplorerPage, view: View) -> None:
    st.session_state["latency"] = view.latency
    names = [name for name in LATENCY_NAMES if page.by_content or name != LATENCIES[CONTENT]]
    st.selectbox(
        "Latency",
        names,
        key="latency",
        format_func=LATENCY_NAMES.__getitem__,
        label_visibility="collapsed",
        width=125,
        on_change=setting_chosen,
        args=("latency", names),
    )


def _comparison(
    page: ExplorerPage, view: View, window: Window, values: Callable[[str], list[str]]
) -> None:
    length_ns = window.to_unix_ns - window.from_unix_ns
    earlier = [each for each in EARLIER if parse_ns(each) >= length_ns]
    chosen = BEFORE if view.chosen_baseline(window) is None else view.baseline
    if isinstance(chosen, Window) or chosen is None:
        chosen = CHOSEN
    elif chosen not in (BEFORE, *earlier):
        earlier.append(chosen)
    splits = SPLITS if page.splits else ()
    st.session_state["comparison"] = view.split if view.split in splits else chosen
    st.selectbox(
        "Compared with",
        [BEFORE, *earlier, CHOSEN, *splits],
        key="comparison",
        format_func=_shown_comparison,
        label_visibility="collapsed",
        width=205,
        on_change=_comparison_chosen,
        args=(values,),
    )


def _shown_comparison(chosen: str) -> str:
    if chosen in (BEFORE, CHOSEN):
        return chosen
    if chosen in SPLIT_BY:
        return SPLIT_BY[chosen]
    return EARLIER.get(chosen, f"vs. {chosen} earlier")


def _detection_control(view: View) -> None:
    st.session_state["decide"] = view.decide
    st.selectbox(
        "How incidents are detected",
        list(DECIDERS),
        key="decide",
        format_func=DECIDED_BY.__getitem__,
        label_visibility="collapsed",
        width=150,
        on_change=setting_chosen,
        args=("decide", DECIDERS),
    )


def _filters(view: View, values: Callable[[str], list[str]]) -> None:
    label = f"Filters · {len(view.equals)}" if view.equals else "Filters"
    with st.popover(label, icon=":material/filter_alt:"):
        for name in LABELS:
            known = list(Outcome) if name == "outcome" else values(name)
            chosen = view.equals.get(name, EVERYTHING)
            _value_box(
                *("filter", name, [EVERYTHING, *known], chosen, _shown_option, _filter_chosen),
                help=TERMS.get(name),
            )


def _value_box(
    kind: str,
    name: str,
    options: Sequence[str],
    chosen: str,
    shown: Callable[[str], str],
    on_change: Callable[[str], None],
    **more: Any,
) -> None:
    key = f"{kind}_{name}"
    st.session_state[key] = chosen
    st.selectbox(
        name.capitalize(),
        options if chosen in options else [*options, chosen],
        key=key,
        format_func=shown,
        on_change=on_change,
        args=(name,),
        **more,
    )


def _chips(view: View) -> None:
    with st.container(key="chips", horizontal=True, vertical_alignment="center", gap="xsmall"):
        for label, value in view.equals.items():
            st.button(
                f"{label} {wording.for_markdown(value, 40)}",
                icon=":material/close:",
                key=f"chip_{label}",
                help="Remove this filter",
                on_click=_filter_removed,
                args=(label,),
            )
        if len(view.equals) > 1:
            st.button("Clear all", key="clear", type="tertiary", on_click=_filters_cleared)


def _shown_option(value: str) -> str:
    return "all" if value == EVERYTHING else wording.plain(value, 60)


def _custom_range(
    key: str,
    window: Window,
    zone: tzinfo,
    on_change: Callable[[tzinfo], None],
    *labels: str,
) -> None:
    ends = (("from", window.from_unix_ns), ("to", window.to_unix_ns))
    with st.container(key=f"ends_{key}", horizontal=True, gap="small"):
        for (name, at), label in zip(ends, labels or ("From", "To"), strict=True):
            st.session_state[f"{key}_{name}"] = _shown_minute(at, zone)
            st.datetime_input(
                label,
                key=f"{key}_{name}",
                step=60,
                width=230,
                on_change=on_change,
                args=(zone,),
            )
    for (_, at), label in zip(ends, labels or ("From", "To"), strict=True):
        if (note := repeated_hour(label, at, zone)) is not None:
            st.caption(note)


def repeated_hour(label: str, at_unix_ns: int, zone: tzinfo) -> str | None:
    """Return which of two equal local times an instant is, or None if its local time is unique.

    When daylight saving time ends, an hour of local time occurs twice.
    """
    first, second = (
        _shown_minute(at_unix_ns, zone).replace(tzinfo=zone, fold=fold) for fold in (0, 1)
    )
    between_s = int(second.timestamp() - first.timestamp())
    if not between_s:
        return None
    is_first = at_unix_ns // SECOND_NS < second.timestamp()
    other_ns = at_unix_ns + (between_s if is_first else -between_s) * SECOND_NS
    other = f"{datetime.fromtimestamp(other_ns // SECOND_NS, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return (
        f"{label}: {wording.clock(at_unix_ns, zone)[:-3]} occurs twice in this night. The range"
        f" uses {wording.zone_offset(zone, at_unix_ns)}. To use the other hour, write {other}"
        " into the page's address."
    )


def _sides(view: View, values: Callable[[str], list[str]]) -> None:
    known = values(view.split)
    with st.container(key="ends_sides", horizontal=True, gap="small"):
        for name, chosen in (("before", view.before), ("after", view.after)):
            _value_box("side", name, known, chosen, _shown_side, _side_chosen, width=230)


def _shown_side(value: str) -> str:
    return wording.plain(value, 60) or "choose"


@choice
def _side_chosen(name: str) -> None:
    chosen = {name: st.session_state[f"side_{name}"]}
    navigation.change(replace(navigation.current(), **chosen))


@choice
def _comparison_chosen(values: Callable[[str], list[str]]) -> None:
    view, chosen = navigation.current(), st.session_state["comparison"]
    if chosen in SPLIT_BY:
        first, second = (*values(chosen), "", "")[:2]
        navigation.change(replace(view, split=chosen, before=first, after=second))
        return
    view = replace(view, split="", before="", after="")
    if chosen != CHOSEN:
        navigation.change(replace(view, baseline=None if chosen == BEFORE else chosen))
        return
    before = view.baseline_of(view.window(st.session_state["now_unix_ns"]))
    if before.from_unix_ns < before.to_unix_ns:
        navigation.change(replace(view, baseline=before))


@choice
def _range_chosen() -> None:
    view, chosen = navigation.current(), st.session_state["range"]
    if chosen == CUSTOM:
        window = view.window(st.session_state["now_unix_ns"])
        from_s, to_s = window.from_unix_ns // SECOND_NS, window.to_unix_ns // SECOND_NS
        navigation.change(view.between(from_s * SECOND_NS, to_s * SECOND_NS))
    elif chosen in RANGES_S:
        navigation.change(view.following(chosen))


@choice
def _filter_chosen(name: str) -> None:
    view, chosen = navigation.current(), st.session_state[f"filter_{name}"]
    equals = {label: value for label, value in view.equals.items() if label != name}
    if chosen:
        equals[name] = chosen
    navigation.change(replace(view, equals=equals))


@choice
def _filter_removed(name: str) -> None:
    view = navigation.current()
    kept = {label: value for label, value in view.equals.items() if label != name}
    navigation.change(replace(view, equals=kept))


@choice
def _filters_cleared() -> None:
    navigation.change(replace(navigation.current(), equals={}))


@choice
def _pause_pressed() -> None:
    view = navigation.current()
    if view.live:
        navigation.change(view.paused_at(st.session_state["now_unix_ns"]))
    else:
        navigation.change(view.following(view.last or DEFAULT_RANGE))


@choice
def _custom_chosen(zone: tzinfo) -> None:
    view = navigation.current()
    shown = view.window(st.session_state["now_unix_ns"])
    if (chosen := _chosen_window("custom", shown, zone)) is not None:
        navigation.change(view.between(chosen.from_unix_ns, chosen.to_unix_ns))


@choice
def _baseline_chosen(zone: tzinfo) -> None:
    view = navigation.current()
    if isinstance(view.baseline, Window):
        chosen = _chosen_window("baseline", view.baseline, zone)
        if chosen is not None:
            navigation.change(replace(view, baseline=chosen))


def _chosen_window(key: str, shown: Window, zone: tzinfo) -> Window | None:
    ends: list[int] = []
    for name, at in (("from", shown.from_unix_ns), ("to", shown.to_unix_ns)):
        chosen = st.session_state[f"{key}_{name}"]
        if chosen is None:
            return None
        # The widget omits seconds. If the reader did not change this end, keep its seconds.
        kept = chosen == _shown_minute(at, zone)
        ends.append(at if kept else entered_ns(chosen, zone, ends[0] if ends else 0))
    if 0 <= ends[0] < ends[1]:
        return Window(*ends)
    navigation.warn("A time range must end after it begins. The range was not changed.")
    return None


def entered_ns(chosen: datetime, zone: tzinfo, after_ns: int) -> int:
    """The instant of a local time. If the local time occurs twice, it is the first of the two
    instants that is after `after_ns`, or the second instant if none is."""
    first, second = (
        int(chosen.replace(tzinfo=zone, fold=fold).timestamp()) * SECOND_NS for fold in (0, 1)
    )
    return first if first > after_ns else max(first, second)


def _shown_minute(at_unix_ns: int, zone: tzinfo) -> datetime:
    """Local time in whole minutes, because the widget drops seconds.

    Streamlit would report the dropped seconds as a change.
    """
    at = datetime.fromtimestamp(at_unix_ns // 10**9, zone)
    return at.replace(tzinfo=None, second=0)
