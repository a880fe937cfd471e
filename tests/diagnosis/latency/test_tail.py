import numpy as np
import pytest

from diagnosis.latency.tail import BLOCK_S, sort_latencies
from tests.diagnosis.making import S


@pytest.mark.parametrize("seconds", [90, 721, 900, 3601])
def test_blocks_of_equal_length_divide_any_window(seconds: int) -> None:
    """The onset and the hot blocks are converted to times with this length."""
    at_s = np.linspace(0.5, seconds - 0.5, seconds)
    received_unix_ns = (at_s * S).astype(np.int64)
    found = sort_latencies(-at_s, received_unix_ns, 0, float(seconds))
    length_s = seconds / found.block_count
    assert length_s <= BLOCK_S
    assert found.rows.tolist() == list(range(seconds))
    since_s = at_s - found.blocks * length_s
    assert since_s.min() >= 0
    assert since_s.max() <= length_s
