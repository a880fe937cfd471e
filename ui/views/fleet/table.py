"""The table of replicas. Its script sets content as text, not as markup."""

from collections.abc import Callable, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any, Final

import numpy as np
import streamlit as st

from analysis.over_time.columns import FloatArray
from ui.kit import wording
from ui.kit.replica_measures import MEASURES, Measure
from ui.kit.terms import TERMS
from ui.views.fleet.replicas import FleetReplicas, ReplicaRow

FOLDER: Final = Path(__file__).parent
MAX_REPLICAS: Final = 50
_RANK: Final = {
    "queue": 1,
    "running": 3,
    "kv": 2,
    "hits": 3,
    "preemptions": 4,
    "step": 2,
    "tokens": 3,
    "stall": 4,
    "bandwidth": 3,
    "clock": 4,
}
"""The rank of each column. Narrow pages omit columns with a high rank."""


def show(
    fleet: FleetReplicas,
    href: Callable[[ReplicaRow], str],
    zone: tzinfo,
    *,
    has_gpus: bool,
) -> None:
    """Draw the first `MAX_REPLICAS` replicas."""
    component = st.components.v2.component(
        "tailspan.fleet",
        html="<div class='frame'><table></table></div>",
        css=(FOLDER / "table.css").read_text(),
        js=(FOLDER / "table.js").read_text(),
    )
    data = {
        "columns": columns(has_gpus=has_gpus),
        "rows": rows(fleet, href, zone),
    }
    component(key="fleet", data=data)


def columns(*, has_gpus: bool) -> list[dict[str, Any]]:
    """The column headers."""
    return [
        {
            "name": "name",
            "title": "Replica",
            "help": "The link opens the replica's requests.",
            "rank": 1,
        },
        {
            "name": "problem",
            "title": "Problems",
            "help": "Problems of the replica. Hover over a problem to see its number.",
            "rank": 1,
        },
        {
            "name": "ttft",
            "title": "TTFT",
            "unit": "P99",
            "number": True,
            "rank": 1,
            "help": TERMS["ttft_s"],
        },
        *(
            {
                "name": key,
                "title": MEASURES[key].name,
                "unit": MEASURES[key].unit,
                "help": f"{MEASURES[key].meaning} each time bin of the chart.",
                "number": True,
                "rank": rank,
            }
            for key, rank in _RANK.items()
            if has_gpus or not MEASURES[key].of_gpu
        ),
        {
            "name": "since",
            "title": "Up since",
            "number": True,
            "rank": 4,
            "help": "The time of the replica's last start.",
        },
    ]


def rows(
    fleet: FleetReplicas, href: Callable[[ReplicaRow], str], zone: tzinfo
) -> list[dict[str, Any]]:
    """A row for each replica, with texts, and lines with values from 0 to 1.

    All lines of a measure have the same scale.
    """
    shown = fleet.replicas[:MAX_REPLICAS]
    tops = {key: top(fleet, measure) for key, measure in MEASURES.items()}
    end_unix_ns = fleet.bins.first_unix_ns + fleet.bins.count * fleet.bins.width_ns - 1
    return [
        {
            "name": {
                "text": wording.plain(replica.name, 24),
                "title": wording.plain(replica.name, 200),
                "href": href(replica),
            },
            "problem": [
                {"what": problem.what, "why": wording.plain(problem.why, 400)}
                for problem in replica.problems
            ],
            "ttft": _ttft(replica),
            "since": _start_cell(replica, zone, end_unix_ns),
            **{key: _cell(replica, MEASURES[key], tops[key]) for key in _RANK},
        }
        for replica in shown
    ]


def top(fleet: FleetReplicas, measure: Measure) -> float:
    """The top of a measure's scale. It is 100 %, or the maximum over all replicas."""
    if measure.whole is not None:
        return measure.whole
    known = [
        float(np.nanmax(values))
        for replica in fleet.replicas
        if (values := replica.over_time.get(measure.key)) is not None and np.isfinite(values).any()
    ]
    return max(known, default=0.0)


def _cell(replica: ReplicaRow, measure: Measure, most: float) -> dict[str, Any]:
    value = replica.whole.get(measure.key)
    line = replica.over_time.get(measure.key)
    title = f"{measure.name}: {measure.shown(value)}"
    cell: dict[str, Any] = {"text": measure.shown(value), "title": title}
    if measure.key == "step":
        cell["small"] = f"max {wording.seconds(replica.whole.get('longest'))}"
        cell["title"] = f"{title} mean, the longest {wording.seconds(replica.whole.get('longest'))}"
    if measure.key == "clock" and replica.facts.held_back:
        reasons = ", ".join(each.replace("_", " ") for each in replica.facts.reasons)
        cell["title"] = f"{title}; throttled by {wording.plain(reasons, 200)}"
    if line is not None and np.isfinite(line).any():
        cell["line"] = _scaled(line, most)
    return cell


def _scaled(line: FloatArray, most: float) -> Sequence[float | None]:
    share = np.clip(line / most if most > 0 else np.where(np.isnan(line), np.nan, 0.0), 0.0, 1.0)
    return [None if np.isnan(value) else round(value, 3) for value in share.tolist()]


def _ttft(replica: ReplicaRow) -> dict[str, Any]:
    traffic = replica.traffic
    if traffic is None:
        return {"text": wording.UNKNOWN, "title": "No request in this range."}
    between = (
        "too few requests for a 95 % interval"
        if traffic.low_s is None
        else f"[{wording.seconds(traffic.low_s)} to {wording.seconds(traffic.high_s)}]"
    )
    return {
        "text": wording.seconds(traffic.p99_s),
        "small": f"n {wording.count(traffic.requests)}",
        "title": f"{wording.counted(traffic.requests, 'request')} with a TTFT, {between}",
    }


def _start_cell(replica: ReplicaRow, zone: tzinfo, end_unix_ns: int) -> dict[str, Any]:
    began = replica.facts.began_unix_ns
    if began is None:
        return {"text": wording.UNKNOWN, "title": "Not reported."}
    cell = {
        # The column has space for a time or a date. The title has both.
        "text": wording.clock_or_date(began, zone, end_unix_ns)[:10],
        "title": f"since {wording.clock(began, zone, date=True)}",
    }
    if replica.facts.restarts:
        cell["small"] = f"{len(replica.facts.restarts)}× restarted"
    return cell
