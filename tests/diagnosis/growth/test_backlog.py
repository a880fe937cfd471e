import numpy as np

from diagnosis.growth.backlog import backlogged


def since(hot: int, *waits: tuple[float, float]) -> list[int]:
    """The blocks of ten that a backlog makes hot."""
    begun, ended = np.array(waits, dtype=np.float64).reshape(-1, 2).T
    blocks = np.arange(10) == hot
    return np.flatnonzero(backlogged(blocks, begun, ended)).tolist()


def test_a_backlog_begins_with_whoever_came_when_nobody_waited() -> None:
    """While one waits, the next begins to: all that time is to blame for the last."""
    assert since(6, (2.2, 4.0), (3.5, 6.1), (6.0, 8.0)) == [2, 3, 4, 5, 6]


def test_a_pause_ends_it() -> None:
    """What was over before has left nothing to wait for."""
    assert since(6, (2.2, 4.0), (5.5, 6.1), (6.0, 8.0)) == [5, 6]


def test_where_nobody_waits_the_slow_came_when_they_came() -> None:
    """A slow decode has no backlog."""
    assert since(6) == [6]
    assert since(6, (1.0, 2.0), (8.0, 9.0)) == [6]


def test_who_began_before_the_window_waits_from_its_beginning() -> None:
    """No block is before the first."""
    assert since(1, (-3.0, 1.5)) == [0, 1]
