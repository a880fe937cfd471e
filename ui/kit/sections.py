"""The parts of every page: sections with a heading, and charts in them."""

import html
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import plotly.graph_objects as go
import streamlit as st

from ui.kit import charts
from ui.kit.downloads import csv_of


@contextmanager
def chapter(title: str, explanation: str | None = None) -> Iterator[None]:
    """Draw a heading with an optional tooltip; the block under it is the section."""
    with st.container(gap=None):
        st.header(title, anchor=False, help=explanation)
        yield


def chart(
    figure: go.Figure,
    key: str,
    alt: str | None = None,
    on_select: Callable[[], None] | None = None,
) -> None:
    """Draw a chart with a download of its data.

    Args:
        figure: the chart.
        key: unique on the page; also names the downloaded file.
        alt: a description for screen readers.
        on_select: called when the reader has dragged a box over the chart; the session's state
            then has under the key.
    """
    name = f"tailspan-{key}"
    with st.container(key=f"chart_{key}", gap=None):
        st.plotly_chart(
            figure,
            key=key,
            config={**charts.CONFIG, "toImageButtonOptions": {"filename": name, "scale": 2}},
            alt=alt,
            on_select=on_select or "ignore",
            selection_mode="box",
        )
        with st.container(key=f"take_{key}", horizontal=True, gap="xsmall", width="content"):
            st.html(f"<button type='button' data-picture='{html.escape(key)}'>PNG</button>")
            st.download_button(
                "CSV",
                data=lambda: csv_of(figure),
                file_name=f"{name}.csv",
                mime="text/csv",
                key=f"csv_{key}",
                type="tertiary",
                help="What this chart shows, as a table",
                on_click="ignore",
            )
