"""The SLOs page: each objective, its compliance over time, and a form to try a change."""

from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import Final

import streamlit as st
from sqlalchemy import Engine

from alerts.burnrate import EventCounts
from alerts.errors import AlertsError, DocumentError
from alerts.objectives import GoodEvents, Objective
from analysis.judged_requests import MAX_JUDGED, judged, judged_window
from analysis.over_time.time_bins import SECOND_NS
from analysis.slo_states import SloState, worst_first
from analysis.stored_data import stored_data
from telemetry.window import Window
from ui.frame import controls, selection
from ui.frame.context import Context
from ui.frame.objectives import Objectives, parse_texts, short
from ui.frame.read_cache import shared
from ui.frame.slo_reads import SloReads, read_slos
from ui.frame.view import STEPS
from ui.kit import slo_cards, slo_text, wording
from ui.kit.fact_grid import fact_grid
from ui.kit.sections import chapter, paragraph
from ui.kit.tables import table
from ui.kit.terms import TERMS
from ui.kit.unreadable import store_errors
from ui.views.slos import changes, compliance, words
from ui.views.slos.changes import ObjectiveChange

HISTORY_HELP: Final = (
    "The share of requests that met the SLO, by the time at which they ended. Cross: below the"
    " target. The chart also covers requests that are already deleted. {selection.HELP}"
)
TRY_HELP: Final = (
    "Edit the text to see its errors, and its effect on the requests of the range. The file "
    "does not change."
)


@dataclass(frozen=True, slots=True)
class SlosData:
    """The objectives' state at the end of a range."""

    slos: SloReads
    newest_unix_ns: int | None
    simulated: bool


def read(context: Context) -> SlosData:
    """Read the objectives' state."""
    slos = read_slos(context)

    def found() -> SlosData:
        return SlosData(slos, *stored_data(context.engine, context.window))

    return context.shared(found, slos.at_s, slos.step, context.objectives.key)


def show(context: Context, found: SlosData) -> None:
    """Draw the page."""
    if found.newest_unix_ns is None:
        paragraph("No server has reported yet, so there are no counts.")
    if context.objectives.problem:
        paragraph(wording.for_html(context.objectives.problem, 300), "notice")
    _objectives(context, found)
    _try(context)


def _objectives(context: Context, found: SlosData) -> None:
    objectives = context.objectives.visible
    if not objectives:
        remedy = "Correct the errors below, or use <code>tailspan up --objectives FILE</code>."
        paragraph(f"<b>No SLO is defined.</b> {remedy}", "headline")
        return
    sentence = words.sentence(found.slos.states, len(objectives))
    files = _files(context.objectives)
    where = f"<p class='note'>Defined in {files}.</p>" if files else ""
    st.html(f"<p class='headline'>{sentence}</p>{where}")
    controls.setting("by", "Compliance by", STEPS, "by {}".format)
    silent_s = context.silence_s(found.newest_unix_ns)
    states = {each.objective.name: each for each in found.slos.states}
    groups = {
        objective.name: worst_first(
            [each for each in found.slos.states if each.objective.base == objective.name]
        )
        for objective in objectives
        if objective.by
    }
    for objective in objectives:
        left, right = st.columns([2, 3], gap="large")
        with left, chapter(wording.plain(objective.display_name, 120), TERMS["budget"]):
            if objective.name in states:
                its = states[objective.name]
                st.html(slo_cards.card(its, context.zone, named=False, silent_s=silent_s))
            if objective.name in groups:
                its_groups = groups[objective.name]
                st.html(slo_cards.groups(its_groups, silent_s))
                for each in its_groups:
                    if each.blind is not None:
                        st.html(slo_cards.blind(each))
            st.html(_definition_facts(objective, states.get(objective.name), context.zone))
        with right:
            _history(context, objective, found.slos)


def _definition_facts(objective: Objective, state: SloState | None, zone: tzinfo) -> str:
    indicator = objective.indicator
    facts = []
    if isinstance(indicator, GoodEvents):
        facts += [
            (indicator.rows, slo_text.where(indicator.where) if indicator.where else "all"),
            ("good", slo_text.criterion(indicator.good)),
        ]
    else:
        facts.append(("counted by", "Prometheus queries"))
    if slices := indicator.slices:
        facts.append(
            (
                "good slice",
                f"{slices.length} with at least {slices.target_written} good {objective.rows}",
            )
        )
    if objective.by:
        facts.append(("budget for each", ", ".join(objective.by)))
    facts += [
        ("target", f"{objective.target_written} over {objective.period_text}"),
        (
            "error budget",
            f"{wording.exact_percent(float(objective.budget))} of the {_unit(objective)}",
        ),
    ]
    if state is not None and state.status.period.events:
        events = state.status.period.events
        bad = state.status.period.bad
        until = wording.clock(state.status.at_s * SECOND_NS, zone)
        counted = f"{bad:,} of {events:,} {_unit(objective)}"
        facts.append(("missed by", f"{counted} over {objective.period_text} until {until}"))
    facts += [("service", objective.service), ("defined in", f"{_file_and_line(objective)}")]
    description = wording.for_html(objective.description, 400)
    return f"<p class='note'>{description}</p>{fact_grid((*fact, '') for fact in facts)}"


def _unit(objective: Objective) -> str:
    return "time" if objective.counted_in == "s" else objective.counted_in


def _file_and_line(objective: Objective) -> str:
    return f"{short(objective.file)}:{objective.line}"


def _files(objectives: Objectives) -> str:
    return ", ".join(
        f"<code>{wording.for_html(short(file), 120)}</code>" for file in objectives.texts
    )


def _history(context: Context, objective: Objective, slos: SloReads) -> None:
    indicator = objective.indicator
    if not isinstance(indicator, GoodEvents):
        return
    at_s, by, zone = slos.at_s, context.view.by, context.zone

    def read() -> tuple[compliance.ComplianceStep, ...]:
        return compliance.read(context.engine, objective, indicator, at_s, zone, by)

    span = objective.period_at(at_s)
    steps = context.shared(
        read, "compliance", indicator.digest, indicator.slices, span, slos.step, str(zone), by
    )
    with chapter("Compliance", HISTORY_HELP):
        paragraph(compliance.sentence(steps, objective, by, at_s, zone))
        if steps:
            shown = Window(
                steps[0].from_unix_s * SECOND_NS,
                max(steps[-1].to_unix_s * SECOND_NS, steps[0].from_unix_s * SECOND_NS + 1),
            )
            figure = compliance.figure(steps, objective, shown, context.axis_zone, context.ink)
            key = f"compliance_{objective.name}"
            selection.time_chart(context, figure, key, "The share of good requests over time")


def _try(context: Context) -> None:
    current = context.objectives
    with chapter("Try a change", TRY_HELP):
        files = list(current.texts)
        if not files:
            return
        file = files[0]
        if len(files) > 1:
            file = st.selectbox("File", files, key="file", format_func=short)
        key = f"yaml_{file}"
        written = current.texts[file]
        st.session_state.setdefault(key, written)
        lines = written.count("\n") + 2
        text = (
            st.text_area(
                f"Text of {short(file)}: change it, and press Ctrl+Enter to see the effect",
                key=key,
                height=min(560, max(200, 24 * lines)),
            )
            or ""
        )
        changed = parse_texts({**current.texts, file: text})
        _lint(changed)
        if text != written:
            st.button("Reset", key="reset", on_click=_reset, args=(key, written))
            if not changed.errors:
                _effect_section(context, changed)
                _apply(file, text)


def _lint(changed: Objectives) -> None:
    for note in changed.notes:
        paragraph(f"Note: {wording.for_html(note, 300)}")
    if not changed.errors:
        number = wording.counted(len(changed.parsed), "objective")
        paragraph(f"<b>No errors:</b> {number}.")
        return
    number = wording.counted(len(changed.errors), "error")
    rows = [[wording.for_html(cell, 400) for cell in _error_row(each)] for each in changed.errors]
    st.html(
        f"<p class='notice'><b>{number}</b></p>"
        + table(("line", "key", "error, and what is allowed"), rows, "lint")
    )


def _error_row(error: AlertsError) -> tuple[str, str, str]:
    if isinstance(error, DocumentError):
        return f"{short(error.file)}:{error.line}", error.key, error.problem
    return "", "", str(error)


def _effect_section(context: Context, changed: Objectives) -> None:
    engine, window, zone = context.engine, context.window, context.zone
    found = changes.changes(context.objectives, changed)
    if not found:
        paragraph("The objectives are the same as before.")
        return
    with st.spinner("Reading …"), store_errors():
        newest = judged_window(engine, window)
        counts = [(each, *_counts(engine, each, newest)) for each in found]
    start, end = (wording.clock(each, zone) for each in (newest.from_unix_ns, newest.to_unix_ns))
    part = "" if newest == window else f": the newest {MAX_JUDGED:,} requests"
    st.html(
        f"<div class='why'><p><b>Effect on the selected range</b>, {start} to {end}{part}</p>"
        f"{changes.lines(counts)}</div>"
    )


def _counts(
    engine: Engine, change: ObjectiveChange, window: Window
) -> tuple[EventCounts | None, EventCounts | None]:
    def of(objective: Objective | None) -> EventCounts | None:
        if objective is None or not isinstance(objective.indicator, GoodEvents):
            return None
        goodput = objective.indicator
        return shared(
            engine,
            ("judged", goodput.digest, goodput.slices, window),
            lambda: judged(engine, goodput, window),
        )

    return of(change.now), of(change.then)


def _apply(file: str, text: str) -> None:
    name = Path(file).name
    st.markdown(
        f"To apply the change, save it as a file (`{name}`), check it, and start Tailspan with it:"
    )
    st.code(f"tailspan slo check {name}\ntailspan up --objectives {name}", language="bash")
    st.download_button(
        f"Download {name}",
        data=text,
        file_name=name,
        mime="application/yaml",
        key="download_yaml",
        on_click="ignore",
    )


def _reset(key: str, written: str) -> None:
    st.session_state[key] = written
