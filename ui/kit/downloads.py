"""Convert the data of a chart to CSV. Pure."""

import csv
import io
from collections.abc import Iterator
from typing import Any, Final

import plotly.graph_objects as go

from ui.kit.charts import ZONE

_FORMULA: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""The first characters of a formula. Some spreadsheets also accept the full-width forms."""


def csv_of(figure: go.Figure) -> str:
    """A chart's points as CSV. Values are in base units. The header contains the time zone."""
    written = io.StringIO()
    lines = csv.writer(written)
    zone = (figure.layout.meta or {}).get(ZONE)
    time = "time" if zone is None else f"time in {zone}"
    lines.writerow(["series", _title(figure.layout.xaxis) or time, "value", "text"])
    for trace in figure.data:
        if isinstance(trace, go.Heatmap):
            lines.writerows(_grid(trace))
            continue
        if trace.name is None and trace.showlegend is False and _is_horizontal(trace) is False:
            continue  # for hover text only
        across, along = (trace.y, trace.x) if _is_horizontal(trace) else (trace.x, trace.y)
        if across is None or along is None:
            continue
        texts = trace.customdata if trace.customdata is not None else [None] * len(across)
        for x, y, text in zip(across, along, texts, strict=False):
            if y is not None:
                lines.writerow([cell(trace.name), cell(x), y, cell(text)])
    return written.getvalue()


def _grid(trace: go.Heatmap) -> Iterator[tuple[object, ...]]:
    names = trace.y if trace.meta is None else trace.meta
    for name, values, texts in zip(names, trace.z, trace.customdata, strict=True):
        for x, value, text in zip(trace.x, values, texts, strict=True):
            if value is not None:
                yield cell(name), cell(x), value, cell(text)


def _is_horizontal(trace: Any) -> bool:
    return getattr(trace, "orientation", None) == "h"


def _title(axis: Any) -> str | None:
    text: str | None = axis.title.text
    return text


def cell(value: Any) -> str:
    """Quote text that a spreadsheet would read as a formula, even after blanks.

    Source: OWASP, "CSV Injection".
    """
    text = "" if value is None else str(value)
    first = text.lstrip()[:1] or text[:1]
    return f"'{text}" if first in _FORMULA or text[:1] in ("\t", "\r", "\n") else text
