"""What every page is made of: chapters with a heading, and charts in them."""

from collections.abc import Iterator
from contextlib import contextmanager

import plotly.graph_objects as go
import streamlit as st

from ui import charts


@contextmanager
def chapter(title: str, explanation: str | None = None) -> Iterator[None]:
    """A heading, which explains itself when pointed at, and what stands under it."""
    with st.container(gap=None):
        st.subheader(title, anchor=False, help=explanation)
        yield


def chart(figure: go.Figure, key: str) -> None:
    """A chart; the key tells it from others of the same page."""
    st.plotly_chart(figure, key=key, config=charts.CONFIG)
