import numpy as np
import pytest

from analysis.compare.matching import MATCHES, GroupedRequests, is_in_range_before, match, near


def group(number: int, of: int = 0, seed: int = 0) -> GroupedRequests:
    expected = np.random.default_rng(seed).lognormal(-3, 0.5, number)
    return GroupedRequests(np.full(number, of), expected)


def test_matches_are_the_nearest_of_the_same_group() -> None:
    before = GroupedRequests(
        np.concatenate([np.zeros(500, np.int64), np.ones(500, np.int64)]),
        np.concatenate([np.linspace(0.1, 0.2, 500), np.linspace(0.1, 0.2, 500)]),
    )
    found = match(before, GroupedRequests(np.array([1]), np.array([0.15])))
    assert (found.rows >= 500).all()
    assert np.abs(before.expected_s[found.rows] - 0.15).max() < 0.01
    assert near(found).all()


def test_a_match_is_scaled_to_the_work_of_the_request() -> None:
    before = GroupedRequests(np.zeros(200, np.int64), np.linspace(0.1, 0.2, 200))
    found = match(before, GroupedRequests(np.array([0]), np.array([0.3])))
    assert found.latencies(before.expected_s) == pytest.approx(0.3)


def test_a_small_group_has_fewer_matches_and_each_counts_the_same() -> None:
    found = match(group(60), GroupedRequests(np.array([0]), np.array([0.05])))
    rows, counts = np.unique(found.rows, return_counts=True)
    assert rows.size == 10
    assert set(counts) == {MATCHES // 10}


def test_a_group_without_requests_before_has_no_matches() -> None:
    assert not near(match(group(200), GroupedRequests(np.array([7]), np.array([0.05])))).any()
    assert not near(match(group(5), group(3))).any()


def test_equal_sides_use_almost_all_requests_before() -> None:
    assert match(group(1000, seed=1), group(1000, seed=2)).effective(1000) > 700


def test_few_requests_used_often_count_as_few() -> None:
    one_place = GroupedRequests(np.zeros(1000, np.int64), np.full(1000, 0.05))
    assert match(group(1000), one_place).effective(1000) == pytest.approx(MATCHES)


def test_more_work_than_ever_before_is_not_seen() -> None:
    before = np.array([[1.0, 5.0], [1.0, 10.0]])
    after = np.array([[1.0, 10.9], [1.0, 11.1]])
    assert is_in_range_before(before, after).tolist() == [True, False]
