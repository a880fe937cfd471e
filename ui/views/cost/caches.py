"""Lookups in caches of applications and gateways. A hit reaches no model and has no cost."""

from collections.abc import Mapping
from typing import Final

import plotly.graph_objects as go
import streamlit as st
from sqlalchemy import Engine

from analysis.caches import (
    BINS,
    DEFAULT_BY,
    ESTIMATE,
    LABELS,
    CacheGroup,
    CachesAnswer,
    CachesQuestion,
    answer_caches,
)
from cost.prices import PriceList
from telemetry.cache_lookups import CacheResult
from telemetry.window import Window
from ui.frame.view import View
from ui.kit import charts, colours, tables, wording
from ui.kit.sections import chapter, chart, paragraph

HELP: Final = (
    "Hits of semantic, embedding and response caches in applications and gateways. A hit is "
    "not a request: no percentile, SLO or bill includes it. **Hit rate**: hits divided by "
    "hits and misses. **Hit time**: the whole answer, as the client or gateway measured it. "
    "**Lookup**: the search alone. **Saved** is " + ESTIMATE
)
MAX_ROWS: Final = 12


def read(
    engine: Engine, window: Window, equals: Mapping[str, str], prices: PriceList
) -> CachesAnswer:
    """Count the cache lookups of a range. Filters by labels that lookups lack are ignored."""
    where = {name: value for name, value in equals.items() if name in LABELS}
    return answer_caches(engine, CachesQuestion(window, prices, DEFAULT_BY, where))


def show(found: CachesAnswer, view: View) -> None:
    """Draw the section if there are lookups."""
    if found.total is None:
        return
    with chapter("Answered by caches", HELP):
        st.html(f"<p>{sentence(found, found.total)}</p>")
        st.html(table(found))
        other = [name for name in view.equals if name not in LABELS]
        if other:
            names = ", ".join(other)
            paragraph(f"Lookups have no {names}, so this filter does not apply.")
        if found.similarity:
            name = wording.for_html(found.similarity_of or "without a name")
            paragraph(f"Similarities in the cache {name}.")
            alt = "Hits and misses by the similarity of the nearest entry"
            chart(similarity(found), "cache_similarity", alt)
        paragraph("In a terminal: <code>tailspan caches</code>.")


def sentence(found: CachesAnswer, total: CacheGroup) -> str:
    """The hit rate, and how much the hits saved."""
    text = f"Caches in front of the model answered <b>{_rate(total)}</b> {_interval(total)}"
    text += f" of {wording.counted(total.hits + total.misses, 'lookup')}."
    if total.saved_usd is not None:
        text += (
            f" They saved about <b>{wording.usd(total.saved_usd)}</b>, an estimate for"
            f" {total.priced_hits:,} of {wording.counted(total.hits, 'hit')}."
        )
    bypassed, unknown = (
        total.results.get(each, 0) for each in (CacheResult.BYPASS, CacheResult.UNKNOWN)
    )
    if bypassed or unknown:
        text += (
            f" Not counted: {bypassed:,} requests that bypassed the cache, and {unknown:,} lookups"
            " that report neither a hit nor a miss."
        )
    if found.read < found.reports:
        text += f" Only the newest {found.read:,} of {found.reports:,} reports were read."
    return text


def table(found: CachesAnswer) -> str:
    """A table of the lookups by tenant and route."""
    heads = ["tenant", "route", "hits", "misses", "hit rate", "95 % interval", "hit p50"]
    heads += ["hit p95", "lookup, hit", "lookup, miss", "saved", "engine time"]
    more = len(found.groups) - MAX_ROWS
    note = (
        f"<p class='note'>… and {more:,} more: <code>tailspan caches</code>.</p>"
        if more > 0
        else ""
    )
    return tables.table(heads, map(_row, found.groups[:MAX_ROWS]), "payers") + note


def _row(group: CacheGroup) -> tuple[str, ...]:
    return (
        *(wording.UNKNOWN if each is None else wording.for_html(each) for each in group.labels),
        wording.count(group.hits),
        wording.count(group.misses),
        _rate(group),
        _interval(group),
        wording.seconds(group.answer_on_hit.p50_s),
        wording.seconds(group.answer_on_hit.p95_s),
        wording.seconds(group.lookup_on_hit.p50_s),
        wording.seconds(group.lookup_on_miss.p50_s),
        wording.usd(group.saved_usd),
        wording.seconds(group.saved_engine_s),
    )


def _rate(group: CacheGroup) -> str:
    return wording.UNKNOWN if group.rate is None else wording.exact_percent(group.rate[0])


def _interval(group: CacheGroup) -> str:
    if group.rate is None:
        return ""
    low, high = (wording.exact_percent(each) for each in group.rate[1:])
    return f"[{low} to {high}]"


def similarity(found: CachesAnswer) -> go.Figure:
    """Draw the hits and misses by the prompt's similarity to the nearest cache entry."""
    figure = go.Figure()
    xs = [each.from_similarity + 0.5 / BINS for each in found.similarity]
    for name, ys, colour in (
        ("hits", [each.hits for each in found.similarity], colours.PAYERS[0]),
        ("misses", [each.misses for each in found.similarity], colours.OTHERS_PAY),
    ):
        figure.add_trace(
            go.Bar(
                x=xs,
                y=ys,
                width=[0.9 / BINS] * len(xs),
                name=name,
                marker={"color": colour, "line": {"width": 0.5, "color": colours.OUTLINE}},
                customdata=[f"{each.from_similarity:.2f}" for each in found.similarity],
                hovertemplate="similarity from %{customdata}: %{y:,}<extra>" + name + "</extra>",
            )
        )
    if found.lowest_hit is not None:
        figure.add_vline(
            x=found.lowest_hit,
            line={"width": 1.5, "dash": "dash", "color": colours.OUTLINE},
            annotation={
                "text": f"lowest hit {found.lowest_hit:.3f}",
                "yref": "paper",
                "y": 1.0,
                "yanchor": "bottom",
                "font": {"size": 11},
            },
        )
    ticks = charts.linear_ticks(max(each.hits + each.misses for each in found.similarity))
    figure.update_xaxes(
        fixedrange=True, title={"text": "similarity of the nearest entry", "standoff": 4}
    )
    figure.update_yaxes(
        **charts.axis_ticks(ticks, wording.number),
        fixedrange=True,
        title={"text": "lookups", "standoff": 6},
    )
    return charts.plain(
        figure,
        240,
        {"t": 52, "b": 44},
        barmode="stack",
        legend=charts.LEGEND,
        showlegend=True,
    )
