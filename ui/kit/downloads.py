"""What a chart shows as a table. Pure."""

import csv
import io
from collections.abc import Iterator
from typing import Any, Final

import plotly.graph_objects as go

_FORMULA: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""Those of full width begin a formula in some languages' spreadsheets."""


def csv_of(figure: go.Figure) -> str:
    """A line for each point that is drawn: its series, where, how much in base units, as told.

    Times are the reader's wall clock, as on the chart's axis.
    """
    written = io.StringIO()
    lines = csv.writer(written)
    lines.writerow(["series", _title(figure.layout.xaxis) or "time", "value", "told"])
    for trace in figure.data:
        if isinstance(trace, go.Heatmap):
            lines.writerows(_grid(trace))
            continue
        if trace.name is None and trace.showlegend is False and _lying(trace) is False:
            continue  # it only carries what is told when pointed at
        across, along = (trace.y, trace.x) if _lying(trace) else (trace.x, trace.y)
        if across is None or along is None:
            continue
        told = trace.customdata if trace.customdata is not None else [None] * len(across)
        for x, y, said in zip(across, along, told, strict=False):
            if y is not None:
                lines.writerow([cell(trace.name), cell(x), y, cell(said)])
    return written.getvalue()


def _grid(trace: go.Heatmap) -> Iterator[tuple[object, ...]]:
    """A line for each cell of which something is known; its series is the row's own name."""
    names = trace.y if trace.meta is None else trace.meta
    for name, values, told in zip(names, trace.z, trace.customdata, strict=True):
        for x, value, said in zip(trace.x, values, told, strict=True):
            if value is not None:
                yield cell(name), cell(x), value, cell(said)


def _lying(trace: Any) -> bool:
    return getattr(trace, "orientation", None) == "h"


def _title(axis: Any) -> str | None:
    text: str | None = axis.title.text
    return text


def cell(value: Any) -> str:
    """Text that a spreadsheet reads as text: what begins as a formula does is quoted.

    Source: OWASP, "CSV Injection"; blanks before are left out by some spreadsheets.
    """
    text = "" if value is None else str(value)
    first = text.lstrip()[:1] or text[:1]
    return f"'{text}" if first in _FORMULA or text[:1] in ("\t", "\r", "\n") else text
