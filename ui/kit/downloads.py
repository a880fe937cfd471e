"""Convert the data of a chart to CSV. Pure."""

import csv
import html
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import plotly.graph_objects as go

from ui.kit.charts import ZONE

_FORMULA: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""The first characters of a formula. Some spreadsheets also accept the full-width forms."""
_TAG: Final = re.compile(r"</?[a-z][^<>]*>")


def csv_of(figure: go.Figure) -> str:
    """A chart's points as CSV. Values are in base units. The header contains the time zone."""
    written = io.StringIO()
    lines = csv.writer(written)
    zone = (figure.layout.meta or {}).get(ZONE)
    time = "time" if zone is None else f"time in {zone}"
    lines.writerow(["series", _title(figure.layout.xaxis) or time, "value", "text"])
    names = _tick_names(figure.layout.yaxis)
    for trace in figure.data:
        if isinstance(trace, go.Heatmap):
            lines.writerows(_grid(trace, names))
            continue
        if trace.name is None and trace.showlegend is False and _is_horizontal(trace) is False:
            continue  # for hover text only
        across, along = (trace.y, trace.x) if _is_horizontal(trace) else (trace.x, trace.y)
        if across is None or along is None:
            continue
        texts = trace.customdata if trace.customdata is not None else [None] * len(across)
        for x, y, text in zip(across, along, texts, strict=False):
            if y is not None:
                place = names.get(x, x) if _is_horizontal(trace) else x
                lines.writerow([_text(trace.name), _text(place), y, _text(text)])
    return written.getvalue()


def _grid(trace: go.Heatmap, names: Mapping[Any, str]) -> Iterator[tuple[object, ...]]:
    rows = [names.get(y, y) for y in trace.y] if trace.meta is None else trace.meta
    for name, values, texts in zip(rows, trace.z, trace.customdata, strict=True):
        series = _text(name) if trace.meta is None else cell(name)
        for x, value, text in zip(trace.x, values, texts, strict=True):
            if value is not None:
                yield series, cell(x), value, _text(text)


def _is_horizontal(trace: Any) -> bool:
    return getattr(trace, "orientation", None) == "h"


def _title(axis: Any) -> str | None:
    text: str | None = axis.title.text
    return text


def _tick_names(axis: Any) -> Mapping[Any, str]:
    """The names of an axis whose positions are numbers, because two rows may have the same name."""
    if axis.tickvals is None or axis.ticktext is None:
        return {}
    return dict(zip(axis.tickvals, axis.ticktext, strict=True))


def _text(markup: Any) -> str:
    """A cell with the text of Plotly's markup, in which external text is escaped."""
    if not isinstance(markup, str):
        return cell(markup)
    return cell(html.unescape(_TAG.sub("", markup.replace("<br>", "; "))))


def cell(value: Any) -> str:
    """Quote text that a spreadsheet would read as a formula, even after blanks.

    Source: OWASP, "CSV Injection".
    """
    text = "" if value is None else str(value)
    first = text.lstrip()[:1] or text[:1]
    return f"'{text}" if first in _FORMULA or text[:1] in ("\t", "\r", "\n") else text
