"""Policies are data, read strictly; targets that could never alert are told so."""

from collections.abc import Callable
from pathlib import Path

import pytest

from alerts.errors import DocumentError
from alerts.objectives import Objective
from alerts.policy import GOOGLE, impossible, load_policy

Make = Callable[..., Objective]


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("short: 5m", "short: 2h", "pairs.0..short: must be shorter than long: 1h"),
        ("short: 5m", "short: 5", "short: '5'; allowed: a whole number"),
        ("severity: page", "severity: wake", "severity: 'wake'; allowed: page, ticket"),
        ("0.02", "2", "budget_share: '2'; allowed: above 0"),
        ("0.02", "0.00", "budget_share: '0.00'; allowed: above 0"),
        ("events: 5", "events: 0", "minimum_bad_events: '0'; allowed"),
        ("source:", "sauce:", "sauce: no such key"),
    ],
)
def test_a_flaw_is_named(tmp_path: Path, before: str, after: str, says: str) -> None:
    """File, line, key, value, what is allowed."""
    file = tmp_path / "policy.yaml"
    file.write_text(GOOGLE.read_text().replace(before, after, 1))
    with pytest.raises(DocumentError, match=says):
        load_policy(file)


@pytest.mark.parametrize(
    ("target", "possible"), [("0.99", True), ("0.931", True), ("0.93", False), ("0.5", False)]
)
def test_a_target_that_can_never_page_is_told_so(
    objective: Make, target: str, possible: bool
) -> None:
    """The lowest that can is 1 − 1/14.4."""
    why = impossible(objective(target=target), load_policy())
    assert (why is None) is possible
    if why:
        assert "can never page by the 1h/5m windows" in why
        assert "allowed: above 93.06 %" in why


def test_the_lowest_target_depends_on_the_period(objective: Make) -> None:
    """Over a week the fast pair's factor is 3.36."""
    assert impossible(objective(target="0.9", period="7d"), load_policy()) is None
    why = impossible(objective(target="0.7", period="7d"), load_policy())
    assert why
    assert "3.36" in why
