"""Draw a page without data, with the steps to get data."""

import os
from dataclasses import replace
from typing import Final

import streamlit as st

from analysis.over_time.time_bins import SECOND_NS
from analysis.requests import newest_match
from telemetry.otlp_urls import GRPC_KEY, otlp_url
from ui.frame import navigation
from ui.frame.context import Context
from ui.frame.view import View
from ui.kit import wording
from ui.kit.sections import paragraph
from ui.kit.unreadable import store_errors

CONNECT: Final = """\
pip install ./instrumentation   # in Tailspan's source folder
export OTEL_EXPORTER_OTLP_ENDPOINT={url}
vllm serve MODEL"""

FIRST_REQUEST: Final = """\
curl http://localhost:8000/v1/completions -H 'Content-Type: application/json' \\
  -d '{"model": "MODEL", "prompt": "Hello", "max_tokens": 32}'"""

SIMULATE: Final = "make run"


def no_server() -> None:
    """Explain, for an empty store, how to connect a server or start the simulator."""
    paragraph("<b>No server has reported yet.</b>", "headline")
    st.markdown(
        "Install the instrumentation **in vLLM’s environment**, set Tailspan's address (`HOST` "
        "is this machine's name on the server's network), and start vLLM as usual:"
    )
    st.code(CONNECT.format(url=otlp_url(GRPC_KEY, os.environ)), language="bash")
    st.markdown("Then send a first request. It appears here within seconds:")
    st.code(FIRST_REQUEST, language="bash")
    st.markdown("Or try Tailspan with a simulated fleet that has an incident:")
    st.code(SIMULATE, language="bash")


def nothing_in_view(context: Context) -> None:
    """Explain that the store has no data for this range and these filters."""
    window, view, zone = context.window, context.view, context.zone
    equals = view.equals
    with store_errors():
        newest_match_unix_ns = newest_match(context.engine, equals)
    came = (
        f"between {wording.clock(window.from_unix_ns, zone, date=True)} and "
        f"{wording.clock(window.to_unix_ns, zone, date=True)}"
    )
    if newest_match_unix_ns is None:
        what = "No request has ever matched these filters." if equals else "No request yet."
        paragraph(what, "headline")
    else:
        matching = " that match the filters" if equals else ""
        newest = wording.clock(newest_match_unix_ns, zone, date=True)
        st.html(
            f"<p class='headline'>No requests{matching} {came}. "
            f"The latest was received at <b>{newest}</b>.</p>"
        )
    ways_back(
        context, newest_match_unix_ns, "request", replace(view, equals={}) if equals else None
    )


def ways_back(
    context: Context, newest_unix_ns: int | None, what: str, unfiltered: View | None
) -> None:
    """Draw a button that shows the newest data. If there are filters, draw a button that clears
    them."""
    window = context.window
    with st.container(horizontal=True):
        if newest_unix_ns is not None and st.button(
            f"Show the range that ends at the latest {what}", key="show_range", type="primary"
        ):
            end = newest_unix_ns + SECOND_NS
            start = max(0, end - (window.to_unix_ns - window.from_unix_ns))
            navigation.go(context.view.between(start, end))
        if unfiltered is not None and st.button("Clear the filters", key="clear_filters"):
            navigation.go(unfiltered)


def unreadable(reason: str) -> None:
    """Show why the store cannot be read."""
    st.html(
        "<p class='headline'>The store cannot be read. This page retries automatically.</p>"
        f"<p class='note'>{wording.for_html(reason, 600)}</p>"
    )


def cannot_show(sentence: str, reason: str) -> None:
    """Show why the page cannot be drawn."""
    st.html(
        f"<p class='headline'>{wording.for_html(sentence, 300)}</p>"
        f"<p class='notice'>{wording.for_html(reason, 600)}</p>"
    )
