"""The Compare page: what a change did to a latency, at the same mix and load."""

import html
from typing import Final

import streamlit as st

from ui.frame import controls, no_data
from ui.frame.context import Context
from ui.frame.view import QUANTILES
from ui.kit import wording
from ui.kit.sections import chapter, chart, paragraph
from ui.kit.terms import LATENCY_NAMES
from ui.views.compare import charts, words
from ui.views.compare.read import CompareData, read_compare, sides_of

PARTS_HELP: Final = (
    "The difference is the sum of three parts. Mix: other requests, such as longer prompts or "
    "another tenant. Load: other work on the engines. Change: the difference between requests "
    "of the same model, tenant, route and adapter with about the same work. The length of the "
    "output is not matched, because a change can affect it. If the range starts at a fixed time,"
    " the 95 % interval stays valid even if you look many times."
)
CURVE_HELP: Final = (
    "For each number of running requests at arrival: the percentile after the change, and the"
    " percentile that the same requests would have had before it. Bars: the 95 % interval of the"
    " difference, valid for a single look. The chart shows whether a change helps only at high or"
    " only at low load."
)
STEPS_HELP: Final = (
    "A step's duration is the sum of these coefficients times the step's work. The coefficients"
    " depend little on mix and load. If a coefficient changed, the servers themselves became"
    " faster or slower."
)
SLOS_HELP: Final = "The share of good requests before and after, and the parts of the difference."
PAUSED: Final = "To see the total change, which a replay computes, pause the page."


def read(context: Context) -> CompareData:
    """Compare two ranges, or two values of a label."""
    view, objectives, window = context.view, context.objectives, context.window

    def found() -> CompareData:
        return read_compare(
            context.engine,
            sides_of(view, window),
            view.metric,
            view.quantile,
            objectives.parsed,
            replay=not view.live,
        )

    split = (view.split, view.before, view.after)
    return context.shared(
        *(found, view.baseline, split, view.latency, view.quantile, view.live, objectives.key)
    )


def show(context: Context, found: CompareData) -> None:
    """Draw the page."""
    answer = found.answer
    if answer is None:
        st.html(
            "<p class='headline'><b>Nothing to compare.</b></p>"
            f"<p class='note'>{wording.for_html(found.problem or '', 400)}.</p>"
        )
        return
    if not answer.requests_after and not context.view.split:
        no_data.nothing_in_view(context)
        return
    paragraph(words.headline(answer), "headline")
    paragraph(html.escape(words.ranges(answer, context.zone)))
    controls.setting("quantile", "Percentile", QUANTILES, str.upper)
    if not answer.requests_before and not context.view.split:
        st.html(
            "<p class='note'>Choose “vs. a custom range” above, and set a range with requests "
            "before the change. The time range selects the requests after the change.</p>"
        )
    decision = answer.decision
    name = f"{context.view.quantile.upper()} of {LATENCY_NAMES[context.view.latency]}"
    with chapter("Parts of the difference", PARTS_HELP):
        if decision.parts is not None:
            figure = charts.waterfall(decision.parts, decision.change_s, name)
            chart(figure, "compare_parts", f"{name} before and after, with mix, load and change")
            st.html(words.parts(answer))
        for note in words.notes(answer, context.zone):
            paragraph(note)
        if context.view.live:
            paragraph(PAUSED)
    if len(decision.curve) > 1:
        with chapter("Change over load", CURVE_HELP):
            figure = charts.curve(answer, name, context.ink)
            chart(figure, "compare_curve", f"{name} before and after, over running requests")
    if table := words.coefficients(answer):
        with chapter("Engine steps", STEPS_HELP):
            st.html(table)
    if table := words.objectives(answer):
        with chapter("SLOs", SLOS_HELP):
            st.html(table)
