"""Draw the elements of all pages: sections with a heading, and charts."""

import html
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import plotly.graph_objects as go
import streamlit as st

from ui.kit import charts, wording
from ui.kit.downloads import csv_of

CAPTION: Final = "picture_caption"
"""Session key of the line under a downloaded picture's title."""
_title: ContextVar[str | None] = ContextVar("title of the section", default=None)


def paragraph(text: str, kind: str = "note") -> None:
    """Draw a paragraph of HTML. `kind` is its CSS class: note, notice or headline."""
    st.html(f"<p class='{kind}'>{text}</p>")


@contextmanager
def chapter(title: str, explanation: str | None = None) -> Iterator[None]:
    """Draw a heading with an optional tooltip. The `with` block draws the section."""
    with st.container(gap=None):
        st.header(title, anchor=False, help=explanation)
        outer = _title.set(title)
        try:
            yield
        finally:
            _title.reset(outer)


def chart(
    figure: go.Figure,
    key: str,
    alt: str | None = None,
    on_select: Callable[[], None] | None = None,
) -> None:
    """Draw a chart with downloads.

    Args:
        key: a name that is unique on the page. The downloaded file has the same name.
        alt: a description for screen readers.
        on_select: called after a drag. The session state contains the selection under `key`.
    """
    name = f"tailspan-{key}"
    caption = str(st.session_state.get(CAPTION, ""))
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
            st.html(_picture_button(key, _title.get() or alt or "", caption))
            st.download_button(
                "CSV",
                data=lambda: csv_of(figure),
                file_name=f"{name}.csv",
                mime="text/csv",
                key=f"csv_{key}",
                type="tertiary",
                help="Download this chart's data as a table",
                on_click="ignore",
            )


def _picture_button(key: str, title: str, caption: str) -> str:
    """The download button. The script `picture_button.js` handles its clicks."""
    # Plotly parses the title and the caption as markup, but they contain external text.
    lines = {
        "picture": key,
        "title": wording.for_plotly(title, 120),
        "caption": wording.for_plotly(caption, 300),
    }
    data = " ".join(f"data-{name}='{html.escape(value)}'" for name, value in lines.items())
    return f"<button type='button' {data}>PNG</button>"
