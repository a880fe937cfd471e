"""The page "What is being promised?": objectives as they are, their history, trying a change."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import streamlit as st
from sqlalchemy import Engine

from alerts.burnrate import Counts
from alerts.errors import AlertsError, DocumentError
from alerts.expression import render
from alerts.objectives import Goodput, Objective
from store.queries import Window, newest_unix_ns
from ui.frame import navigation
from ui.frame.context import Context
from ui.frame.navigation import choice
from ui.frame.objectives import Objectives, parse_texts, short
from ui.frame.read_cache import shared
from ui.frame.view import SECOND_NS, STEPS
from ui.kit import slo_cards, wording
from ui.kit.fact_grid import fact_grid
from ui.kit.sections import chapter, chart
from ui.kit.slo_status import SloState, instant_s, slo_states, worst_first
from ui.kit.store_reads import is_simulated, store_errors
from ui.kit.terms import TERMS
from ui.views.slos import changes, compliance
from ui.views.slos.changes import Change

HISTORY_HELP: Final = (
    "The share of requests that kept the promise, by when they ended; a cross is a day or an hour "
    "below what is promised. From the counts that are kept, also of requests that are gone."
)
TRY_HELP: Final = (
    "Nothing here is written anywhere: change the text, see what is wrong with it, and what it "
    "would have meant for the requests in view."
)


@dataclass(frozen=True, slots=True)
class Found:
    """What the page shows as of the end of a range."""

    states: tuple[SloState, ...]
    newest_unix_ns: int | None
    simulated: bool


def read(context: Context) -> Found:
    """Read the objectives' state."""
    at_s = instant_s(context.window, context.now_unix_ns)

    def found() -> Found:
        return Found(
            slo_states(context.engine, context.objectives.parsed, context.window, at_s),
            newest_unix_ns(context.engine),
            is_simulated(context.engine, context.window),
        )

    return context.shared(found, at_s, context.objectives.key)


def show(context: Context, found: Found) -> None:
    """Draw each objective with its history, and a form to try a change."""
    if found.newest_unix_ns is None:
        st.html("<p class='note'>No server has reported yet: nothing was counted.</p>")
    if context.objectives.problem:
        st.html(f"<p class='notice'>{wording.for_html(context.objectives.problem, 300)}</p>")
    _objectives(context, found)
    _try(context)


def _objectives(context: Context, found: Found) -> None:
    objectives = context.objectives.parsed
    if not objectives:
        st.html("<p class='headline'>Nothing is promised: no objective could be read.</p>")
        return
    number = wording.counted(len(objectives), "promise")
    st.html(f"<p class='headline'><b>{number}</b>, written in {_files(context.objectives)}</p>")
    st.session_state["by"] = context.view.by
    st.segmented_control(
        "History by",
        STEPS,
        key="by",
        required=True,
        format_func=lambda step: f"by the {step}",
        label_visibility="collapsed",
        on_change=_by_chosen,
    )
    silent_s = context.silence_s(found.newest_unix_ns)
    states = {each.objective.name: each for each in found.states}
    groups = {
        objective.name: worst_first(
            [each for each in found.states if each.objective.base == objective.name]
        )
        for objective in objectives
        if objective.by
    }
    for objective in objectives:
        left, right = st.columns([2, 3], gap="large")
        with left, chapter(wording.plain(objective.display_name, 120), TERMS["budget"]):
            if objective.name in states:
                its = states[objective.name]
                st.html(slo_cards.card(its, named=False, silent_s=silent_s))
            if objective.name in groups:
                its_groups = groups[objective.name]
                st.html(slo_cards.groups(its_groups))
                for each in its_groups:
                    if each.blind is not None:
                        st.html(slo_cards.blind(each))
            st.html(_facts(objective, states.get(objective.name)))
        with right:
            _history(context, objective)


def _facts(objective: Objective, standing: SloState | None) -> str:
    indicator = objective.indicator
    facts = []
    if isinstance(indicator, Goodput):
        facts += [
            ("which requests", render(indicator.where) if indicator.where else "all"),
            ("good is", render(indicator.good)),
        ]
    else:
        facts.append(("counted by", "Prometheus, with queries of its own"))
    if objective.by:
        facts.append(("a budget for each", ", ".join(objective.by)))
    facts += [
        ("promised", f"{objective.target_written} over {objective.period_text}"),
        ("budget", f"{wording.exact_percent(float(objective.budget))} of the {_unit(objective)}"),
    ]
    if standing is not None and standing.status.period.events:
        events = standing.status.period.events
        bad = standing.status.period.bad
        facts.append(("broken by", f"{bad:,} of {events:,} {_unit(objective)} counted"))
    facts += [("service", objective.service), ("written in", f"{_place(objective)}")]
    said = wording.for_html(objective.description, 400)
    return f"<p class='note'>{said}</p>{fact_grid((*fact, '') for fact in facts)}"


def _unit(objective: Objective) -> str:
    return "time" if objective.counted_in == "s" else objective.counted_in


def _place(objective: Objective) -> str:
    return f"{short(objective.file)}:{objective.line}"


def _files(objectives: Objectives) -> str:
    return ", ".join(
        f"<code>{wording.for_html(short(file), 120)}</code>" for file in objectives.texts
    )


def _history(context: Context, objective: Objective) -> None:
    indicator = objective.indicator
    if not isinstance(indicator, Goodput):
        return
    at_s = context.window.to_unix_ns // SECOND_NS
    by, zone = context.view.by, context.zone

    def read() -> tuple[compliance.Step, ...]:
        return compliance.read(context.engine, objective, indicator, at_s, zone, by)

    span = objective.period_at(at_s)
    steps = context.shared(
        read, "compliance", indicator.digest, indicator.slices, span, str(zone), by
    )
    with chapter("How it was kept", HISTORY_HELP):
        st.html(f"<p class='note'>{compliance.sentence(steps, objective, by)}</p>")
        if steps:
            shown = Window(
                steps[0].from_unix_s * SECOND_NS,
                max(steps[-1].to_unix_s * SECOND_NS, steps[0].from_unix_s * SECOND_NS + 1),
            )
            figure = compliance.figure(steps, objective, shown, zone, context.ink)
            chart(figure, f"kept_{objective.name}", "The share of good requests over time")


def _try(context: Context) -> None:
    promised = context.objectives
    with chapter("Try a change", TRY_HELP):
        files = list(promised.texts)
        if not files:
            return
        file = files[0]
        if len(files) > 1:
            file = st.selectbox("File", files, key="file", format_func=short)
        key = f"yaml_{file}"
        written = promised.texts[file]
        st.session_state.setdefault(key, written)
        lines = written.count("\n") + 2
        text = (
            st.text_area(
                f"{short(file)}, as it is; Ctrl+Enter takes a change",
                key=key,
                height=min(560, max(200, 24 * lines)),
            )
            or ""
        )
        tried = parse_texts({**promised.texts, file: text})
        _lint(tried)
        if text != written:
            st.button("Take back", key="take_back", on_click=_take_back, args=(key, written))
            if not tried.errors:
                _effect(context, tried)
                _put_in_force(file, text)


def _lint(tried: Objectives) -> None:
    for note in tried.notes:
        st.html(f"<p class='note'>Note: {wording.for_html(note, 300)}</p>")
    if not tried.errors:
        number = wording.counted(len(tried.parsed), "objective")
        st.html(f"<p class='note'><b>Nothing wrong:</b> {number}.</p>")
        return
    rows = "".join(_finding(error) for error in tried.errors)
    number = wording.counted(len(tried.errors), "mistake")
    st.html(
        f"<p class='notice'><b>{number}</b></p><div class='scrolling'><table class='told lint'>"
        f"<tr><th>line</th><th>key</th><th>what is wrong, and what is allowed</th></tr>{rows}"
        "</table></div>"
    )


def _finding(error: AlertsError) -> str:
    if isinstance(error, DocumentError):
        place, key, what = f"{short(error.file)}:{error.line}", error.key, error.problem
    else:
        place, key, what = "", "", str(error)
    cells = (place, key, what)
    return f"<tr>{''.join(f'<td>{wording.for_html(cell, 400)}</td>' for cell in cells)}</tr>"


def _effect(context: Context, tried: Objectives) -> None:
    engine, window, zone = context.engine, context.window, context.zone
    found = changes.changes(context.objectives, tried)
    if not found:
        st.html("<p class='note'>It promises the same as before.</p>")
        return
    with st.spinner("Judging the requests in view …"), store_errors():
        judged = changes.judged_window(engine, window)
        counts = [(each, *_counts(engine, each, judged)) for each in found]
    start, end = (wording.clock(each, zone) for each in (judged.from_unix_ns, judged.to_unix_ns))
    newest = "" if judged == window else f": the newest {changes.MOST_JUDGED:,} requests in view"
    st.html(
        f"<div class='why'><p><b>What it would have meant</b> from {start} to {end}{newest}</p>"
        f"{changes.lines(counts)}</div>"
    )


def _counts(engine: Engine, change: Change, window: Window) -> tuple[Counts | None, Counts | None]:
    def of(objective: Objective | None) -> Counts | None:
        if objective is None or not isinstance(objective.indicator, Goodput):
            return None
        goodput = objective.indicator
        return shared(
            engine,
            ("judged", goodput.digest, window),
            lambda: changes.judged(engine, goodput, window),
        )

    return of(change.now), of(change.then)


def _put_in_force(file: str, text: str) -> None:
    name = Path(file).name
    st.markdown(
        f"To put it in force, save it as a file of your own (`{name}`), check it, and start "
        "Tailspan with it:"
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


@choice
def _by_chosen() -> None:
    if (chosen := st.session_state["by"]) in STEPS:
        navigation.change(replace(navigation.current(), by=chosen))


def _take_back(key: str, written: str) -> None:
    st.session_state[key] = written
