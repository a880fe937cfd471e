from dataclasses import replace

import numpy as np
import pytest

from analysis.compare.decision import Criteria, decide, thinned
from analysis.compare.parts import ObservedRequests
from analysis.compare.sentences import compared, four_digits
from analysis.compare.verdict import CompareVerdict
from tests.analysis.compare.observed import observed


def test_a_slower_server_is_worse_by_its_factor() -> None:
    found = decide(observed(2000, 1), observed(2000, 2, factor=1.2, prompts=1.3), Criteria(0.95))
    assert found.verdict is CompareVerdict.WORSE
    assert found.ratio is not None
    assert found.ratio.low < 0.2 < found.ratio.high
    assert found.change_s is not None
    assert found.change_s.low < found.parts.change_s < found.change_s.high  # type: ignore[union-attr]


def test_a_faster_server_is_better() -> None:
    found = decide(observed(2000, 1), observed(2000, 2, factor=0.8), Criteria(0.5))
    assert found.verdict is CompareVerdict.BETTER


@pytest.mark.parametrize("seed", range(2))
def test_identical_windows_are_neither_worse_nor_better(seed: int) -> None:
    side = observed(1000, seed)
    found = decide(side, side, Criteria(0.95))
    assert found.verdict in (CompareVerdict.NO_WORSE, CompareVerdict.UNDECIDED)
    assert all("the margin is 5 %;" in each for each in found.reasons)
    assert found.change_ratio == pytest.approx(0.0, abs=0.03)


def test_longer_prompts_and_more_load_are_no_change() -> None:
    found = decide(observed(2000, 1), observed(2000, 2, prompts=1.5, load=10.0), Criteria(0.5))
    assert found.verdict is CompareVerdict.NO_WORSE
    assert found.parts is not None
    assert found.parts.mix_s > 0.005


@pytest.mark.parametrize(("before", "after"), [(0, 0), (500, 0), (99, 500)])
def test_too_few_requests_are_undecided_with_the_number(before: int, after: int) -> None:
    found = decide(observed(before, 1), observed(after, 2), Criteria(0.5))
    assert found.verdict is CompareVerdict.UNDECIDED
    assert found.parts is None
    assert "needs at least 100" in found.reasons[0]


SIDE, AFTER = observed(1000, 1), observed(1000, 2)
BURST = replace(SIDE, at_s=np.linspace(0, 6, 1000))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (SIDE, observed(1000, 2, load=60.0), "with more work"),
        (SIDE, replace(AFTER, group=AFTER.group + 10), "tenant"),
        (BURST, BURST, "Choose a longer range"),
    ],
)
def test_sides_that_cannot_be_compared_are_undecided(
    before: ObservedRequests, after: ObservedRequests, reason: str
) -> None:
    found = decide(before, after, Criteria(0.95))
    assert found.verdict is CompareVerdict.UNDECIDED
    assert found.before_s is not None
    assert any(reason in each for each in found.reasons)


def test_a_much_slower_server_is_worse_although_most_requests_meet_more_work() -> None:
    """Most requests have no counterpart at equal load. The others are clearly slower."""
    before, slower = observed(2000, 1, load=4.0), observed(2000, 2, factor=2.0, load=16.0)
    found = decide(before, slower, Criteria(0.5))
    assert 0.1 < found.compared_ratio < 0.5
    assert found.verdict is CompareVerdict.WORSE
    assert "have a counterpart" in found.reasons[0]
    equal = decide(before, observed(2000, 2, load=16.0), Criteria(0.5))
    assert equal.verdict is CompareVerdict.UNDECIDED
    assert equal.parts is None


def test_requests_that_are_not_compared_are_named() -> None:
    after = observed(1000, 2)
    new = np.arange(1000) % 5 == 0
    found = decide(
        observed(1000, 1), replace(after, group=np.where(new, 9, after.group)), Criteria(0.5)
    )
    assert found.verdict is CompareVerdict.NO_WORSE
    assert found.compared_ratio < 0.81
    named = "20.0% have a new model, tenant, route or adapter"
    assert any(each == named for each in found.uncompared)
    assert f"Not compared: {found.uncompared[0]}" in compared(found)
    assert compared(found).startswith("80% of the requests")
    most = replace(found, compared_ratio=0.9999)
    assert compared(most).startswith("99.99% of the requests")
    shares = sum(float(each.partition("%")[0]) for each in found.uncompared)
    assert shares == pytest.approx(100 * (1 - found.compared_ratio), abs=0.2)


def test_queueing_times_of_zero_are_compared() -> None:
    side = observed(1000, 1)
    zero = replace(side, value_s=np.zeros(1000))
    found = decide(zero, zero, Criteria(0.95, floor_s=1e-3))
    assert found.verdict is CompareVerdict.NO_WORSE
    slower = replace(side, value_s=np.full(1000, 0.5))
    assert decide(zero, slower, Criteria(0.95, floor_s=1e-3)).verdict is CompareVerdict.WORSE


def test_the_curve_shows_a_change_with_an_effect_only_under_load() -> None:
    after = observed(4000, 2)
    late = after.running >= 9
    worse = replace(after, value_s=np.where(late, after.value_s * 1.5, after.value_s))
    curve = decide(observed(4000, 1), worse, Criteria(0.5)).curve
    assert len(curve) >= 3
    assert curve[0].low_s < 0 < curve[0].high_s
    assert curve[-1].low_s > 0
    assert [each.load for each in curve] == sorted(each.load for each in curve)


def test_a_large_side_is_sampled_evenly() -> None:
    assert thinned(10_000).size == 10_000
    assert thinned(25_000).tolist() == list(range(0, 25_000, 3))
    assert thinned(0).size == 0


def test_numbers_have_no_exponent() -> None:
    assert [four_digits(each) for each in (17_970.4, 8_062.3, 999.97, 12.345, 0.5)] == [
        *("17970", "8062", "1000", "12.35", "0.5")
    ]


def overloaded_after(seconds: float) -> ObservedRequests:
    """Return a slow server that can be compared only in the first seconds; then load grows."""
    after = observed(4000, 2, factor=2.0, load=4.0)
    late = after.at_s >= seconds
    return replace(after, load=np.where(late[:, None], 60.0, after.load))


def test_blocks_without_compared_requests_do_not_count() -> None:
    """A resample of blocks must not be able to miss every compared request."""
    found = decide(observed(4000, 1, load=4.0), overloaded_after(60.0), Criteria(0.5))
    assert found.compared_ratio < 0.2
    assert found.blocks == 12
    assert found.verdict is CompareVerdict.WORSE
    assert found.log_error is not None


def test_requests_that_are_compared_in_too_few_blocks_are_undecided() -> None:
    after = overloaded_after(45.0)
    after = replace(after, at_s=np.where(after.at_s < 45.0, after.at_s / 3, after.at_s))
    found = decide(observed(4000, 1, load=4.0), after, Criteria(0.5))
    assert found.compared_ratio > 0.1
    assert found.verdict is CompareVerdict.UNDECIDED
    assert "3 blocks of time" in found.reasons[0]


def test_a_point_of_the_curve_needs_enough_blocks_of_time() -> None:
    """The load grows, so the requests of each point arrived in a few consecutive blocks."""
    before, after = (
        replace(each, running=np.floor(each.at_s / each.at_s.max() * 5.999))
        for each in (observed(4000, 1), observed(4000, 2))
    )
    short = decide(before, after, Criteria(0.5))
    assert short.blocks == 20
    assert not short.curve
    longer = replace(after, at_s=after.at_s * 9)  # 60 blocks of a minute
    found = decide(replace(before, at_s=before.at_s * 9), longer, Criteria(0.5))
    assert found.blocks == 60
    assert len(found.curve) >= 3
