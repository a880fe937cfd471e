import numpy as np
import pytest

from benchmarks.alerting import (
    DAY_S,
    KINDS,
    OUTAGES,
    STEP_S,
    BuiltIn,
    Days,
    SentPage,
    by_burn_rate,
    by_error_rate,
    by_p99,
    two_days,
    users_affected,
)

HANG, _, DOWN = OUTAGES


@pytest.mark.parametrize(
    ("steps", "arrived", "affected", "deserves"),
    [
        (20, 10, 10, True),
        (19, 10, 10, False),  # 4.75 minutes
        (20, 10, 1, False),  # exactly a tenth
        (20, 10, 2, True),
        (20, 0, 0, False),
    ],
)
def test_a_page_is_correct_if_many_users_are_affected(
    steps: int, arrived: int, affected: int, deserves: bool
) -> None:
    """A paging alert is correct if more than a tenth of the requests of five minutes are bad."""
    assert users_affected(np.full(steps, arrived), np.full(steps, affected)) is deserves


def test_few_bad_requests_need_no_page() -> None:
    """Nine failures of nine requests in an hour need no page, but ten of ten do."""
    arrived = np.zeros(240, dtype=np.int64)
    arrived[::26][:9] = 1
    assert arrived.sum() == 9
    assert not users_affected(arrived, arrived)
    arrived[-1] = 1
    assert users_affected(arrived, arrived)


def test_a_hang_is_counted_at_its_end_and_an_absence_is_not_counted() -> None:
    for kind in (HANG, DOWN):
        days = two_days((1, 2), [kind], 4.0)
        (burn,) = days.burns
        assert burn.deserves
        inside = slice(burn.from_s // STEP_S + 1, burn.to_s // STEP_S - 1)
        assert not days.events[inside].any()
        assert days.absent[inside].all() == (kind is DOWN)
        assert (days.bad.max() > 1_000) == (kind is HANG)


def test_the_same_seed_makes_the_same_days() -> None:
    one, two, other = (two_days((seed, 0), KINDS, 4.0) for seed in (1, 1, 2))
    assert one.burns == two.burns
    assert (one.bad == two.bad).all()
    assert one.burns != other.burns


def test_each_rule_pages_of_a_total_failure() -> None:
    steps = 2 * DAY_S // STEP_S
    events = np.full(steps, 60, dtype=np.int64)
    bad = np.zeros(steps, dtype=np.int64)
    first, last = steps // 2, steps // 2 + 240
    bad[first:last] = 60
    days = Days([], events, bad, np.zeros(steps, dtype=bool))
    built_in = BuiltIn()
    for pages in (
        by_burn_rate(days, built_in),
        by_p99(days, built_in.objective.target),
        by_error_rate(days),
    ):
        (page,) = pages
        assert first * STEP_S < page.fired_s < first * STEP_S + 600


def test_absent_counters_page_only_by_the_rule_of_the_policy() -> None:
    """The two threshold rules have no data while the counters are absent."""
    steps = DAY_S // STEP_S
    absent = np.zeros(steps, dtype=bool)
    absent[100:200] = True
    events = np.where(absent, 0, 60)
    days = Days([], events, np.zeros(steps, dtype=np.int64), absent)
    built_in = BuiltIn()
    assert by_burn_rate(days, built_in) == [
        SentPage(101 * STEP_S + built_in.absent_for_s, 200 * STEP_S)
    ]
    assert not by_p99(days, built_in.objective.target)
    assert not by_error_rate(days)
