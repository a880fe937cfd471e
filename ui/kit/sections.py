"""What every page is made of: chapters with a heading, and charts in them."""

import html
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import plotly.graph_objects as go
import streamlit as st

from ui.kit import charts
from ui.kit.downloads import csv_of


@contextmanager
def chapter(title: str, explanation: str | None = None) -> Iterator[None]:
    """A heading, which explains itself when pointed at, and what stands under it."""
    with st.container(gap=None):
        st.header(title, anchor=False, help=explanation)
        yield


def chart(
    figure: go.Figure,
    key: str,
    alt: str | None = None,
    on_select: Callable[[], None] | None = None,
) -> None:
    """A chart, with its numbers to take away.

    Args:
        figure: what is drawn.
        key: tells it from others of the same page, and names what is downloaded.
        alt: in words, for who does not see it.
        on_select: called when the reader has dragged a box over it, which the session's state
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
