"""Compute the true share of each fault from recordings with and without the fault.

Four kinds of windows are recorded on one server, with the same seeds each time: without a fault,
with each of the two faults alone, and with both faults. If faults A and B occur together, the share
of A is its Shapley value: the mean of two increases of the latency. The first is the increase with
A alone. The second is the increase with both faults, minus the increase with B alone. Windows with
equal requests do not have equal latencies. So if the kinds are recorded in several rounds, the
latencies of the other windows are means over the rounds.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from replay.arrivals import FloatArray
from rig.faults.evaluation import NO_INCIDENT, ExplanationResult
from store.columns.request_columns import request_columns
from store.database import open_database
from telemetry.window import Window


class TrueShare(NamedTuple):
    """The part of a latency's growth that a fault causes."""

    value: float
    spread: float | None
    """Standard deviation of the share between the rounds (each round alone gives one share), or
    None if there is only one round."""


def true_shares(case: Path, of: ExplanationResult) -> tuple[TrueShare, ...] | None:
    """Return the true share of each injected cause; None if a window is missing, or if the latency
    of the slow requests did not grow.

    Args:
        case: the folder of the fault's recording. The folders of the other recordings are beside
            it.
    """
    truth = json.loads((case / "truth.json").read_text())
    windows = _windows_of(case, truth)
    kinds = [NO_INCIDENT, *of.causes, *([of.cause] if len(of.causes) > 1 else [])]
    if of.tail_share is None or not set(kinds) <= set(windows):
        return None

    def tail_s(window: Mapping[str, Any]) -> float:
        return _tail_s(case / "tailspan.db", window, f"{of.metric}_s", of.tail_share or 1.0)

    rounds = min(len(windows[kind]) for kind in kinds)
    this = windows[of.cause].index(truth["window"])
    if this >= rounds:
        return None
    tails_s = np.array([[tail_s(each) for each in windows[kind][:rounds]] for kind in kinds])
    growths_s = tails_s[-1] - tail_s(truth["baseline"])
    if not growths_s[this] > 0:
        return None
    shares = np.array([_added_s(each) for each in tails_s.T]) / growths_s[:, np.newaxis]
    added_s = _added_s([*tails_s[:-1].mean(axis=1), tails_s[-1, this]])
    spreads: Sequence[float | None] = [None] * len(of.causes)
    if rounds > 1:
        spreads = [float(each) for each in shares.std(axis=0, ddof=1)]
    return tuple(map(TrueShare, (float(each / growths_s[this]) for each in added_s), spreads))


def _added_s(tails_s: Sequence[float] | FloatArray) -> list[float]:
    """The Shapley value of each fault.

    Args:
        tails_s: the latency without a fault and with the fault, or (4,) without a fault, with each
            fault alone and with both.
    """
    if len(tails_s) == 2:
        return [tails_s[1] - tails_s[0]]
    none_s, first_s, second_s, both_s = tails_s
    added_s = (first_s - none_s + both_s - second_s) / 2
    return [added_s, both_s - none_s - added_s]


def _windows_of(case: Path, truth: Mapping[str, Any]) -> Mapping[str, list[Mapping[str, Any]]]:
    """Return the windows of each fault or pair in order of time, with the baseline of this case."""
    found = defaultdict(list)
    for file in case.parent.glob("*/truth.json"):
        other = json.loads(file.read_text())
        if other["baseline"] == truth["baseline"]:
            found[other["cause"]].append(other["window"])
    for windows in found.values():
        windows.sort(key=lambda window: window["begun_s"])
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
