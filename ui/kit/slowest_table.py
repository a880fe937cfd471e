"""The table of the slowest requests. Its script sets content as text, never as markup."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import streamlit as st

from ui.kit.sections import paragraph

FOLDER: Final = Path(__file__).parent


def show(rows: Sequence[dict[str, Any]], columns: Sequence[dict[str, Any]]) -> None:
    """Draw rows from `slowest.shown_rows` and columns from `slowest.shown_columns`."""
    if not rows:
        paragraph("No request in this range has this latency. Choose another latency or range.")
        return
    component = st.components.v2.component(
        "tailspan.slowest",
        html="<div class='frame'><table></table></div>",
        css=(FOLDER / "slowest_table.css").read_text(),
        js=(FOLDER / "slowest_table.js").read_text(),
    )
    component(key="slowest", data={"columns": columns, "rows": rows})
