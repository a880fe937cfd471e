"""The Root cause page: the verdict, the cause, the evidence, and actions to try."""

import html
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import streamlit as st

from analysis.baseline import within
from analysis.counterfactual.replay_process import replayed
from analysis.explain import known_incidents
from analysis.incident_answer import StoredAnswer
from analysis.joined.explain import explain_joined
from analysis.over_time import phases
from analysis.over_time.rows import received_at
from analysis.over_time.time_bins import SECOND_NS
from diagnosis.explanation import Explanation, ExplanationVerdict
from diagnosis.question import Span
from telemetry.incidents import IncidentRow
from telemetry.window import Window
from ui.frame import incident_links, navigation, no_data, selection
from ui.frame.address import link, request_link
from ui.frame.context import Context
from ui.frame.objectives import thresholds
from ui.frame.view import RANGES_S, View
from ui.kit import data_sources, joined_growth, slowest, slowest_table
from ui.kit.sections import chapter, chart, paragraph
from ui.kit.terms import LATENCY_NAMES
from ui.kit.unreadable import store_errors
from ui.views.root_cause import heatmap, increase, words
from ui.views.root_cause.read import RootCauseData, read_root_cause, stored_answers

MAX_STORED: Final = 20
"""Stored answers are read only for the latest incidents in the range."""
INCREASE_HELP: Final = (
    "The growth of each part of the slow requests' latency from the baseline to the range. "
    "The parts sum to the increase."
)
SHAPE_HELP: Final = (
    "The colour of a cell shows how many requests were received at that time and had that"
    " latency. Below: the state of the engines. Shaded: the baseline. Triangle: the start of an"
    " engine. Dashed: the SLO’s threshold. {selection.HELP}"
)
GREW: Final = (
    "<b>The slowest requests became slower, but no SLO shows it.</b> Select “size decides” "
    "above to see why."
)
JOINED_HELP: Final = (
    "Prefill and decode are on different servers. The phases are those of the user’s "
    "requests. Each pool's causes come from its own servers; their shares are estimates from "
    "the step ledger."
)
HITS_HELP: Final = (
    "How many times likelier a request of this kind is to be slow than any other request. Kinds"
    " whose difference may be chance are left out. A kind that is slow more often is not always"
    " the cause."
)


def read(context: Context) -> RootCauseData:
    """Read the requests and samples of the range and of its baseline."""
    return _read(context, context.view.chosen_baseline(context.window))


def _read(context: Context, baseline: Window | None) -> RootCauseData:
    window, view = context.window, context.view
    span = Span(window.from_unix_ns, max(window.to_unix_ns, window.from_unix_ns + 1))
    with store_errors():
        known = known_incidents(context.engine, span)
        stored = stored_answers(
            context.engine, context.objectives.parsed, within(span, known)[-MAX_STORED:]
        )
    which = tuple((row.slo, row.severity, row.began_unix_s, row.ended_unix_s) for row in known)
    objectives = context.objectives

    def found() -> RootCauseData:
        return read_root_cause(
            context.engine, window, baseline, view.equals, objectives.parsed, known, stored
        )

    newest = tuple((key, each.computed_unix_s) for key, each in stored.items())
    return context.shared(found, baseline, objectives.key, which, newest, large=True)


def show(context: Context, found: RootCauseData) -> None:
    """Draw the verdict and its evidence, and the slowest requests."""
    if not found.number:
        no_data.nothing_in_view(context)
        return
    view = context.view
    explanation = found.explained(view.latency, by_size=view.decide == "size")
    stored = found.stored_shares(explanation)
    headline, reason = _answer(context, stored or explanation, found)
    _slowest(context, found)
    if view.live:
        return
    # The replay takes some seconds, so everything else is drawn first.
    if reason is not None and stored is None:
        selected = _selected_range(context, found, explanation)
        reason.html(_reason(context, _tested(context, found, explanation), selected))
    if headline is not None:
        headline.html(_incident(context, found, partial(_tested, context, found)))
    _joined_section(context, explanation)


def _joined_section(context: Context, explanation: Explanation) -> None:
    question = explanation.question
    joined = context.shared(
        lambda: explain_joined(context.engine, question),
        "joined",
        question.metric,
        question.baseline,
    )
    if joined is not None:
        with chapter("Joined requests", JOINED_HELP):
            st.html(joined_growth.summary(joined, LATENCY_NAMES[context.view.latency]))


def for_incident(context: Context, incident: IncidentRow) -> View:
    """The view of an incident. It selects the latency of the incident's verdict."""
    found = read(context)
    answer = found.stored_answer(incident)
    verdict = found.verdict(incident) if answer is None else answer.verdict
    if verdict is None:
        return context.view
    return replace(context.view, latency=f"{verdict.first.question.metric.value}_s")


def explaining(context: Context, found: RootCauseData, part: Window) -> View:
    """The view that explains a dragged part of the chart.

    The baseline is the part of the chart before the dragged part. If the baseline is too short or
    had an incident, the default baseline is used.
    """
    before = Window(found.whole.from_unix_ns, part.from_unix_ns)
    long_enough = before.to_unix_ns - before.from_unix_ns >= part.to_unix_ns - part.from_unix_ns
    usual = long_enough and not within(Span(before.from_unix_ns, before.to_unix_ns), found.known)
    inside = context.view.between(part.from_unix_ns, part.to_unix_ns)
    return replace(inside, baseline=before if usual else None)


def _tested(context: Context, found: RootCauseData, explanation: Explanation) -> Explanation:
    """The explanation with replayed shares. They come from a new replay, or from a stored answer to
    the same question."""
    if (stored := found.stored_shares(explanation)) is not None:
        return stored
    question, causes = explanation.question, [*explanation.causes, *explanation.others]
    return context.shared(
        lambda: replayed(context.engine, explanation),
        *("replay", question.metric, question.baseline),
        *(explanation.verdict, explanation.tail_share),
        tuple((each.id, each.share, tuple(each.where.items())) for each in causes),
    )


def _incident(
    context: Context,
    found: RootCauseData,
    tested: Callable[[Explanation], Explanation] = lambda explanation: explanation,
) -> str:
    """The incident and its verdict as HTML, or an empty text. `tested` adds a replay's shares."""
    incident = _shown_incident(context.view, found)
    if incident is None:
        return ""
    if found.counts_probes(incident):
        return words.probe_incident(incident, context.zone)
    answer = _shown_answer(context, found, incident)
    if answer is not None:
        seen_ns = context.window.to_unix_ns
        return words.stored_incident(incident, answer, context.zone, seen_ns)
    verdict = found.verdict(incident)
    chosen = context.view.chosen_baseline(context.window)
    if chosen and verdict and verdict.first.verdict is ExplanationVerdict.INSUFFICIENT_DATA:
        # The chosen baseline has too little data to show the cause, so use the default baseline.
        verdict = _read(context, None).verdict(incident)
    if verdict is not None:
        verdict = replace(verdict, first=tested(verdict.first))
    return words.incident(incident, verdict, context.zone)


def _shown_answer(
    context: Context, found: RootCauseData, incident: IncidentRow
) -> StoredAnswer | None:
    """The incident's stored answer, or None if the page must compute it."""
    answer = found.stored_answer(incident)
    if answer is None or not _is_whole(context, found, answer):
        return None
    # If the server's replay took too long, the answer has no replayed shares. A page that is not
    # live has time for the replay.
    return None if answer.replay_took_too_long and not context.view.live else answer


def _selected_range(context: Context, found: RootCauseData, explanation: Explanation) -> str:
    """The selected range's name, if the page also shows the answer for an incident's range."""
    incident = _shown_incident(context.view, found)
    if incident is None or (answer := _shown_answer(context, found, incident)) is None:
        return ""
    if answer.verdict.first.question.window == explanation.question.window:
        return ""
    return words.selected_range(explanation.question.window, context.zone)


def _is_whole(context: Context, found: RootCauseData, answer: StoredAnswer) -> bool:
    """Whether the stored answer has the page's filters and the baseline that the reader chose."""
    view, question = context.view, answer.verdict.first.question
    if not answer.answers_whole(view.equals):
        return False
    compared = Window(question.baseline.from_unix_ns, question.baseline.to_unix_ns)
    return view.baseline is None or found.baseline == compared


def _shown_incident(view: View, found: RootCauseData) -> IncidentRow | None:
    """The incident that the address names, or else the first incident in the range.

    Incidents of objectives on probes come last.
    """
    ordered = sorted(found.incidents, key=found.counts_probes)
    return incident_links.named(view, ordered)


def _reason(context: Context, explanation: Explanation, selected: str) -> str:
    if not explanation.causes:
        return words.reason(explanation, selected)
    window = context.window
    frozen = context.view.between(window.from_unix_ns, window.to_unix_ns)
    where = link(frozen) if context.view.live else None
    return words.reason(explanation, selected) + words.method(explanation, where)


def _answer(context: Context, explanation: Explanation, found: RootCauseData) -> tuple[Any, Any]:
    """Draw the verdict. Return the page elements of the incident and the causes, if drawn."""
    view, zone = context.view, context.zone
    headline = None
    if incident := _incident(context, found):
        headline = st.empty()
        headline.html(incident)
    selected = _selected_range(context, found, explanation)
    sentence = selected + words.sentence(explanation, view.latency, zone)
    against = words.compared(explanation, zone, found.before)
    st.html(f"<p class='headline'>{sentence}</p><p class='note'>{against}</p>")
    if attained := words.attained(explanation):
        st.html(attained)
    if explanation.grew_within_objectives:
        paragraph(GREW, "notice")
    still = words.still_slow(explanation, found.request_incidents, zone)
    if still and explanation.verdict is not ExplanationVerdict.INCIDENT:
        paragraph(still, "notice")
    reason = None
    if explanation.causes or explanation.verdict is ExplanationVerdict.INCIDENT:
        place = st.empty()
        place.html(_reason(context, explanation, selected))
        reason = place if explanation.causes or explanation.others else None
    if thinned := data_sources.thinned_samples(found.samples_every_s):
        paragraph(thinned)
    _heatmap_section(context, explanation, found)
    if explanation.verdict is ExplanationVerdict.INSUFFICIENT_DATA:
        _longer_range_link(view)
    elif explanation.verdict is ExplanationVerdict.NO_INCIDENT:
        with st.expander("How the parts compare", key="parts"):
            _increase(explanation)
    else:
        _details(explanation)
    if explanation.network:
        st.html(words.network(explanation))
    if explanation.contradictions:
        st.html(words.contradictions(explanation))
    return headline, reason


def _heatmap_section(context: Context, explanation: Explanation, found: RootCauseData) -> None:
    view = context.view
    shape = found.heatmap(view.latency)
    if shape is None:
        return
    name = LATENCY_NAMES[view.latency]
    window = found.window
    # Use a separate key for each range. With a common key, the selection box would stay on the
    # chart when the range changes.
    key = f"shape_{view.latency}_{window.from_unix_ns}_{window.to_unix_ns}"
    if view.live:
        key = f"shape_{view.latency}_{view.last}"
    figure = heatmap.figure(
        shape.grid,
        shape.lines,
        name=name,
        window=window,
        whole=found.whole,
        baseline=Window(
            explanation.question.baseline.from_unix_ns, explanation.question.baseline.to_unix_ns
        ),
        onset_unix_ns=explanation.onset_unix_ns,
        starts=found.servers.starts,
        thresholds_s=thresholds(context.objectives.parsed, view.latency),
        zone=context.axis_zone,
        ink=context.ink,
    )
    with chapter(f"All requests by {name}", SHAPE_HELP):
        _baseline_choice(view, explanation, found)
        alt = f"Requests by time and {name}, and the engines’ state"
        selection.time_chart(context, figure, key, alt)


def _baseline_choice(view: View, explanation: Explanation, found: RootCauseData) -> None:
    incident = _shown_incident(view, found)
    if incident is None or view.incident is not None or found.counts_probes(incident):
        return
    began_ns = incident.began_unix_s * SECOND_NS
    if view.baseline is not None or explanation.question.window.from_unix_ns < began_ns:
        name = f"{incident.slo}@{incident.fired_unix_s}"
        href = html.escape(link(View(last=None, page=view.page, incident=name, equals=view.equals)))
        st.html(
            f"<p class='note'><a class='action' href='{href}' target='_self'>"
            "Before the incident</a> compares the incident with the time before it.</p>"
        )


def _details(explanation: Explanation) -> None:
    where, who = st.columns([3, 2], gap="large")
    with where, chapter("Increase by phase", INCREASE_HELP):
        _increase(explanation)
    with who, chapter("Slow more often", HITS_HELP):
        st.html(words.hits(explanation))
    if explanation.causes:
        with st.container(gap="small"):
            st.header("Evidence", anchor=False)
            for place, cause in enumerate(explanation.causes):
                with st.expander(words.title(cause), key=f"cause_{cause.id}"):
                    st.html(words.evidence(cause, with_levers=place > 0))


def _slowest(context: Context, found: RootCauseData) -> None:
    latency = context.view.latency
    with store_errors():
        table = received_at(context.engine, found.slowest_unix_ns(latency), context.view.equals)
    with chapter("Slowest requests", "Choose a request to see its timeline."):
        slowest_table.show(
            slowest.shown_rows(
                table,
                phases.layers(table),
                latency,
                partial(request_link, context.view),
                context.zone,
                context.length_s,
            ),
            slowest.shown_columns(latency),
        )


def _increase(explanation: Explanation) -> None:
    chart(increase.figure(increase.steps(explanation.parts)), "increase")


def _longer_range_link(view: View) -> None:
    names = list(RANGES_S)
    if view.last is None or view.last == names[-1] or view.baseline is not None:
        paragraph("Choose a longer range, or another baseline.")
        return
    longer = names[names.index(view.last) + 1]
    if st.button(f"Show the last {longer}", key="wider", type="primary"):
        navigation.change(view.following(longer))
        st.rerun()
