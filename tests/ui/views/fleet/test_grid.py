from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ui.views.fleet import grid

S = 1_000_000_000


def samples(rows: list[dict[str, Any]]) -> pa.Table:
    plain = {"engine": 0, "process": 1, "started_unix_ns": 0, "simulated": False}
    whole = [{**plain, **row} for row in rows]
    texts = ("replica", "source", "gpu", "throttle_reasons")
    return pa.table(
        {
            name: pa.array(
                [row.get(name) for row in whole],
                pa.string() if name in texts else pa.int64() if "_ns" in name else pa.float64(),
            )
            for name in dict.fromkeys((*grid.ENGINE_COLUMNS, *grid.GPU_COLUMNS))
        }
    )


def grids(rows: list[dict[str, Any]], replicas: list[str], bins: int) -> dict[str, Any]:
    table = samples(rows)
    index = table["at_unix_ns"].to_numpy() // (10 * S)
    return grid.engine_grids(table, replicas, index, bins)


def test_gauges_are_the_maximum_of_a_bin() -> None:
    found = grids(
        [
            {"replica": "a", "at_unix_ns": 1 * S, "waiting": 2, "kv_usage_ratio": 0.5},
            {"replica": "a", "at_unix_ns": 2 * S, "waiting": 7, "kv_usage_ratio": 0.4},
            {"replica": "b", "at_unix_ns": 12 * S, "waiting": 0},
            {"replica": "c", "at_unix_ns": 1 * S, "waiting": 99},
        ],
        ["a", "b"],
        2,
    )
    np.testing.assert_array_equal(found["queue"], [[7, np.nan], [np.nan, 0]])
    np.testing.assert_array_equal(found["kv"], [[0.5, np.nan], [np.nan, np.nan]])


def test_engines_add_up_and_the_fullest_cache_counts() -> None:
    at = {"replica": "a", "at_unix_ns": 1 * S}
    found = grids(
        [
            {**at, "engine": 0, "waiting": 2, "kv_usage_ratio": 0.9},
            {**at, "engine": 0, "process": 2, "waiting": 1},
            {**at, "engine": 1, "waiting": 5, "kv_usage_ratio": 0.3},
        ],
        ["a"],
        1,
    )
    assert found["queue"].tolist() == [[7.0]]
    assert found["kv"].tolist() == [[0.9]]


def test_rates_are_rises_over_the_time_between_samples() -> None:
    rows = [
        {
            "replica": "a",
            "process": process,
            "at_unix_ns": second * S,
            "started_unix_ns": 0 if second < 10 else 9 * S,
            "decode_tokens_total": 100 * second if second < 10 else 50 * (second - 9),
        }
        for second in range(20)
        for process in (1, 2)
    ]
    found = grids(rows, ["a"], 2)
    assert found["tokens"].tolist() == [[200.0, 100.0]]


def test_a_scraped_replica_has_a_prefill_rate_beside_one_with_the_plugin() -> None:
    """`/metrics` counts the prompt tokens of complete prefills, the step ledger those of steps."""
    rows = [
        {"replica": replica, "at_unix_ns": second * S, **counted}
        for second in range(10)
        for replica, counted in (
            ("plugin", {"scheduled_prefill_tokens_total": 30 * second, "prefill_tokens_total": 0}),
            ("scraped", {"prefill_tokens_total": 20 * second}),
        )
    ]
    found = grids(rows, ["plugin", "scraped"], 1)
    assert found["prefill"].tolist() == [[30.0], [20.0]]


def test_a_rate_is_correct_across_unread_seconds() -> None:
    rows = [
        {"replica": "a", "at_unix_ns": second * S, "decode_tokens_total": 30 * second}
        for second in (0, 1, 16, 17, 19)
    ]
    found = grids(rows, ["a"], 2)
    np.testing.assert_allclose(found["tokens"], [[30.0, 30.0]])


def test_shares_are_ratios_of_simultaneous_increases() -> None:
    rows = [
        {
            "replica": "a",
            "at_unix_ns": second * S,
            "steps_total": 50 * second,
            "busy_s_total": 0.8 * second,
            "stall_s_total": 0.2 * second,
            "prefix_cache_queries_tokens_total": 1000 * min(second, 5),
            "prefix_cache_hits_tokens_total": 250 * min(second, 5),
        }
        for second in range(20)
    ]
    found = grids(rows, ["a"], 2)
    np.testing.assert_allclose(found["step"], [[0.016, 0.016]])
    np.testing.assert_allclose(found["stall"], [[0.25, 0.25]])
    np.testing.assert_allclose(found["hits"], [[0.25, np.nan]])


def test_gpus_have_mean_bandwidth_and_lowest_clock() -> None:
    """The lowest clock shows a single throttled card, which a mean would hide."""
    rows = [
        {
            "replica": "a",
            "gpu": gpu,
            "at_unix_ns": 1 * S,
            "dram_bandwidth_ratio": ratio,
            "sm_clock_hz": clock,
            "sm_clock_max_hz": 2e9,
        }
        for gpu, ratio, clock in (("0", 0.4, 2e9), ("1", 0.6, 1e9))
    ]
    table = samples(rows)
    index = np.zeros(2, dtype=np.int64)
    found = grid.gpu_grids(table, ["a", "b"], index, 1)
    np.testing.assert_allclose(found["bandwidth"], [[0.5], [np.nan]])
    np.testing.assert_allclose(found["clock"], [[0.5], [np.nan]])


def test_waiting_is_a_share_of_the_samples() -> None:
    rows = [
        {"replica": "a", "at_unix_ns": second * S, "waiting": waiting}
        for second, waiting in enumerate((0, 3, 0, 1, None))
    ]
    assert grids(rows, ["a"], 1)["waited"].tolist() == [[0.5]]


@pytest.mark.parametrize("name", ["engine_grids", "gpu_grids"])
def test_no_samples_make_no_grids(name: str) -> None:
    none = np.zeros(0, dtype=np.int64)
    assert getattr(grid, name)(samples([]), ["a"], none, 3) == {}
