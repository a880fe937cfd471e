"""The page "What did requests wait for?"."""

import html
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import tzinfo
from typing import Final

import streamlit as st
from sqlalchemy import Engine

from store.errors import StoreError
from ui.frame import controls, freshness, no_data
from ui.frame.pages import BY_KEY
from ui.frame.read_cache import shared, window_of
from ui.frame.view import SECOND_NS, RequestKey, View
from ui.kit import charts as kit_charts
from ui.kit import (
    colours,
    data_sources,
    percentiles,
    phases,
    slowest,
    slowest_table,
    time_bins,
    wording,
)
from ui.kit.columns import floats, instants
from ui.kit.sections import chapter, chart
from ui.kit.store_reads import Unreadable
from ui.kit.terms import LATENCY_NAMES, TERMS, term
from ui.views.request import panel
from ui.views.requests import charts, engines, read, words
from ui.views.requests.read import Reading

PAGE: Final = BY_KEY["requests"]


def body(engine: Engine, zone: tzinfo) -> None:
    """All that moves with time; runs again by itself while the page is live."""
    view = controls.current()
    now = time.time_ns()
    st.session_state["now_unix_ns"] = now
    try:
        found = _read(engine, view, now)
        freshness.show(
            view, found.newest_unix_ns, found.window.to_unix_ns, found.simulated, now, zone
        )
        if found.newest_unix_ns is None:
            no_data.no_server()
        elif not found.number:
            _nothing(engine, found, view, zone)
        else:
            _requests(engine, found, view, zone)
    except (Unreadable, StoreError) as error:
        no_data.unreadable(str(error))


def _read(engine: Engine, view: View, now: int) -> Reading:
    """Read the store, or take what was read: a paused page stands still, and one that has
    just looked need not look again because the reader opened a request."""
    window = window_of(view, PAGE, now)

    def read_for(*latency: str) -> Reading:
        return shared(
            engine,
            ("requests", window, tuple(sorted(view.equals.items())), *latency),
            lambda: read.read(engine, window, view.equals, view.latency),
            large=True,
        )

    found = read_for()
    # Of many requests only the slowest by one latency were read.
    if found.rolled is None or found.rolled.latency == view.latency:
        return found
    return read_for(view.latency)


def _nothing(engine: Engine, found: Reading, view: View, zone: tzinfo) -> None:
    no_data.nothing_in_view(engine, found.window, view, zone)
    if said := data_sources.scraped(found.scraped_replicas):
        st.html(f"<p class='note'>{html.escape(said)}</p>")
    if found.samples.num_rows:
        _engines(found, zone)


def _requests(engine: Engine, found: Reading, view: View, zone: tzinfo) -> None:
    table, window = found.requests, found.window
    length_s = (window.to_unix_ns - window.from_unix_ns) / SECOND_NS
    matrix = phases.layers(table)
    rolled = found.rolled
    if rolled is not None:
        told = words.rolled_sentence(rolled, length_s, view.equals)
        outcomes, bins = rolled.outcomes, rolled.bins
        series, means, number = rolled.percentiles, rolled.means, rolled.number
    else:
        told = words.sentence(table, matrix, length_s, view.equals)
        outcomes = words.outcomes(table)
        bins = time_bins.choose(window.from_unix_ns, window.to_unix_ns, table.num_rows)
        index = bins.index(instants(table, "received_unix_ns"))
        series = percentiles.per_bin(floats(table, view.latency), index, bins.count)
        means, number = phases.mean_per_bin(matrix, index, bins.count)
    st.html(f"<p class='headline'>{told}</p>{_outcomes(outcomes)}")
    if rolled is None and (less := data_sources.note(table)):
        st.html(f"<p class='note'>{html.escape(less)}</p>")

    name = LATENCY_NAMES[view.latency]
    with chapter(f"{name} over time", _latency_help(view.latency)):
        ink = colours.ink(st.context.theme.type)
        chart(kit_charts.percentiles(series, bins, window, zone, ink, name), "percentiles")
        if gap := percentiles.gap_sentence(series, bins):
            st.html(f"<p class='note'>{gap}</p>")
    with chapter("Where the time went", PHASES_HELP):
        chart(charts.phases(means, number, bins, window, zone), "phases")
    _engines(found, zone)
    with chapter(f"The slowest by {name}", "Choose one to see where its time went."):
        slowest_table.show(
            slowest.shown_rows(table, matrix, view.latency, zone, length_s),
            slowest.shown_columns(view.latency),
            str(view.request) if isinstance(view.request, RequestKey) else "",
            on_chosen=_chosen,
        )
    if isinstance(view.request, RequestKey):
        panel.show(engine, view.request, zone)


def _latency_help(latency: str) -> str:
    return (
        f"{TERMS[latency]} Drawn by when a request was received; "
        "those still running are not counted yet, so the newest bin still changes."
    )


PHASES_HELP: Final = (
    "Mean seconds per request and phase; the bars' height is the mean end-to-end time. "
    "What lay inside prefill and decode (preempted, others’ work, stall) is taken from both in "
    "proportion.\n\n"
    + "\n".join(f"- **{layer.name}**: {TERMS[layer.key]}" for layer in phases.LAYERS)
)


ENGINES_HELP: Final = "The highest value in each stretch of time.\n\n" + "\n".join(
    f"- **{name}**: {TERMS[key]}"
    for key, name in (("waiting", "waiting"), ("running", "running"), ("kv", "KV cache used"))
)


def _outcomes(counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    shown = "".join(
        f"<span class='{'some' if number else 'none'}'>{term(name, name)} "
        f"<b>{number:,}</b>{f' ({wording.percent(number / total)})' if number else ''}</span>"
        for name, number in counts.items()
    )
    return f"<div class='outcomes'>{shown}</div>"


def _engines(found: Reading, zone: tzinfo) -> None:
    window = found.window
    with chapter("The server meanwhile", ENGINES_HELP):
        if not found.samples.num_rows:
            st.html("<p class='note'>No server reported its state in this range.</p>")
            return
        strip = engines.strip(found.samples, window.from_unix_ns, window.to_unix_ns)
        chart(charts.engines(strip, window, zone), "engines")


def _chosen(text: str) -> None:
    controls.change(replace(controls.current(), request=RequestKey.parse(text)))
