"""Tests of simulated steps that do not follow the fitted step model."""

from dataclasses import replace
from functools import cache

import numpy as np

from replay.engine_config import EngineConfig
from simulator.dataset import run
from simulator.fleet_config import FleetConfig
from simulator.foreign_world import ForeignWorld
from simulator.workload import Workload

USUAL = FleetConfig(
    duration_s=40.0,
    seed=3,
    replicas=1,
    engine=EngineConfig(max_num_seqs=64, step_noise_ratio=0.0),
    workload=Workload(rate_per_s=6.0),
)
QUIET = ForeignWorld(slowdown_per_sequence=0.0, drift_ratio=0.0, drift_every_s=10.0)


@cache
def decode_s(config: FleetConfig) -> np.ndarray:
    decode: np.ndarray = run(config).request_table()["decode_s"].to_numpy()
    return decode


def test_a_foreign_world_without_properties_has_no_effect() -> None:
    assert np.array_equal(decode_s(replace(USUAL, foreign=QUIET)), decode_s(USUAL), equal_nan=True)


def test_a_slowdown_per_sequence_makes_steps_longer_with_the_number_of_sequences() -> None:
    busy_gpu = decode_s(replace(USUAL, foreign=replace(QUIET, slowdown_per_sequence=0.01)))
    assert 1.02 < np.nanmean(busy_gpu) / np.nanmean(decode_s(USUAL)) < 1.6


def test_a_drifting_pace_changes_the_steps() -> None:
    drifting = replace(USUAL, foreign=replace(QUIET, drift_ratio=0.2))
    assert not np.array_equal(decode_s(drifting), decode_s(USUAL), equal_nan=True)
