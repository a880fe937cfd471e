from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from analysis.recorded_traffic import LEAD_S, REQUEST_COLUMNS, Recorded, recorded_of
from analysis.window_replay import _pooled, blocks_of, resampled, traffic_of
from replay.conditions import Conditions, Pace, Stall
from replay.edits import Edits
from simulator.dataset import run
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from telemetry.window import Window
from tests.analysis.recorded_fleet import recorded_window, simulated_window

SECONDS = 120


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    """Return two replicas; in each block, replica r has a stall of r + 1 s and a pace of r + 1."""
    workload = Workload(rate_per_s=6.0)
    found = recorded_window(*simulated_window(SECONDS, seed=4, replicas=2, workload=workload))
    engines = [
        replace(each, conditions=Conditions(stalls=(stalls,), paces=(paces,)))
        for each, stalls, paces in zip(found.engines, *_events(found), strict=True)
    ]
    return replace(found, engines=engines)


def _events(recorded: Recorded) -> tuple[list[tuple[Stall, ...]], list[tuple[Pace, ...]]]:
    since_s, length_s, _ = blocks_of(recorded)
    first_s = since_s % length_s + length_s / 2
    middles_s = np.arange(first_s, LEAD_S + SECONDS, length_s).tolist()
    return (
        [tuple(Stall(at_s, r + 1.0) for at_s in middles_s) for r in range(2)],
        [tuple(Pace(at_s, r + 1.0) for at_s in middles_s) for r in range(2)],
    )


def _check(recorded: Recorded, conditions: Conditions, replica: int, like: int) -> None:
    """Check that a replica of resampled traffic has the stalls and paces of its engine."""
    number = pytest.approx(len(_events(recorded)[0][like]), abs=1)
    assert len(conditions.stalls_of(replica)) == number
    assert {each.for_s for each in conditions.stalls_of(replica)} == {like + 1.0}
    assert len(conditions.paces_of(replica)) == number
    assert {each.factor for each in conditions.paces_of(replica)} == {like + 1.0}


def test_resampled_engines_keep_their_stalls_and_paces(recorded: Recorded) -> None:
    drawn = resampled(recorded, np.random.default_rng(3))
    for number, conditions in enumerate(drawn.conditions):
        _check(recorded, conditions, 0, like=number)
    edits = Edits(replicas=3)
    models = [each.model for each in recorded.engines]
    pooled = _pooled(recorded, models, drawn, edits)[2]
    for number in range(2):
        _check(recorded, pooled, number, like=number)
    assert pooled.stalls_of(2) == (), "a new replica has none"


def test_every_replica_of_a_resampled_pool_keeps_its_stalls_and_paces(recorded: Recorded) -> None:
    stalls, paces = _events(recorded)
    pool = replace(
        recorded.engines[0], conditions=Conditions(stalls=tuple(stalls), paces=tuple(paces))
    )
    drawn = resampled(replace(recorded, engines=[pool]), np.random.default_rng(3))
    for number in range(2):
        _check(recorded, drawn.conditions[0], number, like=number)


def test_a_pool_keeps_the_waits_for_kv_transfers_and_grammars(recorded: Recorded) -> None:
    """The router of a pool receives the requests of all engines, in order of receipt."""
    engines = [
        replace(each, arrivals=replace(each.arrivals, held_s=each.arrivals.received_s))
        for each in recorded.engines
    ]
    held = replace(recorded, engines=engines)
    models = [each.model for each in engines]
    _, pooled, _, _ = _pooled(held, models, traffic_of(held), Edits(replicas=3))
    assert pooled.held_s is not None
    assert pooled.held_s.tolist() == pooled.received_s.tolist()


def test_rows_of_the_engine_core_are_replayed_from_the_queue() -> None:
    """vLLM's Rust front end reports nothing, so the time before the queue is unknown."""
    config = FleetConfig(duration_s=SECONDS, seed=4, replicas=1, workload=Workload(rate_per_s=6.0))
    start_ns = config.started_unix_ns
    data = run(config)
    requests = data.request_table().select(REQUEST_COLUMNS)
    for name in ("frontend_s", "handoff_s", "delivery_s"):
        place = requests.column_names.index(name)
        requests = requests.set_column(place, name, pa.nulls(requests.num_rows, pa.float64()))
    window = Window(start_ns, start_ns + SECONDS * 10**9)
    (found,) = recorded_of(requests, data.sample_table(), data.starts, window).engines
    assert np.all(found.arrivals.frontend_s == 0.0)
    front_end = found.model.front_end
    assert (front_end.template_s, front_end.prompt_token_s, front_end.flush_s) == (0.0, 0.0, 0.0)
    assert np.isfinite(front_end.first_byte_s)
