from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.burnrate import detection_s
from alerts.errors import DocumentError
from alerts.policy import MAX_BAD_RATIO, POLICIES, built_in, policy_for, read_policy
from telemetry import durations

DAY_S = 86_400
HUNDREDTH = Fraction(1, 100)


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("short: 5m", "short: 2h", "pairs.0..short: must be shorter than long: 1h"),
        ("short: 5m", "short: 5", "short: '5'; allowed: a whole number"),
        ("severity: page", "severity: wake", "severity: 'wake'; allowed: page, ticket"),
        ("0.02", "2", "budget_share: '2'; allowed: above 0"),
        ("0.02", "0.00", "budget_share: '0.00'; allowed: above 0"),
        ("events: 5", "events: 0", "minimum_bad_events: '0'; allowed"),
        ("period: 30d", "period: 30", "period: '30'; allowed: a whole number"),
        ("source:", "sauce:", "sauce: no such key"),
    ],
)
def test_a_flaw_is_named(tmp_path: Path, before: str, after: str, wanted: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text((POLICIES / "30d.yaml").read_text().replace(before, after, 1))
    with pytest.raises(DocumentError, match=wanted):
        read_policy(file)


@pytest.mark.parametrize(
    ("days", "shares", "factors"),
    [
        (7, ["0.08", "0.125", "0.2", "0.42"], [13.44, 3.5, 1.4, 0.98]),
        (28, ["0.02", "0.05", "0.1", "0.1"], [13.44, 5.6, 2.8, 0.933]),
        (30, ["0.02", "0.05", "0.1", "0.1"], [14.4, 6, 3, 1]),
    ],
)
def test_windows_shares_and_factors_equal_sloths(
    days: int, shares: list[str], factors: list[float]
) -> None:
    """Source: slok/sloth, examples/windows/7d.yaml, google-28d.yaml and google-30d.yaml."""
    (file,) = (each for each in built_in() if each.period_s == days * DAY_S)
    assert [each.budget_share for each in file.windows] == [Fraction(share) for share in shares]
    pairs = policy_for(days * DAY_S, HUNDREDTH).pairs
    assert [round(float(pair.factor), 3) for pair in pairs] == factors
    assert [
        (pair.severity, durations.render(pair.long_s), durations.render(pair.short_s))
        for pair in pairs
    ] == [
        ("page", "1h", "5m"),
        ("page", "6h", "30m"),
        ("ticket", "1d", "2h"),
        ("ticket", "3d", "6h"),
    ]


def test_a_fortnights_shares_lie_between_a_weeks_and_four_weeks() -> None:
    """Each share is the geometric mean of the shares for one and four weeks, to four digits."""
    by_days = {each.period_s // DAY_S: each.windows for each in built_in()}
    for week, fortnight, four in zip(by_days[7], by_days[14], by_days[28], strict=True):
        mean = (float(week.budget_share) * float(four.budget_share)) ** 0.5
        assert float(fortnight.budget_share) == pytest.approx(mean, abs=5e-5)


@pytest.mark.parametrize(
    ("target", "factors"),
    [
        ("0.99", ["14.4", "6", "3", "1"]),
        ("0.94", ["14.4", "6", "3", "1"]),
        ("0.93", ["12.857", "6", "3", "1"]),
        ("0.9", ["9", "6", "3", "1"]),
        ("0.8", ["4.5", "3", "1"]),
        ("0.5", ["1.8", "1.8", "1"]),
    ],
)
def test_a_loose_targets_factors_are_those_that_a_total_failure_reaches(
    target: str, factors: list[str]
) -> None:
    """The factor of a pair is at most 0.9 times the burn rate that results if all events are bad.

    If this limit gives two pairs of one severity the same factor, the second pair is omitted.
    """
    pairs = policy_for(30 * DAY_S, 1 - Fraction(target)).pairs
    assert [f"{float(pair.factor):.5g}" for pair in pairs] == factors


@given(st.integers(7, 366), st.fractions(Fraction(1, 10**6), Fraction(999, 1000)))
def test_every_objective_pages_and_tickets_when_everything_fails(
    days: int, budget: Fraction
) -> None:
    pairs = policy_for(days * DAY_S, budget).pairs
    assert {pair.severity for pair in pairs} == {"page", "ticket"}
    for pair in pairs:
        after_s = detection_s(pair, budget, Fraction(1))
        assert after_s is not None
        assert after_s <= MAX_BAD_RATIO * pair.long_s
        assert pair.factor >= min(Fraction(9, 10), MAX_BAD_RATIO / budget)
