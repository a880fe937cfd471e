"""The Outside page: endpoints as users of each region see them, measured by probes."""

import os
from dataclasses import replace
from functools import partial
from typing import Final

import streamlit as st

from analysis.outside.answer import NEVER_MATCHED
from telemetry.otlp_urls import HTTP_KEY, otlp_url
from ui.frame import navigation, no_data, selection
from ui.frame.context import Context
from ui.frame.navigation import choice
from ui.kit import wording
from ui.kit.sections import chapter, chart, paragraph
from ui.views.outside import charts, words
from ui.views.outside.read import OutsideData, read_outside

EVERYTHING: Final = ""

ENDPOINTS_HELP: Final = (
    "Results of `tailspan probe`. Latencies include only complete answers of the model. **By a"
    " cache**: answers of a gateway's cache, which are not in the latencies. **First content** is"
    " measured from the moment at which the connection is ready. **Whole wait** includes the"
    " set-up of the connection. **Managed**: the "
    "endpoint has a list price. **Self-hosted**: Tailspan also received reports from the server."
    " P95 "
    "needs 73 probes."
)
PHASES_HELP: Final = (
    "The mean wait of probes that the model answered. The phases sum to the whole wait.\n\n"
    + "\n".join(f"- **{name}**: {meaning}" for name, _, meaning in charts.PHASES.values())
    + "\n\nServer and network are shown separately if the server also reported the probe."
)
TIME_HELP: Final = (
    f"The median whole wait of probes that the model answered, for at most {charts.MAX_LINES} "
    "endpoints: those with the most failures first."
)
FAILURES_HELP: Final = (
    "Probes without a complete answer, with the most frequent reasons. Probes that were not "
    "sent (over the budget, or missed by the prober) do not count."
)
PAIRS_HELP: Final = (
    "**Network**: the first event at the prober minus the first byte at the server, for "
    "probes that the server also reported. P99 needs 381 probes. **Median difference**: the"
    " prober sends each prompt twice; this is the time to the first event of the second probe"
    " minus that of the first. If the whole 95 % interval is below 0, the prefix cache makes"
    " answers faster. The interval needs 8 pairs."
)
COST_HELP: Final = (
    "List price of the probes' tokens (genai-prices). Self-hosted endpoints have no list price."
    " The certificates are the ones that the servers sent."
)


def read(context: Context) -> OutsideData:
    """Read the probes of the range."""
    equals = _chosen_labels(context)
    return context.shared(
        lambda: read_outside(context.engine, context.window, equals), *equals.items()
    )


def show(context: Context, found: OutsideData) -> None:
    """Draw the finding, and then the endpoints by region."""
    answer = found.answer
    if not answer.endpoints:
        _no_probes(context, found)
        return
    paragraph(words.sentence(answer), "headline")
    for note in words.notes(answer):
        paragraph(note)
    _filters(context, found)
    at_unix_ns = min(context.window.to_unix_ns, context.now_unix_ns)
    with chapter("Endpoints by region", ENDPOINTS_HELP):
        st.html(words.endpoints(answer.endpoints, at_unix_ns))
    if any(place.phases_s for place in answer.endpoints):
        with chapter("Phases of the wait", PHASES_HELP):
            alt = "The mean wait of each endpoint and region, divided into phases"
            chart(charts.phases(answer.endpoints), "outside_phases", alt)
        with chapter("Over time", TIME_HELP):
            figure = charts.waits(answer, context.window, context.axis_zone)
            selection.time_chart(
                context, figure, "outside_waits", "The median whole wait over time"
            )
    if table := words.failures(answer.endpoints, context.zone):
        with chapter("Failures", FAILURES_HELP):
            figure = charts.failures(answer, context.window, context.axis_zone)
            if figure is not None:
                chart(figure, "outside_failures", "The share of failed probes over time")
            st.html(table)
    if table := words.network_and_cache(answer.endpoints):
        with chapter("Network and prefix cache", PAIRS_HELP):
            st.html(table)
    with chapter("Cost of probing and certificates", COST_HELP):
        st.html(words.cost(answer, at_unix_ns))


def _chosen_labels(context: Context) -> dict[str, str | None]:
    chosen = {"region": context.view.region, "endpoint": context.view.endpoint}
    return {label: value for label, value in chosen.items() if value}


def _filters(context: Context, found: OutsideData) -> None:
    chosen = {"region": context.view.region, "endpoint": context.view.endpoint}
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for label, options in found.options.items():
            value = chosen[label]
            st.session_state[f"outside_{label}"] = value
            offered = [EVERYTHING, *options]
            st.selectbox(
                label.capitalize(),
                offered if value in offered else [*offered, value],
                key=f"outside_{label}",
                format_func=partial(_option, label),
                label_visibility="collapsed",
                width=240,
                on_change=_choose,
                args=(label,),
            )


def _option(label: str, value: str) -> str:
    return wording.plain(value, 60) if value else f"all {label}s"


def _no_probes(context: Context, found: OutsideData) -> None:
    zone = context.zone
    filtered = bool(_chosen_labels(context))
    if found.latest_unix_ns is None and not filtered:
        paragraph("<b>No probe has reported yet.</b>", "headline")
        st.markdown("Write the endpoints to a file, `probes.yaml`. `HOST` is this machine:")
        endpoint = otlp_url(HTTP_KEY, os.environ)
        st.code(words.example(endpoint), language="yaml", wrap_lines=True)
        st.markdown("Then install the prober where your users are, and start it:")
        st.code(words.START, language="bash", wrap_lines=True)
        return
    matching = " that match the filters" if filtered else ""
    if found.latest_unix_ns is None:
        paragraph(NEVER_MATCHED, "headline")
    else:
        latest = wording.clock(found.latest_unix_ns, zone, date=True)
        st.html(
            f"<p class='headline'>No probes{matching} in this range. The latest was due at"
            f" <b>{latest}</b>.</p>"
        )
    _filters(context, found)
    unfiltered = replace(context.view, region="", endpoint="") if filtered else None
    no_data.ways_back(context, found.latest_unix_ns, "probe", unfiltered)


@choice
def _choose(label: str) -> None:
    value = st.session_state[f"outside_{label}"]
    navigation.change(replace(navigation.current(), **{label: value}))
