"""The panel of one request: where its time went, from received to delivered."""

import html
from collections.abc import Mapping
from dataclasses import replace
from datetime import tzinfo
from typing import Any, Final

import streamlit as st
from sqlalchemy import Engine

from ui.frame import controls
from ui.frame.view import RequestKey, link
from ui.kit import charts, store_reads, wording
from ui.views.request import waterfall

WIDE: Final = 22
"""Characters beyond which a fact takes two columns."""


def show(engine: Engine, key: RequestKey, zone: tzinfo) -> None:
    """The request's waterfall and what is known of it; a button closes it."""
    row = store_reads.one(engine, key)
    with st.container(border=True):
        if row is None:
            st.html("<p class='note'>The chosen request is not in the store.</p>")
        else:
            name = wording.for_html(row["request_id"] or row["trace_id"], 80)
            at = wording.clock(row["received_unix_ns"], zone, date=True)
            st.html(f"<p class='headline'><b class='name'>{name}</b> received {at}</p>")
            figure = waterfall.figure(waterfall.bars(row), row["ttft_s"])
            st.plotly_chart(figure, key="waterfall", config=charts.CONFIG)
            _inside(row)
            facts(row)
            whole = replace(controls.current(), page="request", request=key)
            st.html(
                f"<p class='note'><a href='{html.escape(link(whole))}' target='_self'>"
                "What happened to this request?</a> Who was with it, and what its server did.</p>"
            )
        st.button(
            "Close",
            key="close",
            on_click=lambda: controls.change(replace(controls.current(), request=None)),
        )


def _inside(row: Mapping[str, Any]) -> None:
    if inside := waterfall.parts(row):
        listed = " · ".join(
            f"<i class='swatch' style='background:{colour}'></i>{html.escape(name)} {duration}"
            for name, colour, duration in inside
        )
        st.html(f"<p class='note'>Inside prefill and decode: {listed}</p>")


def facts(row: Mapping[str, Any]) -> None:
    """What is known of a request beside its phases."""
    listed = "".join(_fact(*fact) for fact in waterfall.facts(row))
    st.html(f"<div class='facts'>{listed}</div>")


def _fact(what: str, value: str, why: str) -> str:
    wide = "wide" if len(value) > WIDE else ""
    return (
        f"<div class='{wide}' title='{html.escape(why)}'>"
        f"<small>{html.escape(what)}</small>{wording.for_html(value, 200)}</div>"
    )
