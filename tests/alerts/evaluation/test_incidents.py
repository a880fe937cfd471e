from collections.abc import Callable
from fractions import Fraction
from random import Random

import pytest

from alerts.burnrate import EventCounts
from alerts.evaluation.incidents import Incident, advance, budget_spent
from alerts.history import History, HistoryBucket
from alerts.objectives import Objective

MakeObjective = Callable[..., Objective]
PagesOf = Callable[..., list[Incident]]


HOUR_S = 3600


@pytest.fixture
def pages_of(objective: MakeObjective) -> Callable[..., list[Incident]]:
    def run(*bad: tuple[int, int], until_s: int = 4 * HOUR_S) -> list[Incident]:
        buckets = [
            HistoryBucket(at, EventCounts(int(any(a < at <= b for a, b in bad)), 1))
            for at in range(until_s)
        ]
        history = History(0, buckets, 15)
        found: list[Incident] = []
        current: Incident | None = None
        for at_s in range(0, until_s, 15):
            current = advance(current, objective(), "page", history, at_s)
            if current is not None and current.ended_s is not None:
                found.append(current)
                current = None
        return [*found, current] if current is not None else found

    return run


def test_a_burn_has_its_start_its_peak_and_its_end(pages_of: PagesOf) -> None:
    """An incident starts when its burn starts, which is before its alert."""
    (incident,) = pages_of((2 * HOUR_S, 2 * HOUR_S + 1800))
    assert abs(incident.began_s - 2 * HOUR_S) <= 60
    assert abs(incident.fired_s - (2 * HOUR_S + 518)) <= 15
    assert incident.ended_s is not None
    assert 2 * HOUR_S + 1800 < incident.ended_s < 2 * HOUR_S + 1800 + 1800
    assert 49 <= incident.peak_burn <= 51
    assert abs(incident.peak_s - (2 * HOUR_S + 1800)) <= 15


@pytest.mark.parametrize("seed", range(5))
def test_ordinary_noise_before_a_burn_does_not_move_its_start(
    objective: MakeObjective, seed: int
) -> None:
    """At a burn rate of 0.9, four of ten minutes exceed the budget by chance."""
    chance = Random(seed)
    start_s = 3 * HOUR_S
    buckets = [
        HistoryBucket(at, EventCounts(sum(chance.random() < bad for _ in range(10)), 10))
        for at in range(start_s + 1_800)
        for bad in [0.009 if at < start_s else 0.4]
    ]
    history = History(0, buckets, 15)
    fired = (
        advance(None, objective(), "page", history, at_s)
        for at_s in range(start_s, start_s + 1_800, 15)
    )
    incident = next(filter(None, fired))
    assert abs(incident.began_s - start_s) <= 120


def test_a_burn_that_pauses_is_one_incident_and_two_burns_are_two(pages_of: PagesOf) -> None:
    assert len(pages_of((HOUR_S, HOUR_S + 900), (HOUR_S + 1080, HOUR_S + 1900))) == 1
    assert len(pages_of((HOUR_S, HOUR_S + 900), (3 * HOUR_S, 3 * HOUR_S + 1200))) == 2


def test_good_hours_have_no_incident(pages_of: PagesOf) -> None:
    assert pages_of() == []
    assert pages_of((HOUR_S, HOUR_S + 60)) == []


def test_the_budget_spent_by_a_burn_is_a_share_of_the_period(objective: MakeObjective) -> None:
    """Time without data counts as good."""
    history = History(0, [HistoryBucket(at, EventCounts(1, 1)) for at in range(1, 1001)], 0)
    incident = Incident("chat", "page", 500, 600, 1000, Fraction(20), 600)
    assert budget_spent(incident, history, objective()) == Fraction(500, 30 * 86_400) * 100
    assert budget_spent(incident, History(0, [], 0), objective()) is None
