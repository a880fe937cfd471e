"""The total change of a latency percentile, by replay.

The requests that arrived after a change are replayed on the server as it was before the change. The
total change is the measured percentile minus the percentile of the replay. It includes an indirect
effect: on a slower server, more requests run at the same time.
"""

from dataclasses import dataclass, replace

import numpy as np
from sqlalchemy import Engine

from analysis.compare.decision import QUANTILES
from analysis.compare.parts import percentile
from analysis.compare.question import PROCESS_LABELS, VERSION, CompareQuestion, CompareSide
from analysis.compare.versions import with_versions
from analysis.compare.work_terms import METRICS
from analysis.recorded_traffic import (
    NotReplayableError,
    Recorded,
    RecordedEngine,
    read_recorded,
)
from analysis.what_if import MAX_ERROR, matching
from analysis.window_replay import ReplayTraffic, replayed
from replay.arrivals import FloatArray
from replay.conditions import Conditions
from replay.edits import Edits
from replay.server_model import ServerModel
from telemetry.printable import printable


@dataclass(frozen=True, slots=True)
class TotalChange:
    """The total change of a percentile, or the reason why it is unknown."""

    total_change_s: float | None
    reason: str | None = None


def total_change(engine: Engine, question: CompareQuestion) -> TotalChange:
    """Replay the requests after the change on the server before it."""
    try:
        before, after = (
            _of_side(_recorded(engine, side, question), side)
            for side in (question.before, question.after)
        )
        return _replayed(before, after, question)
    except NotReplayableError as error:
        return TotalChange(None, str(error))


def _recorded(engine: Engine, side: CompareSide, question: CompareQuestion) -> Recorded:
    found = read_recorded(engine, side.window, question.columns)
    if VERSION not in question.labels:
        return found
    return replace(found, requests=with_versions(engine, found.requests, side.window))


def _of_side(recorded: Recorded, side: CompareSide) -> Recorded:
    chosen = recorded.counted & matching(recorded.requests, side.equals)
    engines = [each for each in recorded.engines if chosen[each.rows].any()]
    if not engines:
        raise NotReplayableError("no requests with phases from the plugin on one side")
    for each in engines:
        known = {"config": each.start.config, VERSION: each.start.version}
        for name in PROCESS_LABELS:
            if known[name] != side.equals.get(name, known[name]):
                # The model of an engine is fitted to all its processes in the range.
                raise NotReplayableError(
                    f"replica {printable(each.replica, 63)} restarted with another {name} in the"
                    " range; choose a range for each side"
                )
    return replace(recorded, engines=engines, counted=chosen)


def _replayed(before: Recorded, after: Recorded, question: CompareQuestion) -> TotalChange:
    column, q = METRICS[question.metric], QUANTILES[question.quantile]
    measured_s, then_s = (_percentile(each, each.latency(column), q) for each in (before, after))
    reproduced_s = _percentile(before, _values(before, before, column), q)
    expected_s = _percentile(after, _values(after, before, column), q)
    found = (measured_s, then_s, reproduced_s, expected_s)
    if any(each is None for each in found):
        return TotalChange(None, "no request on one side has this latency")
    measured_s, then_s, reproduced_s, expected_s = (each or 0.0 for each in found)
    error = reproduced_s / measured_s - 1 if measured_s else 0.0
    most = MAX_ERROR["p50" if question.quantile == "p50" else "p99"]
    if abs(error) > most:
        return TotalChange(
            None,
            f"the replay of the requests before the change is {error:+.0%} off at"
            f" {question.quantile.upper()}; allowed: at most {most:.0%}",
        )
    # Assume that the replay after the change has the same error as the replay before it (decision
    # 079).
    return TotalChange(then_s - expected_s / (1 + error))


def _values(traffic: Recorded, server: Recorded, column: str) -> FloatArray:
    models = {(each.replica, each.engine): each.model for each in server.engines}
    spare = [each.model for each in server.engines]
    engines = [
        _on_model(each, models.get((each.replica, each.engine), spare[number % len(spare)]))
        for number, each in enumerate(traffic.engines)
    ]
    run = replayed(
        replace(traffic, engines=engines),
        ReplayTraffic(
            [each.arrivals for each in engines],
            [Conditions() for _ in engines],
            [each.rows for each in engines],
            traffic.lead_s,
        ),
        Edits(),
        "compare",
        np.random.default_rng(0),
    )
    found = np.full(traffic.requests.num_rows, np.nan)
    found[run.source] = run.values[column]
    return found


def _on_model(traffic: RecordedEngine, model: ServerModel) -> RecordedEngine:
    """Replace the model of an engine, if the recorded requests contain all the data that the new
    model needs."""
    drafts = model.engine.num_speculative_tokens
    if drafts and traffic.arrivals.acceptance is None:
        raise NotReplayableError(
            "speculative decoding was switched off, so the share of accepted tokens without the"
            " change is unknown"
        )
    if model.engine.enable_prefix_caching and not traffic.model.engine.enable_prefix_caching:
        raise NotReplayableError(
            "prefix caching was switched off, so the cached tokens without the change are unknown"
        )
    return replace(traffic, model=model)


def _percentile(of: Recorded, values: FloatArray, q: float) -> float | None:
    known = values[of.counted & np.isfinite(values)]
    return percentile(known, q) if known.size else None
