"""The page "Is anyone hurt?": promises, incidents, latencies against what is usual, traffic."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

import streamlit as st
from sqlalchemy import Engine

from alerts.objectives import Goodput
from cost.errors import PriceError
from cost.pricefile import prices_in_force
from cost.prices import PriceList
from store.errors import StoreError
from store.queries import Window, newest_unix_ns
from ui.frame import controls, freshness, no_data
from ui.frame.objectives import InForce, in_force, short, thresholds
from ui.frame.pages import BY_KEY
from ui.frame.read_cache import shared, window_of
from ui.frame.view import SECOND_NS, View
from ui.kit import colours, slo_cards, wording
from ui.kit.sections import chapter, chart
from ui.kit.slo_status import Standing, burning_since_ns, foremost, instant_s, standings
from ui.kit.store_reads import Unreadable, told
from ui.kit.terms import LATENCY_NAMES, TERMS
from ui.views.overview import charts, hung_engines, incidents, trends, words
from ui.views.overview.hourly_cost import Hourly, hourly
from ui.views.overview.trends import Trend

PAGE: Final = BY_KEY["overview"]

LATENCY_HELP: Final = (
    "P50, P95 and P99 by when a request was received, and what is promised of it. Shaded: where "
    "P50 and P99 lay in 8 of 10 such stretches of what it is held against. Red: a budget burned."
)
TRAFFIC_HELP: Final = "Requests received a second, by how they ended."
FAILURES_HELP: Final = "\n".join(
    f"- **{name}**: {TERMS[key]}"
    for name, key in (("client left", "abort"), ("refused", "rejected"), ("failed", "error"))
)


@dataclass(frozen=True, slots=True)
class Seen:
    """All that the page shows of a range."""

    window: Window
    standings: tuple[Standing, ...]
    now: Trend
    before: Trend | None
    newest_unix_ns: int | None
    hourly: Hourly | None


def body(engine: Engine, zone: tzinfo) -> None:
    """All that moves with time; runs again by itself while the page is live."""
    view = controls.current()
    now = time.time_ns()
    st.session_state["now_unix_ns"] = now
    promised = in_force()
    try:
        with st.spinner("Looking …"):
            found = _read(engine, view, promised, now)
        freshness.show(
            view, found.newest_unix_ns, found.window.to_unix_ns, found.now.simulated, now, zone
        )
        if found.newest_unix_ns is None:
            no_data.no_server()
        else:
            silent = freshness.silent_for(view, found.newest_unix_ns, now)
            hung_engines.show(engine, now)
            _show(engine, found, promised, view, zone, silent)
    except (Unreadable, StoreError) as error:
        no_data.unreadable(str(error))


def _read(engine: Engine, view: View, promised: InForce, now_unix_ns: int) -> Seen:
    window = window_of(view, PAGE, now_unix_ns)
    at_s = instant_s(window, now_unix_ns)
    counted = [each for each in promised.objectives if isinstance(each.indicator, Goodput)]
    meant = tuple((each.name, each.promise) for each in counted)

    def read() -> Seen:
        with told():
            trend = trends.read(engine, window, view.equals)
            found = standings(engine, counted, window, at_s)
            quiet_until_ns = burning_since_ns(found, window)
            return Seen(
                window,
                found,
                trend,
                trends.before(engine, trend, view.equals, view.baseline, quiet_until_ns),
                newest_unix_ns(engine),
                hourly(engine, window, view.equals, prices),
            )

    prices = _prices()
    filters = tuple(sorted(view.equals.items()))
    key = ("overview", window, view.baseline, filters, at_s, meant, repr(prices))
    return shared(engine, key, read)


def _prices() -> PriceList:
    try:
        return prices_in_force(None, os.environ)
    except PriceError:
        return PriceList()  # the page of costs says what is wrong with them


def _show(
    engine: Engine,
    found: Seen,
    promised: InForce,
    view: View,
    zone: tzinfo,
    silent_s: float | None,
) -> None:
    length_s = (found.window.to_unix_ns - found.window.from_unix_ns) / SECOND_NS
    _wrong(promised)
    if found.standings and (found.now.number or view.equals):
        answer = words.answer(found.standings, found.now.number, length_s, zone)
        if silent_s is not None:
            answer = words.of_the_past(answer, silent_s)
        st.html(f"<p class='headline answer {answer.mood}'>{answer.sentence}</p>")
    elif not found.standings:
        _no_objective(promised)
    if found.hourly is not None:
        st.html(f"<p class='note'>{words.costs(found.hourly, view)}</p>")
    if found.standings:
        _promises(found.standings, zone, silent_s)
    if found.now.number:
        _trends(found, view, zone)
    else:
        no_data.nothing_in_view(engine, found.window, view, zone)


def _wrong(promised: InForce) -> None:
    if promised.problem:
        st.html(f"<p class='notice'>{wording.for_html(promised.problem, 300)}</p>")
    if promised.wrong:
        number = wording.counted(len(promised.wrong), "mistake")
        st.html(
            f"<p class='notice'>{number} in the objectives’ files: the page “What is being"
            " promised?” says where.</p>"
        )


def _no_objective(promised: InForce) -> None:
    others = [each for each in promised.objectives if not isinstance(each.indicator, Goodput)]
    if others:
        names = ", ".join(wording.for_html(each.name) for each in others)
        st.html(
            f"<p class='headline'>Prometheus counts what is promised here ({names}); its alerts"
            " say who is hurt.</p>"
        )
        return
    st.html(
        "<p class='headline'><b>Nobody can say:</b> nothing is promised yet. An objective says"
        " which requests, what is good of them, and for how many that holds:</p>"
    )
    st.code(words.EXAMPLE, language="yaml")
    files = ", ".join(map(short, promised.texts)) or "objectives/chat.yaml"
    st.markdown(
        f"Write it into a file (`{files}`), check it with `tailspan slo check FILE`, and start "
        "with `tailspan up --objectives FILE`."
    )


def _promises(found: Sequence[Standing], zone: tzinfo, silent_s: float | None) -> None:
    happening, cards = st.columns([2, 3], gap="large")
    with cards, chapter("What is promised", TERMS["budget"]):
        shown, left_out = foremost(found)
        for each in shown:
            st.html(slo_cards.card(each, silent_s=silent_s))
            key = f"windows_{each.objective.name}"
            with st.expander("Burn, window by window", key=key):
                st.html(slo_cards.windows(each))
        for name, number in left_out.items():
            more = wording.counted(number, "more group")
            st.html(
                f"<p class='note'>{wording.for_html(name)} has {more}; these burn less. The page"
                " “What is being promised?” lists all.</p>"
            )
    with happening, chapter("Incidents", "Budgets that burned fast enough to alert."):
        st.html(incidents.happened(found, zone))


def _trends(found: Seen, view: View, zone: tzinfo) -> None:
    ink = colours.ink(st.context.theme.type)
    objectives = [each.objective for each in found.standings]
    now, before = found.now, found.before
    burned = [
        (one.row.began_unix_s * SECOND_NS, _end_ns(each, one.row.ended_unix_s))
        for each in found.standings
        for one in each.incidents
    ]
    st.html(f"<p class='note'>{words.held_against(now, before, view, zone)}</p>")
    for column, name in zip(st.columns(3, gap="medium"), trends.LATENCIES, strict=True):
        shown = LATENCY_NAMES[name]
        with column, chapter(f"{shown} over time", f"{TERMS[name]}\n\n{LATENCY_HELP}"):
            figure = charts.latency(
                now,
                before,
                name,
                shown,
                thresholds(objectives, name),
                burned,
                zone,
                ink,
            )
            chart(figure, name, f"P50, P95 and P99 of {shown} over time")
    left, right = st.columns(2, gap="medium")
    with left, chapter("Traffic", TRAFFIC_HELP):
        chart(charts.traffic(now, before, burned, zone, ink), "traffic", "Requests a second")
    with right, chapter("Without an answer", FAILURES_HELP):
        chart(
            charts.failures(now, before, burned, zone, ink),
            "failures",
            "The share of requests that failed, were refused or were left",
        )


def _end_ns(each: Standing, ended_s: int | None) -> int:
    return (each.status.at_s if ended_s is None else ended_s) * SECOND_NS
