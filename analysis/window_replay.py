"""Replay a recorded window, unchanged or edited, with recorded or resampled traffic."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from analysis.hardware_change import on_hardware
from analysis.recorded_traffic import PACE_INTERVAL_S, Recorded, RecordedEngine
from replay.arrivals import Arrivals, BoolArray, FloatArray, IntArray, Prefixes
from replay.conditions import Conditions, Shift
from replay.edits import EditError, Edits, edited_arrivals, edited_engine
from replay.loop import NotReplayedError, replay
from replay.outcome import Bind, ReplayOutcome
from replay.server_model import ServerModel
from replay.step_model import StepModel
from roofline.peakfile import peaks_in_force

METRICS: Final = ("ttft_s", "tpot_s", "itl_max_s", "e2e_s", "queue_s")
BLOCK_S: Final = 30
"""Length of a resampled block of time, in seconds. Most requests take less time."""
BLOCKS: Final = 10
"""Minimum number of blocks, so that the variance can be estimated. Short windows have blocks
shorter than `BLOCK_S`."""
SATURATED: Final = 0.02
"""Engines count as saturated if the queueing time grows by more than this many seconds per second:
the request rate is then more than 2 % above the capacity. They also count as saturated if a full
queue rejects more than this share of the requests."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplayTraffic:
    """The requests, stalls and changes of speed of each engine."""

    arrivals: Sequence[Arrivals]
    conditions: Sequence[Conditions]
    rows: Sequence[IntArray]
    """The index of the recorded request that each arrival copies."""
    since_s: float
    """Start of the range whose requests are counted, on the time axis of `Arrivals.received_s`.
    Earlier requests are replayed only to fill the engines."""


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """The result of a replay, over all engines."""

    values: Mapping[str, FloatArray]
    """Maps each metric in `METRICS` to the value of each request. It is NaN if a request has no
    value. The TTFT of a response that is not streamed is NaN, as in `Recorded.latency`."""
    source: IntArray
    """(n,) the index of the recorded request that each replayed request copies."""
    rejected: BoolArray
    queue_full: BoolArray
    """(n,) whether a request was rejected because the queue was full. Other rejected requests are
    longer than `max_model_len`."""
    binds: Bind
    saturated: bool

    @property
    def judged(self) -> BoolArray:
        """(n,) whether an objective can judge a request. A request that a full queue rejected is
        bad. A request that is too long is the client's error and is ignored."""
        return ~self.rejected | self.queue_full


def traffic_of(recorded: Recorded) -> ReplayTraffic:
    """The traffic of a window as it was recorded."""
    return ReplayTraffic(
        [each.arrivals for each in recorded.engines],
        [each.conditions for each in recorded.engines],
        [each.rows for each in recorded.engines],
        recorded.lead_s,
    )


class Blocks(NamedTuple):
    """The blocks of time into which a window is divided."""

    since_s: float
    """Start of the first block, on the time axis of `Arrivals.received_s`."""
    length_s: float
    """Length of each block. It is a multiple of `PACE_INTERVAL_S`, so that no interval with a
    constant engine speed is divided between two blocks."""
    number: int


def blocks_of(recorded: Recorded) -> Blocks:
    """Divide a window into blocks of time."""
    received_s = np.concatenate([each.arrivals.received_s for each in recorded.engines])
    since_s = float(np.ceil(recorded.lead_s / PACE_INTERVAL_S)) * PACE_INTERVAL_S
    counted_s = float(received_s.max()) - since_s
    length_s = float(
        np.clip(counted_s / BLOCKS // PACE_INTERVAL_S * PACE_INTERVAL_S, PACE_INTERVAL_S, BLOCK_S)
    )
    return Blocks(since_s, length_s, max(1, round(counted_s / length_s)))


def resampled(recorded: Recorded, chance: np.random.Generator) -> ReplayTraffic:
    """Draw blocks of the window with replacement. The requests before the window stay unchanged."""
    lead_s, block_s, number = blocks_of(recorded)
    starts_s = (lead_s + block_s * chance.integers(0, number, number)).tolist()
    shifts = [
        Shift(start_s, start_s + block_s, lead_s + place * block_s - start_s)
        for place, start_s in enumerate(starts_s)
    ]
    arrivals, conditions, rows = [], [], []
    for each in recorded.engines:
        at_s = each.arrivals.received_s
        places = [np.flatnonzero(at_s < lead_s)]
        moved = [at_s[places[0]]]
        for shift in shifts:
            low, high = np.searchsorted(at_s, [shift.from_s, shift.to_s])
            places.append(np.arange(low, high))
            moved.append(at_s[low:high] + shift.by_s)
        drawn = np.concatenate(places)
        arrivals.append(each.arrivals.select(drawn, np.concatenate(moved)))
        conditions.append(each.conditions.shifted([Shift(-np.inf, lead_s, 0.0), *shifts]))
        rows.append(each.rows[drawn])
    return ReplayTraffic(arrivals, conditions, rows, recorded.lead_s)


def replayed(
    recorded: Recorded, traffic: ReplayTraffic, edits: Edits, seed: str, chance: np.random.Generator
) -> Replayed:
    """Replay traffic with edits: each engine separately, or all requests through a router.

    Args:
        recorded: the window, with the fitted `ServerModel` of each engine.
        chance: the random generator that chooses which requests are copied if the edits raise the
            rate.

    Raises:
        EditError: an edit is not allowed, or the edited engines need too much memory.
    """
    models = [_on_hardware(each, edits) for each in recorded.engines]
    pools = list(zip(models, traffic.arrivals, traffic.conditions, traffic.rows, strict=True))
    if edits.pools:
        pools = [_pooled(recorded, models, traffic, edits)]
    outcomes: list[ReplayOutcome] = []
    latencies: list[dict[str, FloatArray]] = []
    queue_full: list[BoolArray] = []
    saturated: list[bool] = []
    sources: list[IntArray] = []
    for number, (model, arrivals, conditions, rows) in enumerate(pools):
        engine = edited_engine(model.engine, edits.arguments or {})
        changed, copied = edited_arrivals(
            arrivals, edits, engine, model.front_end, recorded.tenants, chance
        )
        try:
            outcome = replay(replace(model, engine=engine), changed, f"{seed} {number}", conditions)
        except NotReplayedError as error:
            raise EditError(str(error)) from None
        outcomes.append(outcome)
        latencies.append(_latencies(outcome, changed))
        fits = changed.prompt_tokens + changed.output_tokens <= engine.max_model_len
        queue_full.append(outcome.rejected & fits)
        saturated.append(_is_saturated(outcome, fits, traffic.since_s))
        sources.append(rows[copied])
    return Replayed(
        {name: np.concatenate([each[name] for each in latencies]) for name in METRICS},
        np.concatenate(sources),
        np.concatenate([each.rejected for each in outcomes]),
        np.concatenate(queue_full),
        _binding_limit(outcomes),
        any(saturated),
    )


def _latencies(outcome: ReplayOutcome, arrivals: Arrivals) -> dict[str, FloatArray]:
    found = {name: getattr(outcome, name) for name in METRICS}
    if arrivals.streamed is not None:
        found["ttft_s"] = np.where(arrivals.streamed, found["ttft_s"], np.nan)
    return found


def _on_hardware(engine: RecordedEngine, edits: Edits) -> ServerModel:
    if not edits.hardware:
        return engine.model
    config = on_hardware(engine.model.engine, engine.start, edits, peaks_in_force(os.environ))
    return replace(engine.model, engine=config)


def _pooled(
    recorded: Recorded, models: Sequence[ServerModel], traffic: ReplayTraffic, edits: Edits
) -> tuple[ServerModel, Arrivals, Conditions, IntArray]:
    received_s = np.concatenate([each.received_s for each in traffic.arrivals])
    order = np.argsort(received_s, kind="stable")
    conditions = Conditions(
        stalls=tuple(each.stalls_of(0) for each in traffic.conditions),
        paces=tuple(each.paces_of(0) for each in traffic.conditions),
    )
    rows = np.concatenate(traffic.rows)[order]
    model = pooled_model(recorded, models, edits)
    return model, _concatenated(traffic.arrivals, order), conditions, rows


def pooled_model(recorded: Recorded, models: Sequence[ServerModel], edits: Edits) -> ServerModel:
    """A model of equal replicas behind one router. Their step model is the mean of the engines'
    step models."""
    steps = [each.engine.step for each in models]
    mean = StepModel(
        **{
            name: float(np.mean([getattr(each, name) for each in steps]))
            for name in StepModel.__dataclass_fields__
        }
    )
    return replace(
        models[0],
        engine=replace(models[0].engine, step=mean),
        replicas=edits.engines(recorded.replicas, len(models)),
        router=edits.pool_router,
    )


def _concatenated(parts: Sequence[Arrivals], order: IntArray) -> Arrivals:
    columns = (
        *("received_s", "prompt_tokens", "output_tokens", "cached_tokens", "frontend_s"),
        *("held_s", "streamed", "tenant", "acceptance", "adapter"),
    )
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(each, name) for each in parts])[order]
        for name in columns
        if all(getattr(each, name) is not None for each in parts)
    }
    prefixes = [each.prefixes for each in parts if each.prefixes is not None]
    if prefixes:
        joined["prefixes"] = Prefixes.joined(prefixes).select(order)
    return Arrivals(**joined)


def _binding_limit(outcomes: Sequence[ReplayOutcome]) -> Bind:
    totals: dict[Bind, float] = {"seats": 0.0, "kv": 0.0, "tokens": 0.0}
    for each in outcomes:
        totals["seats"] += float(each.engines.blocked_seats_s.sum())
        totals["kv"] += float(each.engines.blocked_kv_s.sum())
        totals["tokens"] += float(each.engines.blocked_tokens_s.sum())
    longest = max(totals, key=lambda name: totals[name])
    return longest if totals[longest] > 0 else "none"


def _is_saturated(outcome: ReplayOutcome, fits: BoolArray, since_s: float) -> bool:
    """Return whether the queue is full, or the queueing time grows until the end of the replay.

    `fits` is (n,) whether a request fits into `max_model_len`. Requests that do not fit are always
    rejected.
    """
    sent = fits & (outcome.received_s >= since_s)
    if (outcome.rejected & sent).sum() > SATURATED * sent.sum():
        return True
    known = np.isfinite(outcome.queue_s) & (outcome.received_s >= since_s)
    at_s, queue_s = outcome.received_s[known], outcome.queue_s[known]
    if at_s.size < 2 or np.ptp(at_s) == 0:
        return False
    late = at_s >= at_s[0] + np.ptp(at_s) / 4
    slope = np.polyfit(at_s[late], queue_s[late], 1)[0] if np.ptp(at_s[late]) > 0 else 0.0
    return bool(slope > SATURATED)
