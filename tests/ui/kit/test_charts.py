import json
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.over_time import engine_gauges as engines
from analysis.over_time import percentiles, phases, time_bins
from analysis.over_time.columns import floats, instants
from store.database import open_database
from store.queries import request_table
from telemetry.window import Window
from tests.ui.conftest import make_fleet
from ui.kit import charts, colours
from ui.views.requests import charts as request_charts

START = 1_763_600_000 * 10**9
HOUR = Window(START, START + 3600 * 10**9)


@pytest.fixture(scope="module")
def fleet_table(stored_rows: Callable[..., Path]) -> pa.Table:
    engine = open_database(f"sqlite:///{stored_rows(make_fleet(6000, START, 3600)[0], [])}")
    table = request_table(engine, Window(0, 2**63 - 1))
    engine.dispose()
    return table


def over_time(table: pa.Table) -> list[Any]:
    bins = time_bins.choose(HOUR.from_unix_ns, HOUR.to_unix_ns, table.num_rows)
    index = bins.index(instants(table, "received_unix_ns"))
    found = percentiles.per_bin(floats(table, "ttft_s"), index, bins.count)
    means, number = phases.mean_per_bin(phases.layers(table), index, bins.count)
    return [
        charts.percentiles(found, bins, HOUR, UTC, colours.LIGHT, "TTFT"),
        request_charts.phases(means, number, bins, HOUR, UTC),
    ]


def test_charts_over_time_share_one_axis(fleet_table: pa.Table) -> None:
    empty = engines.gauges_of(
        pa.table(
            {
                name: pa.array([], pa.string() if name == "replica" else pa.float64())
                for name in engines.COLUMNS
            }
        ),
        HOUR.from_unix_ns,
        HOUR.to_unix_ns,
    )
    figures = [*over_time(fleet_table), request_charts.engines(empty, HOUR, UTC)]
    assert len({figure.layout.margin.to_json() for figure in figures}) == 1
    assert len({tuple(figure.layout.xaxis.range) for figure in figures}) == 1
    assert not any(figure.layout.yaxis.automargin for figure in figures)


def test_no_hour_is_drawn_twice_when_daylight_saving_time_ends() -> None:
    """On 2026-10-25, 02:30 occurs twice in Berlin. The axis has the offset at the end of the
    range."""
    end = 1_792_893_600  # 2026-10-25 02:00 UTC
    window = Window((end - 7200) * 10**9, end * 10**9)
    zone = charts.axis_zone(ZoneInfo("Europe/Berlin"), window)
    hours = charts.local([(end - each) * 10**9 for each in (7200, 3600, 0)], zone)
    assert [f"{each:%H:%M}" for each in hours] == ["01:00", "02:00", "03:00"]
    figure = charts.over_time(go.Figure(), window, zone, 100)
    assert figure.layout.meta[charts.ZONE] == "Europe/Berlin, UTC+01:00"


def test_each_phase_is_drawn_in_its_colour(fleet_table: pa.Table) -> None:
    _, stacked = over_time(fleet_table)
    drawn = {trace.name: trace.marker.color for trace in stacked.data if trace.type == "bar"}
    expected = {layer.name: layer.colour for layer in phases.LAYERS if layer.name != "not split"}
    assert drawn == expected
    assert list(drawn) == list(expected)


def test_the_stack_is_as_high_as_the_mean(fleet_table: pa.Table) -> None:
    _, stacked = over_time(fleet_table)
    bars = [t for t in stacked.data if t.type == "bar"]
    total = np.sum([[value or 0.0 for value in bar.y] for bar in bars], axis=0)
    bins = time_bins.choose(HOUR.from_unix_ns, HOUR.to_unix_ns, 6000)
    index = bins.index(instants(fleet_table, "received_unix_ns"))
    e2e = floats(fleet_table, "e2e_s")
    expected = [e2e[index == b].mean() for b in range(bins.count) if (index == b).any()]
    assert total[total > 0] == pytest.approx(expected, rel=1e-6)


def test_figures_hold_no_nan(fleet_table: pa.Table) -> None:
    """JSON does not support NaN."""
    for figure in over_time(fleet_table):
        json.loads(figure.to_json(), parse_constant=pytest.fail)


def test_isolated_points_are_drawn_as_markers() -> None:
    """Markers at all points would triple the drawing time."""
    bins = time_bins.bins_of_width(START, START + 5 * 60 * 10**9, 60 * 10**9)
    for values_s, lone in (
        ([1.0, 2.0, 1.5, 1.0, 2.0], []),
        ([1.0, np.nan, 1.5, np.nan, 2.0], [0, 2, 4]),
        ([1.0, 2.0, np.nan, 1.5, np.nan], [3]),
    ):
        line = np.array(values_s)
        found = percentiles.Percentiles(
            np.full(5, 500),
            {
                name: percentiles.PercentileSeries(q, line, line, line)
                for name, q in percentiles.QUANTILES.items()
            },
        )
        figure = charts.percentiles(found, bins, HOUR, UTC, colours.LIGHT, "TTFT")
        for trace in figure.data[:3]:
            sizes = trace.marker.size if "markers" in trace.mode else [0] * 5
            assert [place for place, size in enumerate(sizes) if size] == lone
        assert {trace.mode for trace in figure.data[:3]} == {"lines+markers" if lone else "lines"}
        assert figure.data[3].mode == "lines"


def test_an_empty_chart_is_still_a_figure(request_rows: Callable[..., pa.Table]) -> None:
    for figure in over_time(request_rows([])):
        json.loads(figure.to_json(), parse_constant=pytest.fail)


def test_latencies_of_zero_do_not_break_the_logarithm(
    request_rows: Callable[..., pa.Table], one_request: Callable[..., Any]
) -> None:
    rows = [one_request(i, ttft_s=0.0, received_unix_ns=START + i * 10**6) for i in range(500)]
    figure, _ = over_time(request_rows(rows))
    assert np.isfinite(figure.layout.yaxis.range).all()


@given(st.floats(1e-7, 1e6), st.floats(1, 1e6))
def test_log_ticks_enclose_the_values(smallest: float, factor: float) -> None:
    ticks = charts.log_ticks(smallest, smallest * factor)
    assert ticks == sorted(ticks)
    assert 2 <= len(ticks) <= 10
    assert ticks[0] <= smallest * (1 + 1e-9)
    assert ticks[-1] >= smallest * factor * (1 - 1e-9)


@given(st.floats(1e-6, 1e6))
def test_linear_ticks_reach_from_zero_to_near_the_top(largest: float) -> None:
    ticks = charts.linear_ticks(largest)
    assert ticks[0] == 0
    assert 2 <= len(ticks) <= 6
    assert largest * 0.5 <= ticks[-1] <= largest * 1.001


def test_a_hostile_engine_name_is_text_in_its_chart() -> None:
    """Plotly interprets tags, links and TeX in names."""
    name = '<a href="javascript:alert(1)">x</a>$\\frac$' + "z" * 10_000
    table = pa.table(
        {
            "replica": [name], "engine": [0], "at_unix_ns": [START],
            "waiting": [1], "running": [1], "kv_usage_ratio": [0.5],
        }
    )  # fmt: skip
    gauges = engines.gauges_of(table, HOUR.from_unix_ns, HOUR.to_unix_ns)
    sent = request_charts.engines(gauges, HOUR, UTC).to_json()
    assert "<a" not in sent
    assert "\\u003ca" not in sent
    assert "$" not in sent
    assert len(sent) < 60_000


def test_times_are_drawn_in_the_readers_zone() -> None:
    """Plotly has no time zones, so the times are converted before they are drawn."""
    (shown,) = charts.local([START], ZoneInfo("Asia/Kolkata"))
    assert (shown.isoformat(), shown.tzinfo) == ("2025-11-20T06:23:20", None)
