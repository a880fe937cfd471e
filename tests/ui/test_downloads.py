"""What a chart shows, as a table."""

import csv

import plotly.graph_objects as go

from ui.downloads import csv_of


def test_each_point_is_a_line_with_what_is_told_of_it() -> None:
    """Gaps are left out; what lies on its side is turned."""
    figure = go.Figure(
        [
            go.Scatter(x=["2026-01-01", "2026-01-02"], y=[0.25, None], name="P50",
                       customdata=["250 ms", "–"]),
            go.Bar(y=["queue"], x=[1.5], orientation="h", showlegend=False),
            go.Scatter(x=[1], y=[2], showlegend=False),
        ]
    )  # fmt: skip
    assert list(csv.reader(csv_of(figure).splitlines())) == [
        ["series", "time", "value", "told"],
        ["P50", "2026-01-01", "0.25", "250 ms"],
        ["", "queue", "1.5", ""],
    ]


def test_no_cell_is_a_formula() -> None:
    """A replica's name is foreign text, and spreadsheets run what begins with these."""
    names = ["=1+1", "+x", "-x", "@x", "fine"]
    figure = go.Figure([go.Bar(x=["a"], y=[1.0], name=name) for name in names])
    lines = list(csv.reader(csv_of(figure).splitlines()))[1:]
    assert [line[0] for line in lines] == ["'=1+1", "'+x", "'-x", "'@x", "fine"]
