"""The Requests page: latencies and phases over time, engine state, the slowest requests."""

import html
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import streamlit as st

from analysis.over_time import engine_gauges, percentiles, phases, time_bins
from analysis.over_time.columns import floats, instants
from ui.frame import no_data, selection
from ui.frame.address import link, request_link
from ui.frame.context import Context
from ui.frame.view import View
from ui.kit import charts as kit_charts
from ui.kit import data_sources, joined_tables, slowest, slowest_table, wording
from ui.kit.sections import chapter, paragraph
from ui.kit.terms import LATENCY_NAMES, TERMS, term
from ui.views.requests import budget, charts, words
from ui.views.requests.read import MAX_JOINED_ROWS, RequestsData, read_requests


def read(context: Context) -> RequestsData:
    """Read the range's samples and its requests. If there are too many requests, read rollups."""
    latency = context.view.latency

    def found() -> RequestsData:
        return read_requests(context.engine, context.window, context.view.equals, latency)

    known = context.shared(found, large=True)
    # Rollups contain the slowest requests for only one latency.
    if known.rolled is None or known.rolled.latency == latency:
        return known
    return context.shared(found, latency, large=True)


def show(context: Context, found: RequestsData) -> None:
    """Draw the page."""
    if found.number:
        _requests(context, found)
        return
    no_data.nothing_in_view(context)
    if note := data_sources.scraped(found.scraped_replicas):
        paragraph(html.escape(note))
    if found.samples.num_rows:
        _engines(context, found)


def _requests(context: Context, found: RequestsData) -> None:
    table, window = found.requests, found.window
    view, zone, length_s = context.view, context.zone, context.length_s
    matrix = phases.layers(table)
    rolled = found.rolled
    if rolled is not None:
        headline = words.rolled_sentence(rolled, length_s, view.equals)
        outcomes, bins = rolled.outcomes, rolled.bins
        series, means, number = rolled.percentiles, rolled.means, rolled.number
    else:
        headline = words.sentence(table, matrix, length_s, view.equals)
        outcomes = words.outcomes(table)
        bins = time_bins.choose(window.from_unix_ns, window.to_unix_ns, table.num_rows)
        index = bins.index(instants(table, "received_unix_ns"))
        series = percentiles.per_bin(floats(table, view.latency), index, bins.count)
        means, number = phases.mean_per_bin(matrix, index, bins.count)
    st.html(f"<p class='headline'>{headline}</p>{_outcomes(outcomes, view)}")
    if rolled is None and (less := data_sources.note(table)):
        paragraph(html.escape(less))
    for each in found.counting:
        paragraph(each)

    name = LATENCY_NAMES[view.latency]
    with chapter(f"{name} over time", _latency_help(view.latency)):
        figure = kit_charts.percentiles(series, bins, window, context.axis_zone, context.ink, name)
        selection.time_chart(context, figure, "percentiles")
        if gap := words.gap_sentence(series, bins):
            paragraph(gap)
    with chapter("Time by phase", PHASES_HELP):
        figure = charts.phases(means, number, bins, window, context.axis_zone)
        selection.time_chart(context, figure, "phases")
    _joined_section(context, found)
    budget.show(context, too_many=rolled is not None)
    _engines(context, found)
    with chapter(f"Slowest by {name}", "Choose a request to see its timeline."):
        slowest_table.show(
            slowest.shown_rows(
                table, matrix, view.latency, partial(request_link, view), zone, length_s
            ),
            slowest.shown_columns(view.latency),
        )


def _joined_section(context: Context, found: RequestsData) -> None:
    """Show the slowest joined requests, if prefill and decode are on different servers."""
    joined = found.joined.requests
    if not joined:
        return
    by_e2e = context.view.latency == "e2e_s"
    known = [each for each in joined if (each.e2e_s if by_e2e else each.ttft_s) is not None]
    known.sort(key=lambda each: -(each.e2e_s if by_e2e else each.ttft_s or 0.0))
    with chapter("Joined requests", JOINED_HELP):
        latency = "E2E" if by_e2e else "TTFT"
        most = MAX_JOINED_ROWS if found.joined.truncated else None
        paragraph(words.joined(len(joined), latency, most))
        shown = known[:MAX_JOINED]
        address = partial(request_link, context.view)
        st.html(joined_tables.requests_table(shown, address, context.zone))


def _latency_help(latency: str) -> str:
    return (
        f"{TERMS[latency]} Each request counts in the bin of its receipt. Running requests are "
        "not counted yet, so the newest bin still changes. "
        f"{selection.HELP}"
    )


PHASES_HELP: Final = (
    "Mean seconds per request in each phase. A bar's height is the mean end-to-end time."
    " “prefill” and “decode” contain only the request's own work. Preemption, others’ work and"
    " stalls also occur during prefill and decode, but are drawn separately.\n\n"
    + "\n".join(f"- **{layer.name}**: {TERMS[layer.key]}" for layer in phases.LAYERS)
)


MAX_JOINED: Final = 10
NO_STATE: Final = (
    "No engine reported its state in this range. The plugin in vLLM reports it; for other servers,"
    " use <code>tailspan up --scrape URL</code>."
)

JOINED_HELP: Final = (
    "Prefill and decode are on different servers. A joined request is one request of a user "
    "over all servers. Choose a request to see its servers."
)

ENGINES_HELP: Final = "The highest value in each bin.\n\n" + "\n".join(
    f"- **{name}**: {TERMS[key]}"
    for key, name in (("waiting", "waiting"), ("running", "running"), ("kv", "KV cache used"))
)


def _outcomes(counts: Mapping[str, int], view: View) -> str:
    total = sum(counts.values())
    shown = []
    for name, number in counts.items():
        label = f"{term(name, name)} <b>{number:,}</b>"
        if number:
            href = html.escape(link(replace(view, equals={**view.equals, "outcome": name})))
            share = wording.percent(number / total)
            label = f"<a href='{href}' target='_self'>{label}</a> ({share})"
        shown.append(f"<span class='{'some' if number else 'none'}'>{label}</span>")
    return f"<div class='outcomes'>{''.join(shown)}</div>"


def _engines(context: Context, found: RequestsData) -> None:
    window = found.window
    with chapter("Engine state", ENGINES_HELP):
        if not found.samples.num_rows:
            paragraph(NO_STATE)
            return
        gauges = engine_gauges.gauges_of(found.samples, window.from_unix_ns, window.to_unix_ns)
        selection.time_chart(context, charts.engines(gauges, window, context.axis_zone), "engines")
