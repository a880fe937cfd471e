import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.over_time.time_bins import bins_of_width
from diagnosis.inputs.arrow import samples_of
from diagnosis.inputs.servers import Samples
from ui.views.root_cause.distribution import ROWS, distribution
from ui.views.root_cause.server_state import state_lines

S = 10**9
FROM, TO = 1_763_634_000 * S, 1_763_634_900 * S


@given(st.lists(st.tuples(st.integers(FROM - S, TO + S), st.floats(0, 1e4)), max_size=200))
def test_every_request_of_the_stretch_is_counted_once(values: list[tuple[int, float]]) -> None:
    at = np.array([each for each, _ in values], dtype=np.int64)
    took = np.array([each for _, each in values], dtype=np.float64)
    found = distribution(at, took, FROM, TO)
    inside = int(((at >= FROM) & (at < TO)).sum())
    assert (0 if found is None else found.counts.sum()) == inside


def test_a_request_is_counted_at_its_time_and_latency() -> None:
    at = np.array([FROM + 300 * S, FROM + 600 * S])
    found = distribution(at, np.array([2.0, 0.02]), FROM, TO)
    assert found is not None
    assert found.counts.shape == (ROWS, found.bins.count)
    for instant, seconds in zip(at, (2.0, 0.02), strict=True):
        column = found.counts[:, int(found.bins.index(instant[None])[0])]
        (row,) = np.flatnonzero(column)
        assert found.edges_s[row] <= seconds <= found.edges_s[row + 1]


def test_unknown_latencies_have_no_grid() -> None:
    assert distribution(np.array([FROM]), np.array([np.nan]), FROM, TO) is None


def samples(rows: list[dict[str, object]]) -> Samples:
    given = {"replica": "r0", "engine": 0, "process": 1, "started_unix_ns": FROM}
    return samples_of(pa.Table.from_pylist([{**given, **row} for row in rows]))


def test_gauges_are_means_and_shares_are_of_the_whole() -> None:
    reported = samples(
        [
            {
                "at_unix_ns": FROM + at * S,
                "waiting": waiting,
                "prefix_cache_hits_tokens_total": hits,
                "prefix_cache_queries_tokens_total": asked,
            }
            for at, waiting, hits, asked in ((0, 1, 0, 0), (5, 3, 50, 100), (25, 8, 50, 300))
        ]
    )
    bins = bins_of_width(FROM, FROM + 30 * S, 10 * S)
    lines = {each.name: each for each in state_lines(reported, bins)}
    assert set(lines) == {"waiting", "cache hits"}
    assert lines["waiting"].values.tolist() == pytest.approx([2.0, np.nan, 8.0], nan_ok=True)
    assert lines["cache hits"].values.tolist() == pytest.approx([0.5, np.nan, 0.0], nan_ok=True)
    assert state_lines(reported, bins_of_width(TO, TO + S, S)) == []
