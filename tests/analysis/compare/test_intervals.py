from statistics import NormalDist

import numpy as np
import pytest

from analysis.compare.intervals import all_looks, block_s, blocks_of, reach_of
from telemetry.quantiles import Z_95


def test_blocks_hold_every_request_once_and_in_order() -> None:
    at_s = np.sort(np.random.default_rng(0).uniform(0, 600, 500))
    blocks = blocks_of(at_s)
    assert len(blocks) == 20
    assert sorted(np.concatenate(blocks).tolist()) == list(range(500))
    assert all(np.ptp(at_s[each]) <= block_s(600) for each in blocks)


def test_requests_of_one_instant_are_one_block() -> None:
    assert len(blocks_of(np.zeros(50))) == 1


def test_few_blocks_and_many_looks_widen_an_interval() -> None:
    assert Z_95 < reach_of(1000, looks=False) < reach_of(10, looks=False)
    assert reach_of(20, looks=True) > reach_of(20, looks=False)


def test_a_random_walk_stays_within_all_looks_with_the_promised_probability() -> None:
    """While a window grows to 400 blocks, at most 5 % of the random walks ever cross the
    boundary."""
    chance = np.random.default_rng(5)
    blocks = np.arange(8, 401)
    boundary = np.array([all_looks(int(number)) for number in blocks])
    walks = np.cumsum(chance.normal(size=(4000, 400)), axis=1)[:, 7:] / np.sqrt(blocks)
    ever = (np.abs(walks) > boundary).any(axis=1).mean()
    assert ever <= 0.05
    once = 2 * NormalDist().cdf(-Z_95)
    assert (np.abs(walks) > Z_95).any(axis=1).mean() > 5 * once
    assert boundary == pytest.approx(3.2, rel=0.15)
