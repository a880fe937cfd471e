"""Take pictures of the dashboards, for readers without a Grafana.

    python -m rig.pictures docs/dashboards [--minutes 12] [--board tailspan-gpu]

The pictures are drawn from the panels' definitions. The results come from a Prometheus that scrapes
Tailspan and a simulated fleet with an incident.
"""

import argparse
import math
import shutil
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image
from plotly import graph_objects
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from dashboards.boards import BOARDS
from dashboards.panels import Board, GrafanaUnit, Panel, PanelKind
from rig.panel_queries import PanelAnswer, PanelSeries, answers
from rig.prometheus_stack import MonitoredTailspan, monitored_tailspan

WIDTH = 1400
BACKFILL_TAKES_S = 90
_HEIGHT = 250
_COLOURS = ("#3f7fd0", "#d07f2a", "#4f9a57", "#b0579b", "#7d838c", "#8c7350", "#29a3a3", "#c24a4a")
_NAMED = {"green": "#3f8f4f", "orange": "#d0811c", "red": "#c8242b"}

_PAGE = """<!doctype html><meta charset=utf-8><style>
body {{ margin: 0; padding: 14px; width: {width}px; background: #f4f5f5;
  font: 13px/1.35 "DejaVu Sans", sans-serif; color: #24292e; box-sizing: border-box }}
h1 {{ font-size: 19px; margin: 0 0 2px }} h2 {{ font-size: 14px; margin: 14px 0 6px }}
p {{ margin: 0; color: #55595f; font-size: 11.5px }}
.row {{ display: grid; grid-template-columns: repeat(24, 1fr); gap: 8px }}
.panel {{ background: #fff; border: 1px solid #dcdfe3; border-radius: 3px; padding: 8px 10px;
  min-width: 0; overflow: hidden }}
.title {{ font-weight: bold; margin-bottom: 2px }}
.number {{ font-size: 30px; font-weight: bold; margin: 8px 0 0 }}
.of {{ font-size: 12px; color: #55595f; font-weight: normal }}
</style><script>{script}</script>{body}"""


def _shown(value: float, unit: GrafanaUnit) -> str:
    if unit is GrafanaUnit.SHARE:
        return f"{value * 100:.1f} %"
    if unit is GrafanaUnit.SECONDS:
        return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"
    if unit is GrafanaUnit.USD:
        return f"${value:,.2f}" if value >= 1 else f"${value:.3g}"
    words = {
        GrafanaUnit.REQUESTS_PER_S: "req/s",
        GrafanaUnit.PER_S: "/s",
        GrafanaUnit.NUMBER: "",
        GrafanaUnit.WATTS: "W",
        GrafanaUnit.JOULES: "J",
    }
    return f"{value:.3g} {words.get(unit, str(unit))}"


def _number(panel: Panel, found: list[PanelAnswer]) -> str:
    lines = []
    for series in (series for answer in found for series in answer.series):
        value = series.values[-1][1]
        reached = [each.colour for each in panel.thresholds if value >= each.value]
        colour = _NAMED[reached[-1]] if reached else "#24292e"
        lines.append(
            f'<div class=number style="color:{colour}">{_shown(value, panel.unit)}'
            f" <span class=of>{escape(series.legend)}</span></div>"
        )
    return "".join(lines)


def _axis(panel: Panel) -> dict[str, Any]:
    words = {GrafanaUnit.SECONDS: "s", GrafanaUnit.SHARE: ".0%"}
    axis: dict[str, Any] = {"rangemode": "tozero", "gridcolor": "#ebedf0", "nticks": 5}
    if panel.unit is GrafanaUnit.SHARE:
        axis["tickformat"] = words[GrafanaUnit.SHARE]
    elif panel.unit is GrafanaUnit.SECONDS:
        axis["ticksuffix"] = " s"
    elif panel.unit is GrafanaUnit.USD:
        axis["tickprefix"] = "$"
    elif panel.unit in (
        GrafanaUnit.WATTS,
        GrafanaUnit.JOULES,
        GrafanaUnit.HERTZ,
        GrafanaUnit.BYTES_PER_S,
    ):
        words = {
            GrafanaUnit.WATTS: " W",
            GrafanaUnit.JOULES: " J",
            GrafanaUnit.HERTZ: "Hz",
            GrafanaUnit.BYTES_PER_S: "B/s",
        }
        axis["ticksuffix"] = words[panel.unit]
    if panel.most is not None:
        axis["range"] = [0, panel.most * 1.02]
    return axis


def _traces(panel: Panel, series: list[PanelSeries]) -> list[Any]:
    stacked = panel.kind is PanelKind.STACKED
    place_of = {legend: place for place, legend in enumerate(panel.colours)}
    ordered = sorted(series, key=lambda each: (place_of.get(each.legend, 99), each.legend))
    traces = []
    for place, each in enumerate(ordered):
        colour = panel.colours.get(each.legend, _COLOURS[place % len(_COLOURS)])
        colour = _NAMED.get(colour, colour)
        traces.append(
            graph_objects.Scatter(
                x=[datetime.fromtimestamp(at, UTC) for at, _ in each.values],
                y=[value if math.isfinite(value) else None for _, value in each.values],
                name=each.legend,
                mode="lines",
                line={"width": 0.5 if stacked else 1.6, "color": colour},
                stackgroup="all" if stacked else None,
                fillcolor=colour if stacked else None,
            )
        )
    return traces


def _heat(found: PanelAnswer) -> list[Any]:
    rows = sorted(found.series, key=lambda each: float(each.labels["le"]))
    instants = sorted({at for each in rows for at, _ in each.values})
    below = dict.fromkeys(instants, 0.0)
    bounds, cells = [], []
    for each in rows:
        values = dict(each.values)
        bounds.append(each.labels["le"])
        cells.append([max(0.0, values.get(at, 0.0) - below[at]) or None for at in instants])
        below.update(values)
    used = [place for place, row in enumerate(cells) if any(row)]
    kept = slice(used[0], used[-1] + 1)
    return [
        graph_objects.Heatmap(
            x=[datetime.fromtimestamp(at, UTC) for at in instants],
            y=[f"≤ {float(bound):g} s" for bound in bounds[kept]],
            z=cells[kept],
            colorscale="Blues",
            colorbar={"title": "req/s", "thickness": 10},
        )
    ]


def _drawing(panel: Panel, found: list[PanelAnswer]) -> str:
    if panel.kind is PanelKind.NUMBER:
        return _number(panel, found)
    series = [each for answer in found for each in answer.series]
    heat = panel.kind is PanelKind.HEATMAP
    figure = graph_objects.Figure(_heat(found[0]) if heat else _traces(panel, series))
    top = max((value for each in series for _, value in each.values), default=0.0)
    for threshold in panel.thresholds[1:]:
        # Do not draw a threshold that is far above the values, because the curves would look flat.
        if not heat and threshold.value <= 1.5 * top:
            figure.add_hline(
                threshold.value, line={"color": _NAMED[threshold.colour], "dash": "dash"}
            )
    figure.update_layout(
        height=_HEIGHT,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        paper_bgcolor="#fff",
        plot_bgcolor="#fff",
        font={"size": 11},
        showlegend=not heat,
        legend={"orientation": "h", "y": -0.12, "font": {"size": 10}},
        yaxis={"automargin": True} if heat else {**_axis(panel), "automargin": True},
        xaxis={"gridcolor": "#ebedf0", "automargin": True, "tickformat": "%H:%M"},
    )
    html: str = to_html(
        figure, include_plotlyjs=False, full_html=False, config={"staticPlot": True}
    )
    return html


def page(here: MonitoredTailspan, board: Board, range_s: int) -> str:
    """A dashboard as an HTML page."""
    found: dict[str, list[PanelAnswer]] = {}
    for answer in answers(here, board, range_s):
        found.setdefault(answer.panel.title, []).append(answer)
    body = [f"<h1>{escape(board.title)}</h1><p>{escape(board.description)} Simulated data.</p>"]
    for row in board.rows:
        body.append(f"<h2>{escape(row.title)}</h2><div class=row>")
        body += [
            f'<div class=panel style="grid-column: span {panel.width}">'
            f"<div class=title>{escape(panel.title)}</div><p>{escape(panel.description)}</p>"
            f"{_drawing(panel, found[panel.title])}</div>"
            for panel in row.panels
        ]
        body.append("</div>")
    return _PAGE.format(width=WIDTH, script=get_plotlyjs(), body="".join(body))


def _height(board: Board) -> int:
    height = 70
    for row in board.rows:
        height += 45
        used = tallest = 0
        for panel in row.panels:
            if used + panel.width > 24:
                height += tallest + 8
                used = tallest = 0
            lines = 1 + len(panel.description) * 7 // (panel.width * WIDTH // 24)
            drawn = 55 if panel.kind is PanelKind.NUMBER else _HEIGHT
            tallest = max(tallest, drawn + 40 + 16 * lines)
            used += panel.width
        height += tallest
    return height


def picture(here: MonitoredTailspan, board: Board, folder: Path, range_s: int) -> Path:
    """Take a picture of a dashboard."""
    chromium = shutil.which("chromium")
    assert chromium is not None, "there is no chromium; install it with: apt-get install chromium"
    file = folder / f"{board.uid.removeprefix('tailspan-')}.png"
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "page.html"
        source.write_text(page(here, board, range_s))
        subprocess.run(
            [
                chromium,
                *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *(f"--user-data-dir={scratch}/profile", "--virtual-time-budget=8000"),
                f"--window-size={WIDTH},{_height(board)}",
                *(f"--screenshot={file.resolve()}", source.as_uri()),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
    with Image.open(file) as taken:
        taken.quantize(200).save(file, optimize=True)
    return file


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=int, default=12)
    parser.add_argument("--board", choices=[board.uid for board in BOARDS], action="append")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, monitored_tailspan(Path(scratch), 5.0) as here:
        fleet = ("--replicas", "3")
        here.simulate("--backfill", "6m", "--incident", "none", *fleet)
        time.sleep(arguments.minutes * 30)
        here.end_simulation()
        here.simulate("--backfill", "0", "--seed", "5", "--severity", "1.5", *fleet)
        time.sleep(arguments.minutes * 30)
        for board in BOARDS:
            if board.uid not in (arguments.board or [board.uid]):
                continue
            # Omit the first seconds, in which the whole simulated past arrives.
            print(picture(here, board, arguments.folder, arguments.minutes * 60 - BACKFILL_TAKES_S))


if __name__ == "__main__":
    main()
