"""The page "Why is it slow?": the sentence, the reason, the evidence, the way out."""

import time
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from typing import Final

import streamlit as st
from sqlalchemy import Engine

from analysis.baseline import within
from analysis.explain import known_incidents
from diagnosis.explanation import Explanation, Verdict
from diagnosis.question import Span
from store.alerting.incidents import IncidentRow
from store.errors import StoreError
from store.queries import Window
from ui.frame import controls, freshness, incident_links, no_data
from ui.frame.objectives import in_force, thresholds
from ui.frame.pages import BY_KEY
from ui.frame.read_cache import shared, window_of
from ui.frame.view import RANGES_S, SECOND_NS, RequestKey, View
from ui.kit import colours, phases, slowest, slowest_table, store_reads
from ui.kit.sections import chapter, chart
from ui.kit.store_reads import Unreadable
from ui.kit.terms import LATENCY_NAMES
from ui.views.fleet import words as fleet_words
from ui.views.root_cause import heatmap, increase, read, words
from ui.views.root_cause.read import Material

PAGE: Final = BY_KEY["root-cause"]

GROWTH_HELP: Final = (
    "What the slow requests have beyond what the slow ones of the comparison had, in the order of "
    "a request's life. The parts sum to the growth."
)
SHAPE_HELP: Final = (
    "Each cell counts requests by when they were received and how long they took; below, what "
    "the engines did meanwhile. Drag over a stretch of time to ask why it is slow: it is compared "
    "with what was before it. A triangle is the start of an engine, the dashed line what is "
    "promised."
)
GREW: Final = (
    "<b>The slowest requests are slower all the same.</b> Choose “size decides” above to see why."
)
HITS_HELP: Final = (
    "The risk ratio is how much likelier a request of this kind is to be slow than one that is "
    "not. Kinds that chance would bring up among so many are left out. Who is hit need not be who "
    "brings it about."
)


def body(engine: Engine, zone: tzinfo) -> None:
    """All that moves with time; runs again by itself while the page is live."""
    view = controls.current()
    # A request was chosen below, or a stretch dragged over: the frame shows another page now.
    if view.page != "root-cause" or st.session_state.pop("dragged", False):
        st.rerun()
    now = time.time_ns()
    st.session_state["now_unix_ns"] = now
    try:
        with st.spinner("Comparing …"):
            found = _read(engine, view, now)
            told = found.explained(view.latency, by_size=view.decide == "size")
        freshness.show(
            view, found.newest_unix_ns, found.window.to_unix_ns, found.simulated, now, zone
        )
        if found.newest_unix_ns is None:
            no_data.no_server()
        elif not found.number:
            no_data.nothing_in_view(engine, found.window, view, zone)
        else:
            _answer(told, found, view, zone)
            _slowest(engine, found, view, zone)
    except (Unreadable, StoreError) as error:
        no_data.unreadable(str(error))


def by_verdict(engine: Engine, view: View, incident: IncidentRow, now_unix_ns: int) -> View:
    """Return the view with the latency that speaks for the incident."""
    verdict = _read(engine, view, now_unix_ns).verdict(incident)
    if verdict is None:
        return view
    return replace(view, latency=f"{verdict.first.question.metric.value}_s")


def _read(engine: Engine, view: View, now: int) -> Material:
    """Read the store, or take what was read for this stretch of time."""
    window = window_of(view, PAGE, now)
    objectives = in_force().objectives
    span = Span(window.from_unix_ns, max(window.to_unix_ns, window.from_unix_ns + 1))
    with store_reads.told():
        known = known_incidents(engine, span)
    meant = tuple((each.name, each.promise) for each in objectives)
    which = tuple((row.slo, row.severity, row.began_unix_s, row.ended_unix_s) for row in known)
    return shared(
        engine,
        ("root-cause", window, view.baseline, tuple(sorted(view.equals.items())), meant, which),
        lambda: read.read(engine, window, view.baseline, view.equals, objectives, known),
        large=True,
    )


def _answer(told: Explanation, found: Material, view: View, zone: tzinfo) -> None:
    incident = incident_links.named(view, found.incidents)
    if incident is not None:
        st.html(words.incident(incident, found.verdict(incident), zone))
    sentence = words.sentence(told, view.latency, zone)
    against = words.compared(told, zone, found.before)
    st.html(f"<p class='headline'>{sentence}</p><p class='note'>{against}</p>")
    if attained := words.attained(told):
        st.html(attained)
    if told.grew_within_objectives:
        st.html(f"<p class='notice'>{GREW}</p>")
    still = words.still_slow(told, found.incidents, zone)
    if still and told.verdict is not Verdict.INCIDENT:
        st.html(f"<p class='notice'>{still}</p>")
    if told.causes or told.verdict is Verdict.INCIDENT:
        st.html(words.reason(told))
    if thinned := fleet_words.thinned_samples(found.samples_every_s):
        st.html(f"<p class='note'>{thinned}</p>")
    _shape(told, found, view, zone)
    if told.verdict is Verdict.INSUFFICIENT_DATA:
        _wider(view)
    elif told.verdict is Verdict.NO_INCIDENT:
        with st.expander("How the parts compare", key="parts"):
            _growth(told)
    else:
        _details(told)
    if told.contradictions:
        st.html(words.doubts(told))


def _shape(told: Explanation, found: Material, view: View, zone: tzinfo) -> None:
    """The whole distribution; what is dragged over is compared with what was before it."""
    shape = found.shape(view.latency)
    if shape is None:
        return
    name = LATENCY_NAMES[view.latency]
    window = found.window
    # Another stretch is another chart: the box that led there is not on it.
    key = f"shape_{view.latency}_{window.from_unix_ns}_{window.to_unix_ns}"
    if view.live:
        key = f"shape_{view.latency}_{view.last}"
    figure = heatmap.figure(
        shape.grid,
        shape.lines,
        name=name,
        window=window,
        whole=found.whole,
        onset_unix_ns=told.onset_unix_ns,
        starts=found.servers.starts,
        promised_s=thresholds(in_force().objectives, view.latency),
        zone=zone,
        ink=colours.ink(st.context.theme.type),
    )
    with chapter(f"Every request by {name}", SHAPE_HELP):
        chart(
            figure,
            key,
            f"Requests by time and {name}, and what the servers did",
            on_select=partial(_dragged, key, found, zone),
        )


def _dragged(key: str, found: Material, zone: tzinfo) -> None:
    stretch = heatmap.dragged_over(st.session_state.get(key) or {}, zone)
    if stretch is None:
        return
    view = controls.current().between(stretch.from_unix_ns, stretch.to_unix_ns)
    before = Window(found.whole.from_unix_ns, stretch.from_unix_ns)
    # Of what is on the chart already the part before it, where that is as long at least.
    long_enough = before.to_unix_ns - before.from_unix_ns >= (
        stretch.to_unix_ns - stretch.from_unix_ns
    )
    # What lies in an incident is not usual: then the default finds the time before it.
    usual = long_enough and not within(Span(before.from_unix_ns, before.to_unix_ns), found.known)
    controls.change(replace(view, baseline=before if usual else None))
    st.session_state["dragged"] = True


def _details(told: Explanation) -> None:
    where, who = st.columns([3, 2], gap="large")
    with where, chapter("Where the growth went", GROWTH_HELP):
        _growth(told)
    with who, chapter("Slow more often", HITS_HELP):
        st.html(words.hits(told))
    if told.causes:
        with st.container(gap="small"):
            st.header("Evidence", anchor=False)
            for place, cause in enumerate(told.causes):
                with st.expander(words.title(cause), key=f"cause_{cause.id}"):
                    st.html(words.evidence(cause, with_levers=place > 0))


def _slowest(engine: Engine, found: Material, view: View, zone: tzinfo) -> None:
    """Each a way to the page that says what happened to it."""
    table = store_reads.received_at(engine, found.slowest_unix_ns(view.latency), view.equals)
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
    chart(increase.figure(increase.steps(told.parts)), "growth")


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
