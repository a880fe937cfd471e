"""The What if page: the predicted effect of a change on the recorded traffic."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from analysis.what_if_search import SWEPT, sweep_of
from cost.errors import PriceError
from cost.pricefile import prices_in_force
from replay.edits import ARGUMENTS, MAX_ENGINES, EditError, edits_of
from ui.frame import navigation
from ui.frame.address import link
from ui.frame.context import CannotShow, Context
from ui.frame.navigation import choice
from ui.kit import wording
from ui.kit.sections import chapter, chart, paragraph
from ui.views.what_if import charts, record, words
from ui.views.what_if.read import PresentConfig, WhatIfData, read_what_if

HELP: Final = (
    "Tailspan fits a model to each engine's data, and replays the requests of the range on it,"
    " with and without the change. If the replay without the change differs too much "
    "from the measured latencies, there is no prediction."
)
CONTROLS_NOTE: Final = (
    "The controls start with the present values. Change them, then press Predict."
)
SWEEP_HELP: Final = (
    "Predictions for several values of one setting; the other changes apply to each of them."
    " Lines: predicted P50 and P99 with 95 % intervals. Diamonds: measured at the present value."
    " Red cross: the engines cannot keep up. Each value links to its full prediction."
)
TRY_HELP: Final = (
    "Changes that often help and apply to these engines, with their predicted effect. The largest"
    " gain for its effort comes first. Each change links to its full prediction, with intervals."
    " tailspan advise prints the same table."
)
ROUTERS: Final[dict[str, str]] = {
    "": "as recorded",
    "round_robin": "round robin",
    "least_outstanding": "least outstanding",
    "prefix_aware": "prefix-aware",
}
FACTORS: Final = ("rate", "prompt", "output")
SHOWN: Final = "what_if_shown"
"""Session key of the change, sweep and configuration that the controls show."""


def read(context: Context) -> WhatIfData:
    """Fit the engines, and predict the effect of the change in the address."""
    try:
        prices = prices_in_force(None, os.environ)
    except PriceError as error:
        raise CannotShow("The price file cannot be read.", str(error)) from error
    view, objectives = context.view, context.objectives

    def found() -> WhatIfData:
        return read_what_if(
            context.engine,
            context.window,
            view.equals,
            view.change,
            view.sweep,
            view.latency,
            objectives.parsed,
            prices,
            context.now_unix_ns,
        )

    return context.shared(
        found, view.change, view.sweep, view.latency, repr(prices), objectives.key
    )


def show(context: Context, found: WhatIfData) -> None:
    """Draw the finding, the controls, and the prediction or the sweep."""
    view, answer, swept = context.view, found.answer, found.swept
    first = swept.points[0].answer if swept is not None else answer
    reason = found.problem or (None if first is None else first.refused)
    if reason is not None:
        st.html(
            "<p class='headline'><b>No prediction.</b></p>"
            f"<p class='note'>{wording.for_html(reason, 400)}</p>"
        )
    elif swept is not None:
        paragraph(words.sweep_sentence(swept, view.latency), "headline")
    elif answer is not None:
        paragraph(words.sentence(answer, view.latency), "headline")
    else:
        st.html("<p class='headline'>Choose a change to predict its effect on this range.</p>")
    if found.present is not None:
        with chapter("The change", HELP):
            paragraph(CONTROLS_NOTE)
            _controls(found.present, view.change, view.sweep)
    if found.advised is not None and found.advised.refused is None:
        with chapter("Changes to try", TRY_HELP):
            st.html(words.advice(found.advised, lambda change: link(replace(view, change=change))))
    if reason is not None:
        return
    name = words.NAMES[view.latency]
    if swept is not None:
        with chapter("Sweep", SWEEP_HELP):
            figure = charts.sweep(swept, view.latency, context.ink)
            chart(figure, "what_if_curve", f"P50 and P99 of {name} over {swept.name}")

            def address(change: str) -> str:
                return link(replace(view, change=change, sweep=""))

            st.html(words.sweep_table(swept, view.latency, address))
            for note in words.sweep_notes(swept):
                paragraph(note)
    if answer is not None:
        with chapter("Prediction", HELP):
            figure = charts.percentiles(answer, view.latency, context.ink)
            chart(figure, "what_if", f"Percentiles of {name}, measured and predicted")
            st.html(words.table(answer))
            for note in words.notes(answer):
                paragraph(note)
            place = record.show(context)
        record.complete(context, place)


def _controls(present: PresentConfig, change: str, sweep: str) -> None:
    """Draw the controls, with the values of the change, or else the present values."""
    state = st.session_state
    # Without this check, a refresh of a live page would replace values that the reader has not
    # submitted.
    if "what_if_more" not in state or state.get(SHOWN) != (change, sweep, present):
        _set_controls(present, change, sweep)
        state[SHOWN] = (change, sweep, present)
    with st.form("what_if_form", border=False):
        left, middle, right = st.columns(3)
        left.number_input("max_num_seqs", 1, key="what_if_max_num_seqs")
        left.number_input("max_num_batched_tokens", 1, key="what_if_max_num_batched_tokens")
        left.toggle("enable_prefix_caching", key="what_if_enable_prefix_caching")
        middle.number_input("Replicas", 1, MAX_ENGINES, key="what_if_replicas")
        middle.selectbox(
            "Router", tuple(ROUTERS), key="what_if_router", format_func=ROUTERS.__getitem__
        )
        middle.text_input(
            "More changes",
            key="what_if_more",
            placeholder="rate=tenant=acme:0.5x, num_gpu_blocks=8000",
            help=(
                "Settings that have no field on this page, as NAME=VALUE, separated by commas."
                " The names are the same as in tailspan what-if --set."
            ),
        )
        middle.text_input(
            "Sweep",
            key="what_if_sweep",
            placeholder="max_num_seqs=16..512",
            help=(
                "Predict several values of one setting, as NAME=LOW..HIGH or NAME=A,B,C. The other "
                "changes apply to each value. Settings: " + ", ".join(SWEPT) + "."
            ),
        )
        for name, label in zip(
            FACTORS, ("Request rate ×", "Prompt length ×", "Output length ×"), strict=True
        ):
            # The address may contain a factor outside the slider's usual range.
            value = state[f"what_if_{name}"]
            least, most = min(0.1, value), max(5.0, value)
            right.slider(label, least, most, step=0.1, key=f"what_if_{name}")
        with st.container(horizontal=True):
            st.form_submit_button(
                "Predict", type="primary", key="what_if_predict", on_click=_predict, args=(present,)
            )
            st.form_submit_button("Reset", key="what_if_reset", on_click=_reset)


def _set_controls(present: PresentConfig, change: str, sweep: str) -> None:
    given, more = _changes_by_control(change)
    for key, value in {
        "max_num_seqs": int(given.get("max_num_seqs", present.max_num_seqs)),
        "max_num_batched_tokens": int(
            given.get("max_num_batched_tokens", present.max_num_batched_tokens)
        ),
        "enable_prefix_caching": ARGUMENTS["enable_prefix_caching"].parse(
            given.get("enable_prefix_caching", str(present.enable_prefix_caching))
        ),
        "replicas": int(given.get("replicas", present.replicas)),
        "router": given.get("router", ""),
        "more": ", ".join(more),
        "sweep": sweep,
        **{name: float(given.get(name, "1x").rstrip("x")) for name in FACTORS},
    }.items():
        st.session_state[f"what_if_{key}"] = value


def _changes_by_control(change: str) -> tuple[dict[str, str], list[str]]:
    """For each control, the value in the change. Also the texts of changes without a control."""
    given, more = {}, []
    for text in filter(None, change.split(",")):
        name, _, value = text.partition("=")
        simple = "tenant=" not in value and name not in given
        if simple and name in (*FACTORS, *_WITH_CONTROLS):
            given[name] = value
        else:
            more.append(text)
    return given, more


_WITH_CONTROLS: Final = (
    *("max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching", "replicas", "router"),
)


@choice
def _predict(present: PresentConfig) -> None:
    state = st.session_state
    chosen: list[tuple[str, Any, Any]] = [
        ("max_num_seqs", state["what_if_max_num_seqs"], present.max_num_seqs),
        (
            "max_num_batched_tokens",
            state["what_if_max_num_batched_tokens"],
            present.max_num_batched_tokens,
        ),
        (
            "enable_prefix_caching",
            str(state["what_if_enable_prefix_caching"]).lower(),
            str(present.enable_prefix_caching).lower(),
        ),
        ("replicas", state["what_if_replicas"], present.replicas),
        ("router", state["what_if_router"], ""),
    ]
    texts = [f"{name}={value}" for name, value, now in chosen if value != now]
    texts += [
        f"{name}={factor:g}x"
        for name in FACTORS
        if (factor := round(state[f"what_if_{name}"], 2)) != 1
    ]
    texts += [each.strip() for each in state["what_if_more"].split(",") if each.strip()]
    _set(texts, state["what_if_sweep"].strip())


@choice
def _reset() -> None:
    st.session_state.pop(SHOWN, None)
    _set([])


def _set(texts: Sequence[str], sweep: str = "") -> None:
    try:
        change = ",".join(edits_of(texts).listed())
    except EditError as error:
        navigation.warn(f"The change: {error}")
        return
    try:
        if sweep:
            sweep_of(sweep)
    except EditError as error:
        navigation.warn(f"The sweep: {error}")
        return
    navigation.change(replace(navigation.current(), change=change, sweep=sweep))
