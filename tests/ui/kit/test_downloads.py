import csv
from zoneinfo import ZoneInfo

import plotly.graph_objects as go
import pytest

from telemetry.window import Window
from ui.kit import wording
from ui.kit.charts import over_time
from ui.kit.downloads import cell, csv_of


def test_each_point_is_a_line_with_its_label() -> None:
    figure = go.Figure(
        [
            go.Scatter(x=["2026-01-01", "2026-01-02"], y=[0.25, None], name="P50",
                       customdata=["250 ms", "–"]),
            go.Bar(y=["queue"], x=[1.5], orientation="h", showlegend=False),
            go.Scatter(x=[1], y=[2], showlegend=False),
        ]
    )  # fmt: skip
    assert list(csv.reader(csv_of(figure).splitlines())) == [
        ["series", "time", "value", "text"],
        ["P50", "2026-01-01", "0.25", "250 ms"],
        ["", "queue", "1.5", ""],
    ]


def test_a_heatmaps_table_has_one_line_per_cell() -> None:
    figure = go.Figure(
        go.Heatmap(
            x=["10:00", "10:01"],
            y=["000", "001"],
            z=[[1.0, None], [None, 2.0]],
            customdata=[["one", "–"], ["–", "two"]],
            meta=["r1", "=r2"],
        )
    )
    assert list(csv.reader(csv_of(figure).splitlines()))[1:] == [
        ["r1", "10:00", "1.0", "one"],
        ["'=r2", "10:01", "2.0", "two"],
    ]


@pytest.mark.parametrize(
    "text", ["=cmd|'/C calc'!A0", " =1+1", "\n=1+1", "\t=1+1", "+1", "-1+1", "@SUM(A1)", "＝1+1"]
)
def test_a_cell_that_begins_like_a_formula_is_text(text: str) -> None:
    """Spaces, line ends and full-width characters do not hide a formula."""
    assert cell(text) == f"'{text}"
    assert cell(f"a{text}") == f"a{text}"


def test_the_head_names_the_time_zone() -> None:
    """The times have no zone of their own, so the header names the zone."""
    figure = go.Figure([go.Scatter(x=["2026-01-01"], y=[0.25], name="P50")])
    drawn = over_time(figure, Window(0, 10**9), ZoneInfo("Europe/Berlin"), height=200)
    head, _ = csv.reader(csv_of(drawn).splitlines())
    assert head[1] == "time in Europe/Berlin, UTC+01:00"
    assert "UTC+01:00" in {each.text for each in drawn.layout.annotations}


def test_names_are_as_stored() -> None:
    """Charts escape external text, because Plotly parses markup. A table has no markup."""
    name = "<b>R&D</b> $x$"
    escaped = wording.for_plotly(name)
    figure = go.Figure(
        go.Scatter(x=[1], y=[0.2], name=escaped, customdata=[f"<b>{escaped}</b><br>KV < 1 %"])
    )
    assert list(csv.reader(csv_of(figure).splitlines()))[1:] == [
        [name, "1", "0.2", f"{name}; KV < 1 %"]
    ]
    formula = go.Figure(go.Scatter(x=[1], y=[0.2], name=wording.for_plotly("='a'&b")))
    assert list(csv.reader(csv_of(formula).splitlines()))[1][0] == "'='a'&b"


def test_rows_with_positions_have_the_names_on_the_axis() -> None:
    bars = go.Figure(go.Bar(y=[0, 1], x=[1.5, 2.5], orientation="h", name="DNS"))
    cells = go.Figure(
        go.Heatmap(x=["10:00"], y=[0, 1], z=[[0.5], [None]], customdata=[["1 failed"], ["–"]])
    )
    for figure in (bars, cells):
        figure.update_yaxes(tickvals=[0, 1], ticktext=["chat &amp; code", "chat &amp; code"])
    assert list(csv.reader(csv_of(bars).splitlines()))[1:] == [
        ["DNS", "chat & code", "1.5", ""],
        ["DNS", "chat & code", "2.5", ""],
    ]
    assert list(csv.reader(csv_of(cells).splitlines()))[1:] == [
        ["chat & code", "10:00", "0.5", "1 failed"]
    ]
