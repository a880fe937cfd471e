"""The charts of the Cost page. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

import plotly.graph_objects as go

from analysis.cost import usd_per_hour
from analysis.range_costs import CostStep
from cost.bill import Bill
from cost.bill_lines import BillLine
from cost.groups import BillGroup, groups_of
from cost.managed import BreakEven, ManagedCost
from telemetry.window import Window
from ui.kit import charts, colours, wording

HEIGHT: Final = 260
MAX_PAYERS: Final = len(colours.PAYERS)
SMALLEST: Final = 1 / 20_000
"""Minimum share of the bill. The bar of a smaller part would be invisible."""
REST: Final = "all others"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class BillPart:
    """A part of the bill. Its bar begins at `from_usd`, where the previous bar ends."""

    name: str
    usd: float
    from_usd: float
    meaning: str


MEANINGS: Final = {
    "answers": "cost of engine steps, for requests that were answered",
    "lost answers": "cost of engine steps, for requests that were aborted or failed",
    "recomputed": "engine time for work that was repeated after an eviction",
    "idle": "time in which engines were up but executed no step",
    "loading": "time from the start of a process until its engine was ready",
    "unbilled": "busy time of requests that have not ended, or whose step times were not reported",
}


def parts(line: BillLine) -> list[BillPart]:
    """The bill's parts in order. Parts that are too small to see are omitted."""
    sizes = _sizes(line)
    found = []
    reached = 0.0
    for name, usd in sizes.items():
        if abs(usd) > line.bill_usd * SMALLEST:
            found.append(BillPart(name, usd, reached, MEANINGS[name]))
        reached += usd
    return found


def _sizes(line: BillLine) -> dict[str, float]:
    return {
        "answers": line.requests_usd - line.lost_usd,
        "lost answers": line.lost_usd,
        "recomputed": line.wasted_usd,
        "idle": line.idle_usd or 0.0,
        "loading": line.loading_usd,
        "unbilled": line.unbilled_usd,
    }


def waterfall(line: BillLine) -> go.Figure:
    """Draw the parts from top to bottom, and the bill below them."""
    figure = go.Figure()
    found = parts(line)
    for part in found:
        share = wording.exact_percent(part.usd / line.bill_usd)
        text = f"{part.name}: {wording.usd(part.usd)}, {share} of the bill<br>{part.meaning}"
        figure.add_trace(
            _bar(part.name, part.from_usd, part.usd, colours.PAID_FOR[part.name], share, text)
        )
    sum_ = f"the bill: {wording.usd(line.bill_usd)}, the sum of all parts"
    figure.add_trace(_bar("<b>bill</b>", 0.0, line.bill_usd, colours.TOTAL, "", sum_))
    high = max([line.bill_usd, *(part.from_usd + max(0.0, part.usd) for part in found)])
    low = min([0.0, *(part.from_usd + min(0.0, part.usd) for part in found)])
    ticks = charts.linear_ticks(high)
    figure.update_xaxes(
        range=[low * 1.2, high * 1.62],
        **charts.axis_ticks(ticks, wording.tick_usd),
        fixedrange=True,
        zeroline=True,
        zerolinecolor=colours.OUTLINE,
        title={"text": "US dollars", "standoff": 4},
    )
    return charts.waterfall(figure, len(found) + 1, left=92)


def _bar(name: str, from_usd: float, usd: float, colour: str, share: str, text: str) -> go.Bar:
    label = f"{wording.usd(usd)}{f'  {share}' if share else ''}"
    bar = charts.step_bar(name, from_usd, usd, colour, label, text)
    series = name.removeprefix("<b>").removesuffix("</b>")
    return bar.update(customdata=[text.replace("<br>", "; ")], name=series)


def bill_over_time(steps: Sequence[CostStep], window: Window, zone: tzinfo) -> go.Figure:
    """Draw the engines' cost per hour by cost category."""
    known = [step for step in steps if step.line is not None]
    figure = go.Figure()
    for name in MEANINGS:
        usd = [_sizes(step.line)[name] for step in known if step.line is not None]
        whole = sum(step.line.bill_usd for step in known if step.line is not None)
        if sum(map(abs, usd)) > whole * SMALLEST:
            figure.add_trace(_stacked(name, colours.PAID_FOR[name], known, usd, zone))
    return _over_time(figure, window, zone)


def payers_over_time(
    steps: Sequence[CostStep], label: str, window: Window, zone: tzinfo
) -> go.Figure:
    """Draw the cost per hour for each value of a label. The cheapest values are combined."""
    by_step = [
        {each.labels[0]: each.usd or 0.0 for each in groups_of(step.costs, (label,))}
        for step in steps
    ]
    sums: dict[str | None, float] = defaultdict(float)
    for each in by_step:
        for value, paid in each.items():
            sums[value] += paid
    order = sorted(sums, key=lambda value: -sums[value])
    shown = order if len(order) <= MAX_PAYERS else order[: MAX_PAYERS - 1]
    figure = go.Figure()
    for value, colour in zip(shown, colours.PAYERS, strict=False):
        usd = [each.get(value, 0.0) for each in by_step]
        name = UNKNOWN if value is None else wording.for_plotly(value, 24)
        figure.add_trace(_stacked(name, colour, steps, usd, zone))
    if len(order) > len(shown):
        usd = [sum(each.get(value, 0.0) for value in order[len(shown) :]) for each in by_step]
        figure.add_trace(_stacked(REST, colours.OTHERS_PAY, steps, usd, zone))
    return _over_time(figure, window, zone)


def _stacked(
    name: str, colour: str, steps: Sequence[CostStep], usd: Sequence[float], zone: tzinfo
) -> go.Bar:
    rates = [each / step.hours for each, step in zip(usd, steps, strict=True)]
    middles = [(step.from_unix_ns + step.to_unix_ns) // 2 for step in steps]
    return go.Bar(
        x=charts.local(middles, zone),
        y=rates,
        width=[step.hours * 3_600_000 * 0.92 for step in steps],
        name=name,
        marker={"color": colour, "line": {"width": 0.5, "color": colours.OUTLINE}},
        customdata=[
            f"{wording.usd(rate)}/h ({wording.usd(each)})"
            for rate, each in zip(rates, usd, strict=True)
        ],
        hovertemplate="%{customdata}<extra>" + name + "</extra>",
    )


def _over_time(figure: go.Figure, window: Window, zone: tzinfo) -> go.Figure:
    ups = [sum(max(0.0, y) for y in ys) for ys in zip(*(t.y for t in figure.data), strict=False)]
    downs = [sum(min(0.0, y) for y in ys) for ys in zip(*(t.y for t in figure.data), strict=False)]
    top = max(ups, default=0.0)
    ticks = charts.linear_ticks(top)
    figure.update_yaxes(
        range=[min(downs, default=0.0) * 1.1, max(top * 1.08, ticks[-1])],
        **charts.axis_ticks(ticks, wording.tick_usd),
        title={"text": "US dollars per hour", "standoff": 6},
    )
    figure.update_layout(barmode="relative")
    charts.over_time(figure, window, zone, HEIGHT)
    figure.update_layout(showlegend=True, margin={**charts.MARGIN, "t": 52})
    return figure


def break_even(
    even: BreakEven, usd_per_hour: float, now_rps: float, compared: Sequence[ManagedCost]
) -> go.Figure:
    """Draw the cost per hour of self-hosting and of the managed API, by requests per second."""
    per_request = sum(each.usd for each in compared) / sum(
        each.tokens.requests for each in compared
    )
    most = 1.25 * max(even.rps, now_rps, even.sustainable.rps or 0.0)
    figure = go.Figure()
    for name, ys, colour, dash in (
        ("your engines", [usd_per_hour, usd_per_hour], "#2a60b5", "solid"),
        ("managed", [0.0, most * per_request * 3_600], "#c9822b", "solid"),
    ):
        figure.add_trace(
            go.Scatter(
                x=[0.0, most],
                y=ys,
                mode="lines",
                name=name,
                line={"color": colour, "width": 2, "dash": dash},
                hovertemplate=f"{name}: " + "$%{y:,.2f}/h at %{x:.3g}/s<extra></extra>",
            )
        )
    marks = [("now", now_rps, "dot"), ("break-even", even.rps, "solid")]
    if even.sustainable.rps is not None:
        marks.append(("SLOs met", even.sustainable.rps, "dash"))
    for place, (name, rps, dash) in enumerate(sorted(marks, key=lambda each: each[1])):
        figure.add_vline(
            x=rps,
            line={"width": 1.5, "dash": dash, "color": colours.OUTLINE},
            annotation={
                "text": f"{name} {wording.number(rps)}/s",
                "yref": "paper",
                # The labels may be close together, so their heights differ.
                "y": 1.0 + 0.1 * place,
                "yanchor": "bottom",
                "xanchor": "left" if rps < most * 0.6 else "right",
                "font": {"size": 11},
            },
        )
    top = max(usd_per_hour, most * per_request * 3_600)
    ticks, across = charts.linear_ticks(top), charts.linear_ticks(most)
    figure.update_xaxes(
        range=[0, most],
        **charts.axis_ticks(across, wording.number),
        fixedrange=True,
        title={"text": "requests per second", "standoff": 4},
    )
    figure.update_yaxes(
        range=[0, top * 1.05],
        **charts.axis_ticks(ticks, wording.tick_usd),
        fixedrange=True,
        title={"text": "US dollars per hour", "standoff": 6},
    )
    legend = {**charts.LEGEND, "y": 1.36}
    return charts.plain(figure, HEIGHT + 30, {"t": 84, "b": 44}, legend=legend)


def table_rows(
    groups: Sequence[BillGroup],
    label: str,
    bill: Bill,
    managed_usd: Mapping[tuple[str | None, ...], float | None],
) -> list[list[object]]:
    """The groups' costs as rows of a CSV file, with a header.

    Costs are US dollars, not rounded. An unknown value is an empty cell. The keys of `managed_usd`
    are label values.
    """
    head: list[object] = [
        label, "cost_usd", "requests", "unpriced_requests", "usd_per_request", "recomputed_usd",
        "lost_usd", "prompt_tokens", "cached_tokens", "output_tokens", "usd_per_1k_input_tokens",
        "usd_per_1k_output_tokens", "priced_by", "usd_per_hour", "managed_usd",
    ]  # fmt: skip
    rows = [head]
    for each in groups:
        known = each.usd is not None
        rows.append(
            [
                each.labels[0],
                each.usd,
                each.requests,
                each.unpriced,
                each.usd_per_request,
                each.wasted_usd if known else None,
                each.lost_usd if known else None,
                each.prompt_tokens,
                each.cached_tokens,
                each.output_tokens,
                each.usd_per_1k_in,
                each.usd_per_1k_out,
                " and ".join(sorted(each.priced_by)),
                usd_per_hour(each.usd, bill),
                managed_usd.get(each.labels),
            ]
        )
    return rows
