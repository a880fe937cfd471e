"""Draw a measure of all replicas over time, and export all measures as CSV. Pure."""

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Final

import numpy as np
import plotly.graph_objects as go

from telemetry.window import Window
from ui.kit import charts, colours, wording
from ui.kit.downloads import cell
from ui.kit.replica_measures import MEASURES, Measure
from ui.views.fleet.replicas import FleetReplicas, ReplicaRow
from ui.views.fleet.table import MAX_REPLICAS, top

ROW_PX: Final = 22


def side_by_side(fleet: FleetReplicas, measure: Measure, window: Window, zone: tzinfo) -> go.Figure:
    """Draw one measure over time, with a row per replica, in the order of the page's table."""
    shown = fleet.replicas[:MAX_REPLICAS]
    names = [wording.for_plotly(replica.name, 60) for replica in shown]
    rows = [f"{place:03d}" for place in range(len(shown))]
    values = [_line(replica, measure, fleet) for replica in shown]
    most = top(fleet, measure) or 1.0
    figure = go.Figure(
        go.Heatmap(
            z=values,
            x=charts.local(fleet.bins.middles_unix_ns, zone),
            y=rows,
            zmin=0,
            zmax=most,
            colorscale=[list(stop) for stop in colours.SCALE],
            xgap=0,
            ygap=2,
            meta=[wording.plain(replica.name, 200) for replica in shown],
            customdata=[
                [f"{name}: {measure.shown(value)}" for value in line]
                for name, line in zip(names, values, strict=True)
            ],
            hovertemplate="%{customdata}<br>%{x}<extra></extra>",
            hoverongaps=False,
            colorbar={
                "orientation": "h",
                "thickness": 8,
                "len": 0.4,
                "x": 1,
                "xanchor": "right",
                "y": 1,
                "yanchor": "bottom",
                "ypad": 4,
                "tickvals": [0, most],
                "ticktext": ["0", measure.shown(most)],
                "outlinewidth": 0,
            },
        )
    )
    figure = charts.over_time(figure, window, zone, height=98 + ROW_PX * max(1, len(shown)))
    figure.update_yaxes(
        autorange="reversed",
        showgrid=False,
        tickvals=rows,
        ticktext=[wording.for_plotly(replica.name, 14) for replica in shown],
        tickfont={"size": 11},
    )
    figure.update_layout(hovermode="closest", margin={**charts.MARGIN, "l": 104, "t": 42, "b": 48})
    return figure


def _line(replica: ReplicaRow, measure: Measure, fleet: FleetReplicas) -> list[float | None]:
    values = replica.over_time.get(measure.key)
    if values is None:
        return [None] * fleet.bins.count
    return [None if np.isnan(value) else value for value in values.tolist()]


def as_csv(replicas: Sequence[ReplicaRow], fleet: FleetReplicas) -> str:
    """All measures as CSV, with a row per replica and bin. Times are in UTC."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(["replica", "from_utc", "bin_s", *MEASURES])
    starts = fleet.bins.first_unix_ns + np.arange(fleet.bins.count) * fleet.bins.width_ns
    at = [datetime.fromtimestamp(int(each) / 1e9, UTC).isoformat() for each in starts]
    for replica in replicas:
        lines = [replica.over_time.get(key) for key in MEASURES]
        for place in range(fleet.bins.count):
            values = [np.nan if line is None else line[place] for line in lines]
            if np.isfinite(values).any():
                writer.writerow(
                    [
                        cell(replica.name),
                        at[place],
                        fleet.bins.width_s,
                        *("" if np.isnan(value) else repr(float(value)) for value in values),
                    ]
                )
    return written.getvalue()
