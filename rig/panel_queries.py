"""Run the queries of dashboard panels on a Prometheus server. Variables are replaced as in
Grafana."""

import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from dashboards.annotations import SHOWN, annotations
from dashboards.panels import Board, Panel, PanelKind, PanelQuery
from dashboards.variables import VARIABLES
from rig.prometheus_stack import MonitoredTailspan


class PanelSeries(NamedTuple):
    """One series in the result of a panel's query."""

    legend: str
    labels: dict[str, str]
    values: list[tuple[float, float]]


class PanelAnswer(NamedTuple):
    """The result of a panel's query."""

    panel: Panel
    query: PanelQuery
    expr: str
    series: list[PanelSeries]


def answers(
    here: MonitoredTailspan, board: Board, range_s: int, *, one: bool = False
) -> list[PanelAnswer]:
    """The results of all panels' queries over the last `range_s` seconds.

    If `one` is set, each dashboard variable has only its first value. If not, it has all values.
    """
    values = _values(here, board, one)
    end = time.time()
    start = end - range_s
    step_s = max(here.scrape_s, range_s / 300)
    # Grafana's formula is max(step + scrape interval, 4 × scrape interval).
    interval_s = max(step_s + here.scrape_s, 4 * here.scrape_s)
    built_in = {"__rate_interval": f"{round(interval_s * 1000)}ms", "__range": f"{range_s}s"}
    found = []
    for panel in board.panels:
        for query in panel.queries:
            expr = _filled(query.expr, {**values, **built_in})
            if panel.kind is PanelKind.NUMBER:
                data = here.ask("query", query=expr, time=end)
            else:
                data = here.ask("query_range", query=expr, start=start, end=end, step=step_s)
            found.append(PanelAnswer(panel, query, expr, _series(query, data)))
    return found


def marked(
    here: MonitoredTailspan, board: Board, shown: str = SHOWN
) -> dict[str, list[dict[str, str]]]:
    """For each kind of annotation, the labels of a dashboard's current marks.

    Args:
        shown: how long a dashboard shows the mark of a deploy, as a PromQL duration.
    """
    values = _values(here, board, one=False)
    return {
        each.name: [
            found["metric"]
            for found in here.ask(
                "query",
                query=_filled(each.expr, values).replace(f"offset {SHOWN}", f"offset {shown}"),
            )["result"]
        ]
        for each in annotations(board)
    }


def _values(here: MonitoredTailspan, board: Board, one: bool) -> dict[str, str]:
    """The value of each variable. If `one` is set, only the first value is used."""
    values: dict[str, str] = {}
    for name in board.variables:
        variable = re.fullmatch(r"label_values\((.*), (\w+)\)", VARIABLES[name].query)
        assert variable is not None, VARIABLES[name].query
        matcher = _filled(variable[1], values)
        found = here.ask(f"label/{variable[2]}/values", **{"match[]": matcher})
        assert found, f"variable without values: {name}"
        if one:
            values[name] = re.escape(found[0])
        else:
            all_ = "(" + "|".join(map(re.escape, found)) + ")"
            values[name] = all_ if name == "replica" else ".*"
    return values


def _filled(text: str, values: dict[str, str]) -> str:
    # In a PromQL string, a backslash is written as two backslashes.
    return re.sub(r"\$(\w+)", lambda match: values[match[1]].replace("\\", "\\\\"), text)


def _series(query: PanelQuery, data: dict[str, Any]) -> list[PanelSeries]:
    found = []
    for each in data["result"]:
        labels: dict[str, str] = each["metric"]
        legend = _legend(query.legend, labels)
        found.append(PanelSeries(legend, labels, [*_points(each)]))
    return found


def _points(series: dict[str, Any]) -> Iterator[tuple[float, float]]:
    """The values of a series. For a native histogram, the values are its counts."""
    for at, value in series.get("values", ()) or ([series["value"]] if "value" in series else ()):
        yield at, float(value)
    for at, histogram in series.get("histograms", ()):
        yield at, float(histogram["count"])


def _legend(written: str, labels: dict[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), written).strip()
