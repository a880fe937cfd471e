import numpy as np
import pyarrow as pa
import pytest

from analysis.counterfactual.evictions import Evictions, evictions
from analysis.counterfactual.factors import Factor, FactorKind
from analysis.counterfactual.mixed_window import MixedWindow, RangeTraffic
from analysis.prefix_ladders import repeated_tokens
from analysis.recorded_traffic import LEAD_S, Recorded, recorded_of
from analysis.window_replay import traffic_of
from simulator.dataset import run
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from tests.analysis.counterfactual.test_shares import (
    BEGAN_S,
    ENDED_S,
    ranges,
    recorded,
    simulated,
)

KEPT = 0.25
BLOCKS, HITS, PACE = (
    Factor(FactorKind.BLOCKS),
    Factor(FactorKind.CACHE_HITS),
    Factor(FactorKind.PACE),
)


def evicting(kept: float = KEPT) -> tuple[Recorded, Recorded]:
    """Return a window whose cache kept the share `kept` of its tokens, and a baseline."""
    window, baseline = ranges("longer_outputs")
    place = window.requests.column_names.index("cached_tokens")
    fewer = np.floor(np.nan_to_num(window.column("cached_tokens")) * kept)
    table = window.requests.set_column(place, "cached_tokens", pa.array(fewer.astype(np.int64)))
    data = simulated("longer_outputs")
    return recorded_of(table, data.sample_table(), data.starts, window.window), baseline


def test_tokens_that_an_earlier_request_had_are_repeated() -> None:
    window, _ = ranges("longer_outputs")
    cached = np.nan_to_num(window.column("cached_tokens"))
    repeated = repeated_tokens(window)
    assert repeated.sum() == pytest.approx(cached.sum(), rel=0.1)
    assert repeated[0] == 0
    assert (repeated <= window.column("prompt_tokens")).all()


def test_a_cache_that_contains_less_of_the_repeated_tokens_has_evicted_them() -> None:
    found = evictions(*evicting(), [PACE, HITS, Factor(FactorKind.RATE), BLOCKS])
    assert found is not None
    assert found.factor == 3  # lost blocks are checked before more requests
    assert found.kept == pytest.approx(KEPT, abs=0.05)


def test_an_engine_with_too_many_requests_evicts_more_than_the_others() -> None:
    data = run(
        FleetConfig(
            duration_s=float(ENDED_S), seed=5, replicas=2, workload=Workload(rate_per_s=6.0)
        )
    )
    table = data.request_table()
    first = np.array(table["replica"].to_pylist()) == "sim-0"
    cached = np.nan_to_num(table["cached_tokens"].to_numpy())
    fewer = pa.array(np.floor(cached * np.where(first, KEPT, 1.0)).astype(np.int64))
    table = table.set_column(table.column_names.index("cached_tokens"), "cached_tokens", fewer)
    window, baseline = recorded(data, BEGAN_S, ENDED_S, table), recorded(data, LEAD_S, BEGAN_S)
    found = evictions(window, baseline, [HITS, Factor(FactorKind.ROUTING)])
    assert found is not None
    assert found.factor == 1
    assert found.kept == pytest.approx([KEPT, 1.0], abs=0.05)


def test_without_a_factor_that_takes_blocks_nothing_is_evicted() -> None:
    assert evictions(*evicting(), [PACE, HITS]) is None


def test_a_cache_that_contains_as_much_as_before_has_evicted_nothing() -> None:
    assert evictions(*ranges("longer_outputs"), [BLOCKS, HITS]) is None


def cached_tokens(found: Evictions | None, *to_reset: int, first: Factor = BLOCKS) -> int:
    window, baseline = evicting()
    mixed = MixedWindow(
        RangeTraffic(window, traffic_of(window)),
        RangeTraffic(baseline, traffic_of(baseline)),
        [first, HITS],
        np.random.default_rng(1),
        found,
    )
    requests = mixed._mixed(to_reset)
    return int(requests.cached_tokens[requests.at_s >= 0].sum())


def test_evicted_tokens_return_with_the_blocks_and_other_hits_with_the_prompts() -> None:
    found = evictions(*evicting(), [BLOCKS, HITS])
    none, blocks, hits, both = (cached_tokens(found, *each) for each in ((), (0,), (1,), (0, 1)))
    assert blocks == pytest.approx(none / KEPT, rel=0.1)
    assert hits == pytest.approx(both * KEPT, rel=0.2)  # the smaller cache evicts the same share
    assert cached_tokens(None, 1) == pytest.approx(both, rel=0.1)


def test_more_requests_evict_prefixes_only_together_with_new_prompts() -> None:
    rate = Factor(FactorKind.RATE)
    found = evictions(*evicting(), [rate, HITS])
    assert found is not None
    assert found.factor == 0
    none, hits = cached_tokens(found, first=rate), cached_tokens(found, 1, first=rate)
    assert hits == pytest.approx(none / KEPT, rel=0.2)
