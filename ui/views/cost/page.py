"""The page "Who pays for what?": the bill, what and whom it was for, and managed prices."""

import csv
import io
import os
import time
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Final

import streamlit as st
from sqlalchemy import Engine

from cost.bill_lines import Line
from cost.errors import PriceError
from cost.pricefile import prices_in_force
from cost.prices import PriceList
from store.errors import StoreError
from store.queries import newest_unix_ns
from ui.frame import controls, freshness, no_data
from ui.frame.objectives import InForce, in_force
from ui.frame.pages import BY_KEY
from ui.frame.read_cache import shared, window_of
from ui.frame.view import PAYERS, View
from ui.kit import wording
from ui.kit.downloads import cell
from ui.kit.sections import chapter, chart
from ui.kit.store_reads import Unreadable, told
from ui.kit.terms import TERMS
from ui.views.cost import charts, words
from ui.views.cost.read import DIMENSIONS, Spending, merged, read

PAGE: Final = BY_KEY["cost"]

BILL_HELP: Final = (
    "The price of each engine times the time that it was seen up. The parts sum to the bill.\n\n"
    + "\n".join(f"- **{name}**: {said}" for name, said in charts.MEANINGS.items())
)
TIME_HELP: Final = "What engines cost an hour, by what it went for."
PAYERS_HELP: Final = (
    "Each request pays for its share of its engine's steps, and for what was computed again for "
    "it; idle time is nobody's. **Lost**: the cost of answers that nobody got. A name leads to "
    "its requests."
)
MANAGED_HELP: Final = (
    "The same tokens, cached ones apart, at the managed model that stands for the served one "
    "(genai-prices; nothing is fetched). Break-even: the engines' fixed cost over the managed "
    "price of a request at this mix."
)
START: Final = "tailspan up --prices prices.yaml      # or TAILSPAN_PRICES=prices.yaml"


@dataclass(frozen=True, slots=True)
class Found:
    """All that the page shows of a range."""

    spending: Spending
    newest_unix_ns: int | None


def body(engine: Engine, zone: tzinfo) -> None:
    """All that moves with time; runs again by itself while the page is live."""
    view = controls.current()
    now = time.time_ns()
    st.session_state["now_unix_ns"] = now
    try:
        prices = prices_in_force(None, os.environ)
    except PriceError as error:
        st.html(
            "<p class='headline'>The prices cannot be read.</p>"
            f"<p class='notice'>{wording.for_html(str(error), 600)}</p>"
        )
        return
    try:
        with st.spinner("Adding up …"):
            found = _read(engine, view, prices, in_force(), now)
        spending = found.spending
        freshness.show(
            view,
            found.newest_unix_ns,
            spending.window.to_unix_ns,
            spending.simulated,
            now,
            zone,
        )
        if found.newest_unix_ns is None:
            no_data.no_server()
        else:
            _show(engine, spending, view, zone)
    except (Unreadable, StoreError) as error:
        no_data.unreadable(str(error))


def _read(
    engine: Engine, view: View, prices: PriceList, promised: InForce, now_unix_ns: int
) -> Found:
    window = window_of(view, PAGE, now_unix_ns)
    meant = tuple((each.name, each.promise) for each in promised.objectives)

    def find() -> Found:
        with told():
            return Found(
                read(engine, window, view.equals, prices, promised.objectives),
                newest_unix_ns(engine),
            )

    filters = tuple(sorted(view.equals.items()))
    return shared(engine, ("cost", window, filters, repr(prices), meant), find)


def _show(engine: Engine, found: Spending, view: View, zone: tzinfo) -> None:
    total = found.bill.total
    if total is None or total.bill_usd <= 0:
        _no_bill(engine, found, view, zone)
        return
    st.html(f"<p class='headline'>{words.sentence(found, total, view)}</p>")
    _remarks(found, total)
    if found.bill.unpriced:
        _unpriced(found)
    left, right = st.columns([2, 3], gap="large")
    with left, chapter("The bill", BILL_HELP):
        chart(charts.waterfall(total), "bill", "What the bill went for; the parts sum to it")
    with right, chapter("Over time", TIME_HELP):
        figure = charts.bill_over_time(found.steps, found.window, zone)
        chart(figure, "bill_over_time", "What engines cost an hour, by what it went for")
    _payers(engine, found, view, zone)
    _managed(found, total)
    for said in words.notes(found, zone):
        st.html(f"<p class='note'>{said}</p>")


def _remarks(found: Spending, total: Line) -> None:
    if advice := words.advice(total):
        st.html(f"<p class='note'>{advice}</p>")
    st.html(f"<p class='note'>{words.rates(found.bill)}</p>")
    if found.energy is not None and found.energy.joules > 0:
        st.html(f"<p class='note'>{words.drawn(found.energy)}</p>")


def _payers(engine: Engine, found: Spending, view: View, zone: tzinfo) -> None:
    with chapter("Who pays", PAYERS_HELP):
        st.session_state["per"] = view.per
        st.segmented_control(
            "Costs by",
            PAYERS,
            key="per",
            required=True,
            format_func=lambda name: f"by {name}",
            label_visibility="collapsed",
            on_change=_per_chosen,
        )
        groups = merged(found.groups, DIMENSIONS, (view.per,))
        if not groups:
            no_data.nothing_in_view(engine, found.window, view, zone)
            return
        with st.container(key="chart_payers", gap=None):
            st.html(words.payers(groups, view.per, view))
            st.download_button(
                "CSV",
                data=lambda: _csv(charts.table_rows(groups, view.per)),
                file_name=f"tailspan-cost-by-{view.per}.csv",
                mime="text/csv",
                key="csv_payers",
                type="tertiary",
                help="All of them, as a table",
                on_click="ignore",
            )
        if said := words.how_priced(groups):
            st.html(f"<p class='note'>{said}</p>")
    if found.usd:
        with chapter(f"Over time, by {view.per}", "What requests cost an hour: the dearest."):
            figure = charts.payers_over_time(found.steps, view.per, found.window, zone)
            chart(figure, "payers_over_time", f"What requests cost an hour, by {view.per}")


def _managed(found: Spending, total: Line) -> None:
    if not found.compared and not found.not_compared:
        return
    with chapter("Against managed prices", MANAGED_HELP):
        if found.compared:
            st.html(f"<p>{words.against(found, total)}</p>")
            by_model = merged(found.groups, DIMENSIONS, ("model",))
            st.html(words.managed(found.compared, by_model))
        if found.not_compared:
            known = {each.model for each in found.compared}
            others = [
                each.labels[0]
                for each in merged(found.groups, DIMENSIONS, ("model",))
                if each.labels[0] is not None and each.labels[0] not in known
            ]
            for why in found.not_compared[:3]:
                st.html(f"<p class='note'>Not compared: {wording.for_html(why, 300)}</p>")
            st.code(words.managed_example(others), language="yaml")
            st.code(START, language="bash")
    if found.break_even is not None:
        with chapter("Break-even", MANAGED_HELP):
            figure = charts.break_even(
                found.break_even,
                found.bill.usd_per_hour,
                words.now_rps(found),
                found.compared,
            )
            chart(figure, "break_even", "Dollars an hour by requests a second, here and there")


def _unpriced(found: Spending) -> None:
    said = words.without_price(found.bill.unpriced)
    st.html(f"<p class='notice'>No price: {said}</p>")
    with st.expander("How to give a price"):
        _give_price(found)


def _no_bill(engine: Engine, found: Spending, view: View, zone: tzinfo) -> None:
    if found.bill.unpriced:
        said = words.without_price(found.bill.unpriced)
        st.html(
            "<p class='headline'><b>Nobody knows what serving costs here:</b> no price list has"
            f" these servers.</p><p class='note'>{said}</p>"
        )
        _give_price(found)
        return
    st.html(
        "<p class='headline'>No engine was seen in this range, so there is no bill.</p>"
        f"<p class='note'>{TERMS['wall']}</p>"
    )
    no_data.nothing_in_view(engine, found.window, view, zone)


def _give_price(found: Spending) -> None:
    st.markdown("Write what you pay into a file, `prices.yaml`, and start Tailspan with it:")
    st.code(words.price_example(found.bill.unpriced), language="yaml")
    st.code(START, language="bash")


def _per_chosen() -> None:
    if (chosen := st.session_state["per"]) in PAYERS:
        controls.change(replace(controls.current(), per=chosen))


def _csv(rows: list[list[object]]) -> str:
    written = io.StringIO()
    csv.writer(written).writerows(
        [value if isinstance(value, int | float) else cell(value) for value in row] for row in rows
    )
    return written.getvalue()
