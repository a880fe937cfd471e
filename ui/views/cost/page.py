"""The Cost page: the bill, its categories and groups, and managed prices."""

import csv
import io
import os
from dataclasses import dataclass
from typing import Final

import streamlit as st

from analysis.caches import CachesAnswer
from analysis.cost import managed_usd_by
from analysis.range_costs import RangeCosts, read_spending
from analysis.stored_data import stored_data
from cost.bill_lines import BillLine
from cost.engine_costs import of_replicas_with_several_engines
from cost.errors import PriceError
from cost.groups import groups_of
from cost.pricefile import prices_in_force
from cost.prices import PriceList
from roofline.peakfile import peaks_in_force
from ui.frame import controls, no_data, selection
from ui.frame.context import CannotShow, Context
from ui.frame.view import PAYERS
from ui.kit import wording
from ui.kit.downloads import cell
from ui.kit.sections import chapter, chart, paragraph
from ui.kit.terms import TERMS
from ui.views.cost import caches, charts, words

BILL_HELP: Final = (
    "The bill is each engine's price multiplied by the time for which it was up. The parts sum to "
    "the bill.\n\n" + "\n".join(f"- **{name}**: {text}" for name, text in charts.MEANINGS.items())
)
TIME_HELP: Final = f"Cost of the engines per hour, by part of the bill. {selection.HELP}"
SIDES_HELP: Final = (
    "The cost of engine steps, divided between prefill and decode by the step model. MFU and MBU:"
    " the used share of the GPUs’ peak FLOP/s and of their peak memory bandwidth. Prefill is"
    " usually limited by arithmetic, and decode by memory."
)
ENGINES_HELP: Final = (
    "The engines of replicas with data parallelism. If one engine is idle while another engine of"
    " the replica is busy, requests are not evenly distributed."
)
PAYERS_HELP: Final = (
    "A request pays for its share of its engine's steps, and for work that was repeated for it."
    " No request pays for idle time. **Per hour**: cost per hour in which at least one engine was"
    " up."
    " **Managed**: "
    "the price of the same tokens at managed APIs. **Lost**: the cost of responses that were "
    "not delivered. Each name links to its requests."
)
MANAGED_HELP: Final = (
    "The price of the same tokens at the matching managed model (genai-prices, bundled). "
    "Cached tokens are priced separately. Break-even: the request rate at which a managed API"
    " would cost as much as your engines."
)
START: Final = "tailspan up --prices prices.yaml      # or TAILSPAN_PRICES=prices.yaml"


@dataclass(frozen=True, slots=True)
class CostData:
    """The data of the page."""

    spending: RangeCosts
    cached: CachesAnswer
    newest_unix_ns: int | None

    @property
    def simulated(self) -> bool:
        """Whether any data comes from the simulator."""
        return self.spending.simulated


def read(context: Context) -> CostData:
    """Read the bill at the current prices."""
    prices = _prices()

    def found() -> CostData:
        engine, objectives = context.engine, context.objectives.parsed
        return CostData(
            read_spending(
                engine,
                context.window,
                context.view.equals,
                prices,
                objectives,
                peaks_in_force(os.environ),
            ),
            caches.read(engine, context.window, context.view.equals, prices),
            stored_data(engine).newest_unix_ns,
        )

    return context.shared(found, repr(prices), context.objectives.key)


def _prices() -> PriceList:
    try:
        return prices_in_force(None, os.environ)
    except PriceError as error:
        raise CannotShow("The price file cannot be read.", str(error)) from error


def show(context: Context, seen: CostData) -> None:
    """Draw the bill, its categories, its groups, and managed prices."""
    found, view, zone = seen.spending, context.view, context.zone
    total = found.bill.total
    if total is None or total.bill_usd <= 0:
        _no_bill(context, found)
        caches.show(seen.cached, view)
        return
    paragraph(words.sentence(found, total, view), "headline")
    _notes_below_headline(found, total)
    if found.bill.unpriced:
        _unpriced(found)
    left, right = st.columns([2, 3], gap="large")
    with left, chapter("The bill", BILL_HELP):
        chart(charts.waterfall(total), "bill", "The parts of the bill")
    with right, chapter("Over time", TIME_HELP):
        figure = charts.bill_over_time(found.steps, found.window, context.axis_zone)
        alt = "Cost of the engines per hour, by category"
        selection.time_chart(context, figure, "bill_over_time", alt)
    if found.sides.sides:
        with chapter("Prefill and decode", SIDES_HELP):
            st.html(words.sides(found.sides, total))
    if several := of_replicas_with_several_engines(found.bill.by_engine):
        with chapter("Engines", ENGINES_HELP):
            st.html(words.engines(several, total))
            if len(several) > words.MAX_ROWS:
                paragraph(f"{len(several) - words.MAX_ROWS} more engines are not shown.")
    _payers(context, found)
    _managed(found, total)
    caches.show(seen.cached, view)
    for note in words.notes(found, zone):
        paragraph(note)


def _notes_below_headline(found: RangeCosts, total: BillLine) -> None:
    if advice := words.advice(total):
        paragraph(advice)
    rounded = (
        "The range is widened to whole minutes, or to whole hours if the per-minute rollups were"
        " deleted."
    )
    paragraph(f"{words.rates(found.bill)} {rounded}")
    if found.energy is not None and found.energy.joules > 0:
        paragraph(words.drawn(found.energy))


def _payers(context: Context, found: RangeCosts) -> None:
    view = context.view
    with chapter("Cost by label", PAYERS_HELP):
        controls.setting("per", "Costs by", PAYERS, "by {}".format)
        groups = groups_of(found.costs, (view.per,))
        if not groups:
            no_data.nothing_in_view(context)
            return
        with st.container(key="chart_payers", gap=None):
            managed = managed_usd_by(found.costs.cells, (view.per,), _prices())
            st.html(words.payers(groups, view.per, view, found.bill, managed))
            st.download_button(
                "CSV",
                data=lambda: _csv(charts.table_rows(groups, view.per, found.bill, managed)),
                file_name=f"tailspan-cost-by-{view.per}.csv",
                mime="text/csv",
                key="csv_payers",
                type="tertiary",
                help="Download all groups as a table",
                on_click="ignore",
            )
        if note := words.how_priced(groups):
            paragraph(note)
    if found.usd:
        explanation = (
            f"Cost of the requests per hour, by {view.per}. The most expensive values are shown"
            f" separately. {selection.HELP}"
        )
        with chapter(f"Over time, by {view.per}", explanation):
            figure = charts.payers_over_time(found.steps, view.per, found.window, context.axis_zone)
            alt = f"Cost of the requests per hour, by {view.per}"
            selection.time_chart(context, figure, "payers_over_time", alt)


def _managed(found: RangeCosts, total: BillLine) -> None:
    if not found.compared and not found.not_compared:
        return
    with chapter("Compared with managed APIs", MANAGED_HELP):
        if found.compared:
            st.html(f"<p>{words.against(found, total)}</p>")
            st.html(words.managed(found.compared, groups_of(found.costs, ("model",))))
        if found.not_compared:
            known = {each.model for each in found.compared}
            others = [
                each.labels[0]
                for each in groups_of(found.costs, ("model",))
                if each.labels[0] is not None and each.labels[0] not in known
            ]
            for why in found.not_compared[:3]:
                paragraph(f"Not compared: {wording.for_html(why, 300)}")
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
            chart(
                figure,
                "break_even",
                "Dollars per hour by requests per second, self-hosted and managed",
            )


def _unpriced(found: RangeCosts) -> None:
    reasons = words.without_price(found.bill.unpriced)
    paragraph(f"No price: {reasons}", "notice")
    with st.expander("How to set a price"):
        _give_price(found)


def _no_bill(context: Context, found: RangeCosts) -> None:
    if found.bill.unpriced:
        reasons = words.without_price(found.bill.unpriced)
        st.html(
            "<p class='headline'><b>The cost is unknown:</b> no price list contains"
            f" these servers.</p><p class='note'>{reasons}</p>"
        )
        _give_price(found)
        return
    st.html(
        "<p class='headline'>No engine reported in this range, so there is no bill.</p>"
        f"<p class='note'>{TERMS['wall']}</p>"
    )
    no_data.nothing_in_view(context)


def _give_price(found: RangeCosts) -> None:
    st.markdown("Write your prices to a file, `prices.yaml`, and start Tailspan with this file:")
    st.code(words.price_example(found.bill.unpriced), language="yaml")
    st.code(START, language="bash")


def _csv(rows: list[list[object]]) -> str:
    written = io.StringIO()
    csv.writer(written).writerows(
        [value if isinstance(value, int | float) else cell(value) for value in row] for row in rows
    )
    return written.getvalue()
