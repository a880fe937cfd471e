import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.compare.shared_work import Instants, shared_work


def instants(*rows: tuple[float, float, float, float, int, int]) -> Instants:
    """Return requests: (received, scheduled, first token, last token, prompt, output)."""
    columns = np.array(rows, dtype=np.float64).reshape(-1, 6).T
    return Instants(
        engine=np.zeros(columns.shape[1], dtype=np.int64),
        received_s=columns[0],
        scheduled_s=columns[1],
        first_token_s=columns[2],
        last_token_s=columns[3],
        uncached_tokens=columns[4],
        cached_tokens=np.zeros(columns.shape[1]),
        output_tokens=columns[5],
    )


def test_a_single_request_shares_its_engine_with_no_other() -> None:
    found = shared_work(instants((0, 0.1, 0.2, 1.2, 100, 11)))
    assert found.running[0] == 0
    assert found.waiting[0] == 0
    assert found.wait_prefill_tokens[0] == pytest.approx(0)
    assert found.decode_running[0] == pytest.approx(1)
    assert found.decode_context[0] == pytest.approx(105.5)
    assert found.decode_prefill_tokens[0] == pytest.approx(0)


def test_a_prefill_during_a_decode_counts_per_token() -> None:
    found = shared_work(instants((0, 0, 1, 11, 100, 11), (4, 4, 5, 6, 500, 2)))
    assert found.decode_prefill_tokens[0] == pytest.approx(500 / 10)
    assert found.running[1] == 1
    assert found.decode_running[0] == pytest.approx(1 + 1 / 10)


def test_a_prompt_ahead_in_the_queue_counts_as_work_to_wait_for() -> None:
    found = shared_work(instants((0, 1, 2, 3, 800, 2), (0.5, 2, 3, 4, 100, 2)))
    assert found.waiting[1] == 1
    assert found.wait_prefill_tokens[1] == pytest.approx(800)


def test_engines_do_not_share_work() -> None:
    both = instants((0, 0, 1, 11, 100, 11), (4, 4, 5, 6, 500, 2))
    both.engine[1] = 1
    assert shared_work(both).decode_prefill_tokens[0] == pytest.approx(0)


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e4),
            *[st.floats(0, 100)] * 3,
            st.integers(0, 10**6),
            st.integers(0, 10**4),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_work_is_never_negative(
    rows: list[tuple[float, float, float, float, int, int]],
) -> None:
    ascending = [
        (at, at + wait, at + wait + prefill, at + wait + prefill + decode, prompt, output)
        for at, wait, prefill, decode, prompt, output in rows
    ]
    found = shared_work(instants(*ascending))
    for name in found.__dataclass_fields__:
        values = getattr(found, name)
        assert (values[np.isfinite(values)] >= -1e-3).all(), name
