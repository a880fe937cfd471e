"""The data of a chart as a table. Pure."""

import csv
import io
from collections.abc import Iterator
from typing import Any, Final

import plotly.graph_objects as go

_FORMULA: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""The full-width ones begin a formula in spreadsheets of some languages."""


def csv_of(figure: go.Figure) -> str:
    """Return one line per point: series, place, value in base units, displayed text.

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
            continue  # invisible trace that only carries hover text
        across, along = (trace.y, trace.x) if _lying(trace) else (trace.x, trace.y)
        if across is None or along is None:
            continue
        told = trace.customdata if trace.customdata is not None else [None] * len(across)
        for x, y, said in zip(across, along, told, strict=False):
            if y is not None:
                lines.writerow([cell(trace.name), cell(x), y, cell(said)])
    return written.getvalue()


def _grid(trace: go.Heatmap) -> Iterator[tuple[object, ...]]:
    """Yield a line for each cell with a value; its series is the row's name."""
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
    """Quote text that begins like a formula, so that a spreadsheet reads it as text.

    Source: OWASP, "CSV Injection"; some spreadsheets ignore leading blanks.
    """
    text = "" if value is None else str(value)
    first = text.lstrip()[:1] or text[:1]
    return f"'{text}" if first in _FORMULA or text[:1] in ("\t", "\r", "\n") else text
