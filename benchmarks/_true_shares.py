"""Compute the true share of each fault from recordings with and without the fault.

Four windows are recorded one after another on one server, with the same seeds each time: one
without a fault, one with each of the two faults alone, and one with both faults. The share of a
fault A beside a fault B is the Shapley value of A: the mean of two increases of the latency. The
first increase is the increase with A alone. The second increase is the increase with both faults
minus the increase with B alone.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rig.faults.combined_faults import AND
from rig.faults.evaluation import NO_INCIDENT, ExplanationResult
from store.columns.request_columns import request_columns
from store.database import open_database
from store.queries import Window


def true_shares(case: Path, of: ExplanationResult) -> tuple[float, ...] | None:
    """Return the true share of each injected cause; None if a window is missing, or if the latency
    of the slow requests did not grow.

    Args:
        case: the folder of the fault's recording. The folders of the other recordings are beside
            it.
    """
    truth = json.loads((case / "truth.json").read_text())
    windows = _windows_of(case, truth)
    if of.tail_share is None or not {NO_INCIDENT, *of.causes} <= set(windows):
        return None

    def tail_s(window: Mapping[str, Any]) -> float:
        return _tail_s(case / "tailspan.db", window, f"{of.metric}_s", of.tail_share or 1.0)

    whole_s, usual_s = tail_s(truth["window"]), tail_s(truth["baseline"])
    none_s = tail_s(windows[NO_INCIDENT])
    if not whole_s > usual_s:
        return None
    if len(of.causes) == 1:
        added_s = [whole_s - none_s]
    else:
        alone_s = [tail_s(windows[cause]) for cause in of.causes]
        first_s = (alone_s[0] - none_s + whole_s - alone_s[1]) / 2
        added_s = [first_s, whole_s - none_s - first_s]
    return tuple(each / (whole_s - usual_s) for each in added_s)


def _windows_of(case: Path, truth: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found = {}
    for file in case.parent.glob("*/truth.json"):
        other = json.loads(file.read_text())
        if other["baseline"] == truth["baseline"] and AND not in other["cause"]:
            found[other["cause"]] = other["window"]
    return found


def _tail_s(database: Path, window: Mapping[str, Any], column: str, share: float) -> float:
    engine = open_database(f"sqlite:///{database}")
    try:
        span = Window(round(window["begun_s"] * 1e9), round(window["ended_s"] * 1e9))
        latency_s = request_columns(engine, span, [column])[column].to_numpy()
    finally:
        engine.dispose()
    known = np.sort(latency_s[np.isfinite(latency_s)])
    return float(known[-max(1, int(np.ceil(share * known.size))) :].mean())
