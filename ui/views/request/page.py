"""The Request page: one request, its phases, the requests sharing its engine, its details."""

import html
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from typing import Any, Final

import streamlit as st
from sqlalchemy import Engine

from analysis.one_request import MAX_MATCHES
from analysis.over_time.time_bins import SECOND_NS
from telemetry.store_errors import StoreError
from ui.frame import freshness, navigation, no_data
from ui.frame.address import link, pasted, request_link
from ui.frame.context import Context
from ui.frame.navigation import choice
from ui.frame.view import View
from ui.kit import joined_tables, wording
from ui.kit.fact_grid import fact_grid
from ui.kit.request_key import RequestKey
from ui.kit.sections import chapter, chart, paragraph
from ui.kit.tables import table
from ui.kit.unreadable import Unreadable
from ui.views.request import charts, neighbours, timeline, trace_link, words
from ui.views.request.engine_state import TimeSeries
from ui.views.request.facts import facts
from ui.views.request.read import RequestDetails, candidates, missing, read_request

AGAIN_KEY_S: Final = 5
AGAIN_WORDS_S: Final = 30
"""Seconds between two searches for a request whose id was not found."""
SHOWN: Final = "asked_in_address"
"""Session key of the id that the page last wrote into the text field."""
MAX_LISTED: Final = 6
"""Maximum number of neighbours in the list. The chart shows more neighbours."""

LIFE_HELP: Final = (
    "One row per phase. In each phase, the request's own work is drawn first, then other"
    " requests' work, preemption and stalls. Only their durations are known, so their order in"
    " the chart has no meaning."
)
NEIGHBOURS_HELP: Final = (
    "On the same axis: requests in the same engine. Violet: a prefill that delayed this "
    "request. Grey: any other prefill. A delay is divided among the other requests in proportion"
    " to the tokens that the engine computed for each of them while this request waited or ran:"
    " prompt tokens for prefills, output tokens for decodes."
)
JOINED_HELP: Final = (
    "Prefill and decode of this request are on different servers. Its phases sum to its"
    " end-to-end time, which begins at the client, the router or the first engine. The rest of"
    " this page is about one of its engines."
)
ENGINE_HELP: Final = (
    "On the same axis. Each sample covers the time since the previous sample, which may be longer"
    " than the request."
)


@dataclass(frozen=True, slots=True)
class RequestPageData:
    """The request that the address names, or all requests that have the id in the address."""

    request: RequestDetails | None = None
    candidates: Sequence[Mapping[str, Any]] = ()
    newest_unix_ns: int | None = None

    @property
    def simulated(self) -> bool:
        """Whether the request comes from the simulator."""
        return self.request is not None and self.request.simulated


def read(context: Context) -> RequestPageData:
    """Read the request whose key is in the page's address. There may be none."""
    reference = context.view.request
    return RequestPageData() if reference is None else _find(context.engine, reference)


def show(context: Context, found: RequestPageData) -> None:
    """Draw the request, or explain why no request is shown."""
    view = context.view
    request_id = "" if view.request is None else str(view.request)
    _ask(request_id)
    if view.request is None:
        _no_request(view)
    elif found.request is not None:
        _request(found.request, view, context.zone)
    elif found.candidates:
        _list_of_matches(found.candidates, request_id, view, context.zone)
    else:
        _unknown(context.engine, view.request, context.zone)
        every = AGAIN_KEY_S if isinstance(view.request, RequestKey) else AGAIN_WORDS_S
        st.fragment(_look_again, run_every=every)(context.engine, view.request, time.time_ns())


def _ask(request_id: str) -> None:
    # Without this check, a rerun would replace the text that a reader is typing.
    if "request_id" not in st.session_state or st.session_state.get(SHOWN) != request_id:
        st.session_state["request_id"] = st.session_state[SHOWN] = request_id
    st.text_input(
        "Request",
        key="request_id",
        placeholder="A request id, a trace id, or TRACE/SPAN",
        label_visibility="collapsed",
        max_chars=2_000,
        on_change=_open_request,
    )


@choice
def _open_request() -> None:
    text = pasted(st.session_state["request_id"])
    navigation.change(replace(navigation.current(), request=text))


def _find(engine: Engine, reference: RequestKey | str) -> RequestPageData:
    if isinstance(reference, RequestKey):
        return RequestPageData(read_request(engine, reference))
    rows = candidates(engine, reference)
    return (
        RequestPageData(read_request(engine, RequestKey.of(rows[0])))
        if len(rows) == 1
        else RequestPageData(None, rows)
    )


def _look_again(engine: Engine, reference: RequestKey | str, looked_unix_ns: int) -> None:
    """Search again, because a running request is stored only after it has ended."""
    try:
        # Streamlit first calls this function while it runs the page, which has just searched.
        if time.time_ns() - looked_unix_ns > SECOND_NS:
            found = _find(engine, reference)
            if found.request is not None or found.candidates:
                st.rerun()
    except (Unreadable, StoreError):
        return  # the store may respond the next time


def _no_request(view: View) -> None:
    slowest = wording.anchor(link(replace(view, page="requests")), "Requests")
    st.html(
        "<p class='headline'>Enter a request’s id above: the <code>id</code> of the response "
        "(<code>chatcmpl-…</code>), the value of the request’s header <code>X-Request-Id</code>, "
        "or its trace id.</p>"
        f"<p class='note'>Or choose one of the slowest: {slowest}</p>"
    )


def _unknown(engine: Engine, reference: RequestKey | str, zone: tzinfo) -> None:
    there = missing(engine)
    if there.oldest_unix_ns is None or there.newest_unix_ns is None:
        no_data.no_server()
        return
    oldest = wording.clock(there.oldest_unix_ns, zone, date=True)
    newest = wording.clock(there.newest_unix_ns, zone, date=True)
    at = reference.received_unix_ns if isinstance(reference, RequestKey) else None
    if at is not None and at < there.oldest_unix_ns:
        st.html(
            "<p class='headline'><b>This request has expired.</b> It was received "
            f"{wording.clock(at, zone, date=True)}; the oldest stored request is from {oldest}.</p>"
            "<p class='note'><code>tailspan up --keep-rows</code> sets how long requests are kept."
            " Other pages still count deleted requests in longer ranges.</p>"
        )
        return
    st.html(
        "<p class='headline'>"
        f"<b>No request has the id “{wording.for_html(str(reference), 80)}”.</b>"
        f"</p><p class='note'>The store has requests from {oldest} to {newest}. A request appears"
        " only after it has ended. <code>tailspan up --keep-rows</code> sets "
        "how long requests are kept. <code>tailspan requests --last 1h</code> lists ids.</p>"
    )


def _list_of_matches(
    rows: Sequence[Mapping[str, Any]], request_id: str, view: View, zone: tzinfo
) -> None:
    many = f"at least {MAX_MATCHES}" if len(rows) >= MAX_MATCHES else str(len(rows))
    shown_id = wording.for_html(request_id, 80)
    listed = [
        (
            wording.anchor(
                link(replace(view, request=RequestKey.of(row))),
                wording.for_html(row["request_id"] or row["span_id"], 60),
            ),
            wording.clock(row["received_unix_ns"], zone, date=True),
            wording.for_html(row["model"] or wording.UNKNOWN),
            wording.for_html(row["outcome"]),
            wording.seconds(row["e2e_s"]),
        )
        for row in rows
    ]
    st.html(
        f"<p class='headline'><b>{many} requests</b> have the id “{shown_id}”. Choose one:</p>"
        + table(("request", "received", "model", "outcome", "E2E"), listed, text=(2,))
    )


def _request(found: RequestDetails, view: View, zone: tzinfo) -> None:
    row = found.row
    whole_s = row["e2e_s"]
    freshness.band(found.simulated)
    paragraph(words.sentence(row, found.account, zone), "headline")
    for note in (
        words.rank(row, found.ranks),
        words.less(row),
    ):
        if note:
            paragraph(note)
    _trace(row)
    if found.joined is not None:
        with chapter("The user’s request", JOINED_HELP):
            paragraph(joined_tables.sentence(found.joined))
            st.html(joined_tables.phases_table(found.joined))
            st.html(joined_tables.hops_table(found.joined, partial(request_link, view)))
    moments = timeline.instants(row)
    stages = timeline.stages(row, found.account.parts_s)
    with chapter("Time by phase", LIFE_HELP):
        phases = "; ".join(f"{each.name} {wording.seconds(each.length_s)}" for each in stages)
        chart(charts.lifeline(stages, moments, whole_s), "life", alt=f"Phases: {phases}")
        st.html(words.moments(moments, row["received_unix_ns"], zone))
    if row["outcome"] != "rejected":
        _neighbours(found, view, whole_s)
        _servers(found, whole_s)
    with st.expander("Parts in numbers", key="parts"):
        st.html(words.parts_table(found.account, whole_s))
    with chapter("Details"):
        st.html(fact_grid(facts(row)))
    _raw(row)


def _trace(row: Mapping[str, Any]) -> None:
    try:
        url = trace_link.template()
    except ValueError as error:
        paragraph(html.escape(str(error)), "notice")
        return
    if url is None:
        st.html(
            "<p class='note'>For a link to its trace, start Tailspan with "
            f"<code>{trace_link.KEY}={trace_link.EXAMPLE}</code>.</p>"
        )
    else:
        address = html.escape(trace_link.link(url, row["trace_id"], row["span_id"]))
        st.html(
            f"<p class='note'><a href='{address}' target='_blank' rel='noreferrer'>"
            "Open its trace</a></p>"
        )


def _neighbours(found: RequestDetails, view: View, whole_s: float) -> None:
    row = found.row
    with chapter("Requests sharing its engine", NEIGHBOURS_HELP):
        if row["replica"] is None:
            paragraph("Its replica is unknown, and so are the requests sharing its engine.")
            return
        sentence = neighbours.sentence(found.neighbours)
        paragraph(html.escape(sentence))
        if not found.neighbours.drawn:
            return
        chart(charts.neighbours(found.neighbours.drawn, whole_s), "neighbours", alt=sentence)
        if found.account.by_tenant:
            st.html(words.tenant_delays(found.account.by_tenant))
        costly = [each for each in found.neighbours.drawn if each.cost_s > 0][:MAX_LISTED]
        if costly:
            st.html(_delayers(costly, view))


def _delayers(costly: Sequence[neighbours.Neighbour], view: View) -> str:
    listed = [
        (
            _name_with_link(each, view),
            wording.for_html(each.tenant or wording.UNKNOWN),
            wording.count(each.prompt_tokens),
            f"<b>{wording.signed_seconds(each.cost_s)}</b>",
        )
        for each in costly
    ]
    heads = ("request", "tenant", "prompt tokens", "its prefill delayed it by")
    return table(heads, listed, text=(1,))


def _name_with_link(each: neighbours.Neighbour, view: View) -> str:
    name = wording.for_html(each.name, 60)
    if each.name == neighbours.HIDDEN:
        return name
    return wording.anchor(link(replace(view, request=each.key)), name)


def _servers(found: RequestDetails, whole_s: float) -> None:
    if found.row["replica"] is None:
        return
    with chapter("Engine state", ENGINE_HELP):
        if not found.engine:
            paragraph("The engine reported no sample during the request.")
        else:
            chart(charts.time_series(found.engine, whole_s), "engine", alt=_titles(found.engine))
    if found.gpus:
        with chapter("GPU state", ENGINE_HELP):
            if found.throttled:
                paragraph(html.escape(found.throttled))
            chart(charts.time_series(found.gpus, whole_s), "gpus", alt=_titles(found.gpus))


def _titles(found: Sequence[TimeSeries]) -> str:
    return f"During the request: {', '.join(series.title for series in found)}"


def _raw(row: Mapping[str, Any]) -> None:
    with st.expander("All attributes", key="raw"):
        st.html(words.raw(row))
        written = json.dumps(dict(row), indent=2, allow_nan=False)
        st.code(written, language="json")
        st.download_button(
            "Download as JSON",
            written,
            f"request-{row['trace_id']}-{row['span_id']}.json",
            "application/json",
            key="download_request",
            on_click="ignore",
        )
