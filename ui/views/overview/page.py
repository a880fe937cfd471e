"""The Overview page: SLOs, incidents, latencies compared with the usual range, and traffic."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

import streamlit as st
from sqlalchemy import Engine

from alerts.burnrate import EventCounts
from alerts.objectives import GoodProbes, Goodput, Objective
from analysis.compare.deploys import Deploy, latest_deploy
from analysis.hourly_cost import HourlyCost, hourly_cost
from analysis.judged_requests import judged, judged_window, narrowed
from analysis.over_time import trends
from analysis.over_time.time_bins import SECOND_NS
from analysis.over_time.trends import Trend
from analysis.slo_states import SloState, burning_since_ns, most_urgent
from analysis.stored_data import stored_data
from cost.errors import PriceError
from cost.pricefile import prices_in_force
from cost.prices import PriceList
from telemetry.window import Window
from ui.frame import no_data, selection
from ui.frame.context import Context
from ui.frame.objectives import Objectives, short, thresholds
from ui.frame.slo_reads import read_slos
from ui.kit import cause_words, slo_cards, wording
from ui.kit.sections import chapter, paragraph
from ui.kit.terms import LATENCY_NAMES, TERMS
from ui.views.overview import charts, deploys, hung_engines, incidents, words
from ui.views.overview.cause import CurrentCause, current_cause

LATENCY_HELP: Final = (
    "P50, P95 and P99 by time of receipt, and the SLO’s threshold. Shaded: the usual range, which"
    " contains 8 of 10 values of the baseline. Red: an error budget burned too fast. "
    f"{selection.HELP}"
)
TRAFFIC_HELP: Final = "Requests received per second, by outcome."
FAILURES_HELP: Final = "\n".join(
    f"- **{name}**: {TERMS[key]}"
    for name, key in (("cancelled", "abort"), ("refused", "rejected"), ("failed", "error"))
)


@dataclass(frozen=True, slots=True)
class OverviewData:
    """The data of the page."""

    window: Window
    states: tuple[SloState, ...]
    now: Trend
    before: Trend | None
    newest_unix_ns: int | None
    hourly: HourlyCost | None
    filtered: Sequence[tuple[Objective, EventCounts]]
    """For each objective, the counts of the requests that match the filters."""
    cause: CurrentCause | None
    deploy: Deploy | None

    @property
    def simulated(self) -> bool:
        """Whether any data comes from the simulator."""
        return self.now.simulated


def read(context: Context) -> OverviewData:
    """Read the objectives' state, the range and its baseline."""
    objectives = context.objectives.counted
    states, at_s, step = read_slos(context)
    prices, baseline = _prices(), context.view.chosen_baseline(context.window)

    def found() -> OverviewData:
        engine, window, equals = context.engine, context.window, context.view.equals
        trend = trends.read(engine, window, equals)
        quiet_until_ns = burning_since_ns(states, window)
        return OverviewData(
            window,
            states,
            trend,
            trends.before(engine, trend, equals, baseline, quiet_until_ns),
            stored_data(engine).newest_unix_ns,
            hourly_cost(engine, window, equals, prices),
            _filtered(engine, objectives, window, equals) if equals else (),
            current_cause(engine, states),
            latest_deploy(engine, window),
        )

    more = (baseline, at_s, step, context.objectives.key, repr(prices))
    return context.shared(found, *more)


def _filtered(
    engine: Engine, objectives: Sequence[Objective], window: Window, equals: Mapping[str, str]
) -> Sequence[tuple[Objective, EventCounts]]:
    newest = judged_window(engine, window)
    return [
        (each, judged(engine, narrowed(each.indicator, equals), newest))
        for each in objectives
        if isinstance(each.indicator, Goodput)
    ]


def _prices() -> PriceList:
    try:
        return prices_in_force(None, os.environ)
    except PriceError:
        return PriceList()  # the Cost page shows the error


def show(context: Context, found: OverviewData) -> None:
    """Draw the headline, the objectives, the incidents, the latencies and the traffic."""
    silent_s = context.silence_s(found.newest_unix_ns)
    hung_engines.show(context.engine, context.now_unix_ns)
    _errors(context.objectives)
    burns = any(each.burns for each in found.states)
    if found.states and (found.now.number or context.view.equals or burns):
        _answer(context, found, silent_s)
    elif not found.states:
        _no_objective(context.objectives)
    sentence = None if found.deploy is None else deploys.show(context, found.deploy)
    if found.hourly is not None:
        paragraph(words.costs(found.hourly, context.view))
    if found.states:
        _objectives(found.states, context.zone, silent_s)
    if found.now.number:
        _trend_charts(context, found)
    else:
        no_data.nothing_in_view(context)
    if sentence is not None:
        deploys.complete(context, sentence)


def _answer(context: Context, found: OverviewData, silent_s: float | None) -> None:
    answer = words.answer(found.states, found.now.number, context.length_s, context.zone)
    if context.view.equals:
        some = words.of_filters(context.view, found.filtered, context.length_s)
        _headline(words.of_the_past(some, silent_s) if silent_s is not None else some)
        paragraph(f"<b>All requests:</b> {answer.sentence}")
    else:
        _headline(words.of_the_past(answer, silent_s) if silent_s is not None else answer)
    if found.cause is not None:
        cause, stored = found.cause
        actions = "".join(
            f"<p class='lever'><b>Try:</b> {cause_words.lever(each)}</p>"
            for each in cause.levers[:1]
        )
        first_cause = cause_words.first_cause(cause)
        seen_ns = context.window.to_unix_ns
        computed = "" if stored is None else words.computed(stored, context.zone, seen_ns)
        st.html(f"<div class='why'><p class='cause'>{first_cause}</p>{actions}{computed}</div>")


def _headline(answer: words.Headline) -> None:
    st.html(f"<p class='headline answer {answer.mood}'>{answer.sentence}</p>")


def _errors(objectives: Objectives) -> None:
    if objectives.problem:
        paragraph(wording.for_html(objectives.problem, 300), "notice")
    if objectives.errors:
        number = wording.counted(len(objectives.errors), "error")
        st.html(
            f"<p class='notice'>{number} in the objectives’ files. The SLOs page lists all "
            "errors.</p>"
        )


def _no_objective(objectives: Objectives) -> None:
    others = [each for each in objectives.visible if each not in objectives.counted]
    if others:
        names = ", ".join(wording.for_html(each.name) for each in others)
        st.html(
            f"<p class='headline'>Prometheus counts the SLOs defined here ({names}); its alerts"
            " report when one is missed.</p>"
        )
        return
    st.html(
        "<p class='headline'><b>No SLO is defined.</b> An SLO defines which requests count, what"
        " makes a request good, and the share of good requests:</p>"
    )
    st.code(words.EXAMPLE, language="yaml")
    files = ", ".join(map(short, objectives.texts)) or "objectives/chat.yaml"
    st.markdown(
        f"Write an SLO to a file (`{files}`), check it with `tailspan slo check FILE`, and start "
        "with `tailspan up --objectives FILE`."
    )


def _objectives(found: Sequence[SloState], zone: tzinfo, silent_s: float | None) -> None:
    happening, cards = st.columns([2, 3], gap="large")
    with cards, chapter("SLOs", TERMS["budget"]):
        shown, left_out = most_urgent(found)
        for each in shown:
            st.html(slo_cards.card(each, zone, silent_s=silent_s))
            key = f"windows_{each.objective.name}"
            with st.expander("Burn rate by window", key=key):
                st.html(slo_cards.windows(each))
        for name, number in left_out.items():
            more = wording.counted(number, "more group")
            st.html(
                f"<p class='note'>{wording.for_html(name)} has {more}, whose budgets burn more"
                " slowly. The SLOs page lists all groups.</p>"
            )
    with (
        happening,
        chapter("Incidents", "Times in which an error budget burned fast enough to alert."),
    ):
        st.html(incidents.incidents(found, zone))


def _trend_charts(context: Context, found: OverviewData) -> None:
    zone, ink = context.axis_zone, context.ink
    objectives = [each.objective for each in found.states]
    now, before = found.now, found.before
    burned = [
        (one.began_unix_s * SECOND_NS, _end_ns(each, one.ended_unix_s))
        for each in found.states
        # The charts show requests, not probes.
        if not isinstance(each.objective.indicator, GoodProbes)
        for one in each.incidents
    ]
    paragraph(words.usual(now, before, context.view, context.zone))
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
            selection.time_chart(context, figure, name, f"P50, P95 and P99 of {shown} over time")
    left, right = st.columns(2, gap="medium")
    with left, chapter("Traffic", TRAFFIC_HELP):
        figure = charts.traffic(now, before, burned, zone, ink)
        selection.time_chart(context, figure, "traffic", "Requests per second")
    with right, chapter("Unanswered: failed, refused, cancelled", FAILURES_HELP):
        selection.time_chart(
            context,
            charts.failures(now, before, burned, zone, ink),
            "failures",
            "The share of requests that failed, were refused or were cancelled",
        )


def _end_ns(each: SloState, ended_s: int | None) -> int:
    return (each.status.at_s if ended_s is None else ended_s) * SECOND_NS
