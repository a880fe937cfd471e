"""The Fleet page: a comparison of the replicas."""

import html
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import streamlit as st

from analysis.requests import count_requests
from ui.frame import controls, no_data, selection
from ui.frame.address import link
from ui.frame.context import Context
from ui.frame.view import View
from ui.kit import data_sources, wording
from ui.kit.replica_measures import MEASURES
from ui.kit.sections import chapter, paragraph
from ui.views.fleet import charts, roofline, starts, table, words
from ui.views.fleet.read import FleetData, read_fleet
from ui.views.fleet.replicas import ReplicaRow

TABLE_HELP: Final = (
    "Replicas with problems come first. Each number describes the whole range: the maximum for"
    " waiting, running, KV cache and longest step, the minimum for the clock, and the mean for"
    " all others. The "
    "lines have the same scale for all replicas."
)
SIDE_HELP: Final = (
    f"One measure of all replicas over time, in the order of the table. {selection.HELP}"
)
BOUND_HELP: Final = (
    "What limits each engine: memory (more requests per step cost little), arithmetic (more"
    " requests make steps longer), neither (CPU, kernel launches, communication), or too little"
    " load. To find the limit, Tailspan compares the duration of the steps with the time that"
    " their memory traffic and arithmetic would take at the device's peak rates."
)
CONFIG_HELP: Final = (
    "The arguments of each engine's last start, by model, and the differences between replicas of"
    " the same model."
)


def read(context: Context) -> FleetData:
    """Read the engines' and GPUs' samples, and the requests of each replica."""
    return context.shared(lambda: read_fleet(context.engine, context.window, context.view.equals))


def show(context: Context, found: FleetData) -> None:
    """Draw the comparison of the replicas, with their problems."""
    if found.fleet.replicas:
        _replicas(context, found)
    else:
        _no_replica(context, found)


def _no_replica(context: Context, found: FleetData) -> None:
    if requests := count_requests(context.engine, found.window):
        st.html(
            "<p class='headline'>No engine reported its state in this range, although"
            f" {wording.counted(requests, 'request')} arrived.</p>"
        )
    else:
        no_data.nothing_in_view(context)
    st.html(
        "<p class='note'>This page shows the state that engines report every second. Servers that "
        "send only spans need the plugin, or <code>tailspan up --scrape URL</code>.</p>"
    )


def _replicas(context: Context, found: FleetData) -> None:
    fleet, view, zone = found.fleet, context.view, context.zone
    paragraph(words.sentence(fleet, found.incident), "headline")
    for note in (
        words.imbalance(
            fleet.imbalance,
            fleet.servers,
            "engine" if fleet.engines else "replica",
            found.scraped_replicas,
        ),
        words.without_samples(found.without_samples, found.requests_one_in),
        words.ignored_filters(found.ignored_labels),
        data_sources.thinned_samples(found.samples_every_s),
        words.thinned_requests(found.requests_one_in),
        data_sources.scraped(found.scraped_replicas),
        *found.counting,
    ):
        if note:
            paragraph(note)
    with chapter("Replicas", TABLE_HELP):
        table.show(
            fleet,
            lambda replica: _href(view, replica),
            zone,
            has_gpus=found.has_gpus,
        )
        _replicas_not_drawn(fleet.replicas[table.MAX_REPLICAS :])
    _one_measure(context, found)
    with chapter("Bottleneck", BOUND_HELP):
        st.html(roofline.as_html(found.bounds, fleet.servers))
    with chapter("Starts", starts.HELP):
        st.html(starts.as_html(found.starts, zone))
    with chapter("Configuration", CONFIG_HELP):
        st.html(words.configurations(found.configs))


def _href(view: View, replica: ReplicaRow) -> str:
    equals = {**view.equals, "replica": replica.name}
    return link(replace(view, page="requests", equals=equals, request=None))


def _replicas_not_drawn(left_out: Sequence[ReplicaRow]) -> None:
    if left_out:
        named = ", ".join(wording.for_html(replica.name, 24) for replica in left_out)
        st.html(
            f"<p class='note'>Replicas with fewer problems, not drawn: {named}. "
            "Filter by replica to draw one.</p>"
        )


def _one_measure(context: Context, found: FleetData) -> None:
    view = context.view
    offered = [key for key in MEASURES if found.has_gpus or not MEASURES[key].of_gpu]
    chosen = view.measure if view.measure in offered else offered[0]
    measure = MEASURES[chosen]
    with chapter("One measure over time", SIDE_HELP):
        bin_ = wording.span(found.fleet.bins.width_s)
        paragraph(f"{html.escape(measure.meaning)} {bin_}.")
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.session_state["measure"] = chosen
            st.selectbox(
                "Measure",
                offered,
                key="measure",
                format_func=lambda key: f"{MEASURES[key].name}, {MEASURES[key].unit}",
                label_visibility="collapsed",
                width=260,
                on_change=controls.setting_chosen,
                args=("measure", offered),
            )
            st.download_button(
                "All measures",
                lambda: charts.as_csv(found.fleet.replicas, found.fleet),
                "tailspan-fleet.csv",
                "text/csv",
                key="download_fleet",
                icon=":material/download:",
                help="All measures of all replicas over time, as CSV.",
                on_click="ignore",
            )
        selection.time_chart(
            context,
            charts.side_by_side(found.fleet, measure, found.window, context.axis_zone),
            "side_by_side",
            alt=(
                f"{measure.name} of each replica over time; the table above has the values for "
                "the whole range"
            ),
        )
