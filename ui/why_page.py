"""The page "Why is it slow?": the sentence, the reason, the evidence, the way out."""

import time
from dataclasses import replace
from datetime import tzinfo
from typing import Final

import streamlit as st
from sqlalchemy import Engine

from diagnosis.explanation import Explanation, Verdict
from store.errors import StoreError
from ui import (
    answering,
    controls,
    emptiness,
    freshness,
    growth,
    phases,
    reading,
    slowest,
    slowest_table,
    why_wording,
)
from ui.answering import Material
from ui.chapters import chapter, chart
from ui.pages import BY_KEY
from ui.reading import Unreadable
from ui.sharing import shared, window_of
from ui.view import RANGES_S, SECOND_NS, RequestKey, View

PAGE: Final = BY_KEY["why"]

GROWTH_HELP: Final = (
    "What the slow requests have beyond what the slow ones of the comparison had, in the order of "
    "a request's life. The parts sum to the growth."
)
HITS_HELP: Final = (
    "The risk ratio is how much likelier a request of this kind is to be slow than one that is "
    "not. Kinds that chance would bring up among so many are left out. Who is hit need not be who "
    "brings it about."
)


def body(engine: Engine, zone: tzinfo) -> None:
    """All that moves with time; runs again by itself while the page is live."""
    view = controls.current()
    if view.page != "why":  # a request was chosen below: the frame shows another page now
        st.rerun()
    now = time.time_ns()
    st.session_state["now_unix_ns"] = now
    try:
        with st.spinner("Comparing …"):
            found = _read(engine, view, now)
            told = found.explained(view.latency)
        freshness.show(
            view, found.newest_unix_ns, found.window.to_unix_ns, found.simulated, now, zone
        )
        if found.newest_unix_ns is None:
            emptiness.no_server()
        elif not found.number:
            emptiness.nothing_in_view(engine, found.window, view, zone)
        else:
            _answer(told, view, zone)
            _slowest(engine, found, view, zone)
    except (Unreadable, StoreError) as error:
        emptiness.unreadable(str(error))


def _read(engine: Engine, view: View, now: int) -> Material:
    """Read the store, or take what was read for this stretch of time."""
    window = window_of(view, PAGE, now)
    return shared(
        engine,
        ("why", window, view.baseline, tuple(sorted(view.equals.items()))),
        lambda: answering.read(engine, window, view.baseline, view.equals),
        large=True,
    )


def _answer(told: Explanation, view: View, zone: tzinfo) -> None:
    sentence = why_wording.sentence(told, view.latency, zone)
    st.html(
        f"<p class='headline'>{sentence}</p><p class='note'>{why_wording.compared(told, zone)}</p>"
    )
    if told.verdict is Verdict.INSUFFICIENT_DATA:
        _wider(view)
    elif told.verdict is Verdict.NO_INCIDENT:
        with st.expander("How the parts compare", key="parts"):
            _growth(told)
    else:
        st.html(why_wording.reason(told))
        _details(told)
    if told.doubts:
        st.html(why_wording.doubts(told))


def _details(told: Explanation) -> None:
    where, who = st.columns([3, 2], gap="large")
    with where, chapter("Where the growth went", GROWTH_HELP):
        _growth(told)
    with who, chapter("Hit more than their share", HITS_HELP):
        st.html(why_wording.hits(told))
    if told.causes:
        with st.container(gap="small"):
            st.subheader("What speaks for it", anchor=False)
            for place, cause in enumerate(told.causes):
                with st.expander(why_wording.title(cause), key=f"cause_{cause.id}"):
                    st.html(why_wording.evidence(cause, with_levers=place > 0))


def _slowest(engine: Engine, found: Material, view: View, zone: tzinfo) -> None:
    """Each a way to the page that says what happened to it."""
    table = reading.received_at(engine, found.slowest_unix_ns(view.latency), view.equals)
    length_s = (found.window.to_unix_ns - found.window.from_unix_ns) / SECOND_NS
    with chapter("The slowest of them", "Choose one to see what happened to it."):
        slowest_table.show(
            slowest.shown_rows(table, phases.layers(table), view.latency, zone, length_s),
            slowest.shown_columns(view.latency),
            "",
            on_chosen=_chosen,
        )


def _chosen(text: str) -> None:
    if (key := RequestKey.parse(text)) is not None:
        controls.change(replace(controls.current(), page="request", request=key))


def _growth(told: Explanation) -> None:
    chart(growth.figure(growth.steps(told.parts)), "growth")


def _wider(view: View) -> None:
    """The way out of too little data: the next longer range."""
    names = list(RANGES_S)
    if view.last is None or view.last == names[-1] or view.baseline is not None:
        st.html("<p class='note'>A longer range, or another one to compare with, has more.</p>")
        return
    longer = names[names.index(view.last) + 1]
    if st.button(f"Look at the last {longer}", key="wider", type="primary"):
        controls.change(view.following(longer))
        st.rerun()
