import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.quantiles import quantile
from telemetry.sketches import (
    ALPHA,
    HIGHEST,
    LOWEST,
    Sketch,
    bin_of,
    bins_of,
    estimate_s,
    quantile_s,
    quantiles_s,
)

DURATIONS = st.floats(1e-8, 9e8)
ANYTHING = st.floats() | st.sampled_from([0.0, -0.0, -1.0, 5e-324, 1e9, 1e300])
SHARES = st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 0.999])

GOLDEN = {
    0.0: -1036,
    1e-10: -1036,
    1e-6: -690,
    0.0001: -460,
    0.001: -345,
    0.01: -230,
    0.05: -149,
    0.1: -115,
    0.25: -69,
    0.3: -60,
    0.5: -34,
    0.99: 0,
    1.0: 0,
    1.0000001: 1,
    101 / 99: 1,
    2.0: 35,
    5.0: 81,
    10.0: 116,
    60.0: 205,
    1e4: 461,
    86_400.0: 569,
}


def sketch(values: list[float]) -> Sketch:
    made = Sketch()
    made.add_column(np.array(values, dtype=np.float64))
    return made


def merged(*sketches: Sketch) -> Sketch:
    whole = Sketch()
    for each in sketches:
        whole.merge(each)
    return whole


def test_a_bin_means_the_same_for_ever() -> None:
    """Databases store bins. If this test fails, change the code, not the table."""
    assert {value: bin_of(value) for value in GOLDEN} == GOLDEN
    assert (bins_of(np.array([*GOLDEN])) == [*GOLDEN.values()]).all()
    assert (LOWEST, HIGHEST) == (-1036, 1036)
    assert estimate_s(0) == 0.99
    assert estimate_s(116) == pytest.approx(10.074_696_689_5, rel=1e-11)


@given(DURATIONS)
def test_an_estimate_is_within_one_percent(value: float) -> None:
    bin_ = bin_of(value)
    assert bin_ is not None
    assert abs(estimate_s(bin_) - value) <= ALPHA * value * (1 + 1e-12)


@pytest.mark.parametrize("bin_", [LOWEST + 1, -345, -1, 0, 1, 345, HIGHEST])
def test_a_bound_is_the_last_of_its_bin(bin_: int) -> None:
    """The bound is at most γ^b. The next larger double is in the next bin."""
    bound = float(np.float64(101 / 99) ** bin_)
    near = [bound * (1 + step * 1e-12) for step in (-1, 1)]
    assert [bin_of(each) for each in near] == [bin_, bin_ + 1 if bin_ < HIGHEST else None]


@given(st.lists(DURATIONS, min_size=1, max_size=200), SHARES)
def test_a_quantile_is_within_one_percent(values: list[float], q: float) -> None:
    exact, reported = quantile(np.array(values), q), sketch(values).quantile_s(q)
    assert exact is not None
    assert reported is not None
    assert abs(reported - exact) <= ALPHA * exact * (1 + 1e-12)


@given(st.lists(st.lists(ANYTHING, max_size=20), max_size=8))
def test_shards_add_up_to_the_whole(shards: list[list[float]]) -> None:
    """Merging is therefore commutative and associative."""
    whole = sketch([value for shard in shards for value in shard])
    assert merged(*map(sketch, shards)) == whole
    singly = Sketch()
    for shard in shards:
        for value in shard:
            singly.add(value)
    assert singly == whole


@given(st.lists(st.lists(DURATIONS, max_size=20), max_size=8), SHARES)
def test_summed_rows_of_bins_are_the_merge(shards: list[list[float]], q: float) -> None:
    """`SELECT bin, SUM(n) … GROUP BY bin` merges sketches."""
    rows = [row for shard in shards for row in sketch(shard).counts.items()]
    grouped: dict[int, int] = {}
    for bin_, n in rows:
        grouped[bin_] = grouped.get(bin_, 0) + n
    whole = merged(*map(sketch, shards))
    assert grouped == whole.counts
    assert quantile_s(grouped, q) == whole.quantile_s(q)


def test_an_invalid_duration_is_counted_separately() -> None:
    odd = [-1.0, float("nan"), float("inf"), -float("inf"), 1e10, 0.0, 2.0]
    held = sketch(odd)
    assert (held.number, held.negative, held.unusable) == (2, 2, 3)
    assert (held.sum_ns, held.min_s, held.max_s) == (2 * 10**9, 0.0, 2.0)
    assert held.quantile_s(0.5) == 0
    assert Sketch().quantile_s(0.5) is None
    assert quantiles_s({}, (0.5, 0.9)) == []


@pytest.mark.parametrize("q", [0.0, 1.0, 99.0, float("nan")])
def test_a_share_outside_0_to_1_is_refused(q: float) -> None:
    for held in (Sketch(), sketch([1.0])):
        with pytest.raises(ValueError, match="between 0 and 1"):
            held.quantile_s(q)


def test_sums_of_the_longest_durations_do_not_overflow() -> None:
    """The sum exceeds 64 bits: 100 times 9e8 s, in nanoseconds."""
    longest = [9e8] * 100
    assert sketch(longest).sum_ns == 90_000_000_000 * 10**9


def test_ten_decades_take_some_thousand_bins_at_most() -> None:
    made = Sketch()
    made.add_column(np.geomspace(1e-4, 1e4, 100_000))
    assert len(made.counts) <= 922
