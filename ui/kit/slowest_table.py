"""The table of the slowest requests as a component: a row is chosen by its key.

Streamlit's own table chooses rows by place, which on a live page is another request's a
moment later. The script sets every text as text; nothing from a request is read as markup.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import streamlit as st

HERE: Final = Path(__file__).parent
KEY: Final = "slowest"


def show(
    rows: Sequence[dict[str, Any]],
    columns: Sequence[dict[str, Any]],
    selected: str,
    on_chosen: Callable[[str], None],
) -> None:
    """Draw the table.

    Args:
        rows: of slowest.shown_rows.
        columns: of slowest.shown_columns.
        selected: the key of the row that is open, or "".
        on_chosen: called with the key of a pressed row, or "" when it was open; the text
            comes from the browser and is as foreign as any.
    """
    if not rows:
        st.html("<p class='note'>No request in this range has this latency.</p>")
        return

    def chosen() -> None:
        on_chosen(str(st.session_state[KEY].get("chosen") or ""))

    component = st.components.v2.component(
        "tailspan.slowest",
        html="<div class='frame'><table></table></div>",
        css=(HERE / "slowest_table.css").read_text(),
        js=(HERE / "slowest_table.js").read_text(),
    )
    component(
        key=KEY,
        data={"columns": columns, "rows": rows, "selected": selected},
        on_chosen_change=chosen,
    )
