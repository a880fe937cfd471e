import numpy as np

from diagnosis.growth.backlog import backlogged


def since(hot: int, *waits: tuple[float, float]) -> list[int]:
    begun, ended = np.array(waits, dtype=np.float64).reshape(-1, 2).T
    blocks = np.arange(10) == hot
    return np.flatnonzero(backlogged(blocks, begun, ended)).tolist()


def test_a_backlog_begins_with_the_first_request_after_an_empty_queue() -> None:
    assert since(6, (2.2, 4.0), (3.5, 6.1), (6.0, 8.0)) == [2, 3, 4, 5, 6]


def test_a_pause_ends_a_backlog() -> None:
    assert since(6, (2.2, 4.0), (5.5, 6.1), (6.0, 8.0)) == [5, 6]


def test_without_a_queue_only_the_slow_requests_blocks_are_hot() -> None:
    assert since(6) == [6]
    assert since(6, (1.0, 2.0), (8.0, 9.0)) == [6]


def test_a_backlog_from_before_the_window_begins_with_it() -> None:
    assert since(1, (-3.0, 1.5)) == [0, 1]
