"""The answer to "Overview", mood by mood."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC
from fractions import Fraction
from typing import Any

import pytest

from alerts.blindness import REASONS
from alerts.burnrate import Counts
from alerts.evaluation.status import status_at
from alerts.history import Bucket, History
from alerts.objectives import Objective
from alerts.openslo.reader import inspect_texts
from store.alerting.incidents import IncidentRow
from store.queries import Window
from ui.kit.slo_cards import card, windows
from ui.kit.slo_status import SloIncident, SloState, burning_since_ns, goes_on
from ui.kit.wording import code_html
from ui.views.overview.incidents import happened
from ui.views.overview.words import EXAMPLE, answer

DAY_S = 86_400
NOW_S = 1_790_000_000 // DAY_S * DAY_S + 43_200
(CHAT,) = inspect_texts({"chat.yaml": EXAMPLE}).spec.objectives
HOSTILE = "<script>alert(1)</script>\u202e"


def standing(
    bad: Iterable[tuple[int, int, int]] = (),
    *,
    incidents: tuple[SloIncident, ...] = (),
    objective: Objective = CHAT,
    since_s: int = NOW_S - 40 * DAY_S,
    hourly: int = 6_000,
) -> SloState:
    """A month of steady traffic, but for stretches (seconds ago, bad, events)."""
    buckets = [
        Bucket(at, Counts(0, hourly)) for at in range(NOW_S - 30 * DAY_S + 3_600, NOW_S + 1, 3_600)
    ]
    buckets += [Bucket(NOW_S - ago, Counts(broken, events)) for ago, broken, events in bad]
    history = History(since_s, buckets if hourly or bad else [], 15)
    status = status_at(objective, history, since_s, {}, NOW_S)
    return SloState(status, history.counts(NOW_S - 900, NOW_S), incidents)


def row(severity: str = "page", ended_s: int | None = None) -> IncidentRow:
    """A burn of the last half hour."""
    began = NOW_S - 1_800
    return IncidentRow("chat", severity, began + 300, began, NOW_S, ended_s, NOW_S, "11", "1/40")


def said(*found: SloState, requests: int = 9_999) -> tuple[str, str]:
    """Mood and sentence."""
    told = answer(found, requests, 900, UTC)
    return told.mood, told.sentence


def test_a_burn_that_pages_is_a_yes() -> None:
    """With how fast, since when and for how many."""
    mood, sentence = said(standing([(0, 5_000, 5_000)], incidents=(SloIncident(row(), 812),)))
    assert mood == "hurt"
    assert sentence.startswith("<b>Yes:</b> chat burns its")
    assert "45.5×" in sentence
    assert "since <b>11:30</b>, for <b>812 requests</b>" in sentence


def test_without_an_evaluator_a_burn_is_a_yes_all_the_same() -> None:
    """The windows say so, though nobody has kept an incident."""
    mood, sentence = said(standing([(0, 5_000, 5_000)]))
    assert mood == "hurt"
    assert "(last 1h)" in sentence


def test_a_ticket_is_not_enough_to_wake_anyone() -> None:
    """Told as such."""
    mood, sentence = said(standing(incidents=(SloIncident(row("ticket"), 30),)))
    assert mood == "near"
    assert "Not enough to wake anyone" in sentence


def test_a_budget_that_is_spent_is_told_when_nothing_burns() -> None:
    """What breaks the promise now breaks it for the period."""
    mood, sentence = said(standing([(20 * DAY_S, 90_000, 90_000)]))
    assert mood == "near"
    assert "has spent its" in sentence


def test_too_few_requests_are_too_little_to_tell() -> None:
    """No data is not zero, and a promise of other requests is named as the reason."""
    quiet = standing(hourly=0)
    assert said(quiet, requests=0)[0] == "unknown"
    assert (
        "of 3,000 requests the promise speaks of none in 15 min" in said(quiet, requests=3_000)[1]
    )


@pytest.mark.parametrize("reason", REASONS)
def test_a_blind_objective_is_never_an_all_clear(reason: str) -> None:
    """Whatever was counted: requests come in that are not. The card says what to do."""
    blind = replace(standing(), blind=reason)
    mood, sentence = said(standing(), blind)
    assert mood == "near"
    assert sentence.startswith("<b>Unknown:</b> requests come in, but chat does not count them: ")
    assert code_html(REASONS[reason].why) in sentence
    for each in (blind, replace(standing(hourly=0), blind=reason)):
        shown = card(each)
        assert "<span class='state near'>blind</span>" in shown
        assert "Blind in the last hour" in shown
        assert code_html(REASONS[reason].remedy) in shown


def test_a_burn_comes_before_blindness() -> None:
    """What is counted burns: that is the answer."""
    burning = replace(standing([(0, 5_000, 5_000)]), blind="unknown")
    assert said(burning)[0] == "hurt"
    assert "pages</span>" in card(burning)


def test_a_guard_that_holds_back_is_a_perhaps() -> None:
    """Which one, and how fast it burns."""
    mood, sentence = said(standing([(0, 500, 500)], hourly=0, since_s=NOW_S - 300, objective=CHAT))
    assert mood == "near"
    assert "<b>Perhaps:</b>" in sentence
    assert "not watched for long enough" in sentence


def test_promises_that_are_kept_are_a_no() -> None:
    """The one closest to breaking speaks for all."""
    other = replace(CHAT, name="talk", target=Fraction(1, 2), target_written="50 %")
    mood, sentence = said(standing([(0, 20, 4_000)]), standing(objective=other))
    assert mood == "fine"
    assert "<b>No:</b> all 2 promises are kept, closest chat: <b>99.8 %</b> of" in sentence
    assert "in 15 min (99 % promised)" in sentence


def test_a_burn_that_is_young_is_a_not_yet() -> None:
    """The shortest window is the first to tell, long before anyone is woken."""
    mood, sentence = said(standing([(0, 40, 100), (600, 0, 9_000)], hourly=1_000))
    assert mood == "near"
    assert "<b>Not yet:</b> the promise is kept" in sentence
    assert "the last 5m burn chat’s" in sentence
    assert "<b>3.64×</b>, and 14.4× would alert" in sentence


def test_below_the_target_without_an_alert_is_a_little() -> None:
    """It is no lie that nothing alerts, and none that the range was bad."""
    mood, sentence = said(standing([(0, 120, 3_000)]))
    assert mood == "near"
    assert "<b>A little:</b> nothing burns fast enough to alert, but chat kept" in sentence


def test_an_incident_leads_to_its_reasons() -> None:
    """By its name: the page reads its range and what it is compared with, as the command does."""
    told = happened([standing(incidents=(SloIncident(row()),))], UTC)
    assert f"<a href='root-cause?incident=chat%40{row().fired_unix_s}'>Why is it slow?</a>" in told


def test_incidents_are_told_with_what_is_known_of_them() -> None:
    """Those that go on first; what nobody knows is left out."""
    over = SloIncident(row("ticket", NOW_S - 60), None, f"prefills {HOSTILE}")
    told = happened([standing(incidents=(over, SloIncident(row(), 3)))], UTC)
    assert told.index("goes on for 30 min") < told.index("for 29 min")
    assert "3 requests broke the promise" in told
    assert "spent 2.5 % of the budget" in told
    assert "prefills &lt;script&gt;" in told
    assert "<script" not in told
    assert "None in this range" in happened([standing()], UTC)


def test_an_incident_goes_on_until_it_ended() -> None:
    """As of an instant before its end it is under way."""
    assert goes_on(row(), NOW_S)
    assert goes_on(row(ended_s=NOW_S), NOW_S - 1)
    assert not goes_on(row(ended_s=NOW_S), NOW_S)


def test_a_card_tells_budget_pace_and_windows() -> None:
    """And of a period that is known in part, that it is."""
    told = card(standing([(0, 5_000, 5_000)], since_s=NOW_S - DAY_S))
    assert "of the budget left" in told
    assert "gone in" in told
    assert "counted for 1 d so far" in told
    assert "pages" in told
    assert windows(standing()).count("<tr>") == 5
    assert "Nothing to count yet" in card(standing(hourly=0))


def test_hostile_names_are_text() -> None:
    """They come from files that somebody else may have written."""
    objective: Any = replace(CHAT, display_name=HOSTILE, description=HOSTILE)
    assert "<script" not in card(standing(objective=objective))


@pytest.mark.parametrize(
    ("length_s", "ended_s", "since_s"),
    [
        (900, None, NOW_S - 1_800),
        (900, NOW_S - 1_000, NOW_S - 1_800),
        (600, NOW_S - 1_300, None),
        (3_600, None, None),
    ],
)
def test_what_burned_just_before_is_not_usual(
    length_s: int, ended_s: int | None, since_s: int | None
) -> None:
    """Of a burn that began in the range itself the stretch before is still what is usual; one
    that ended before that stretch is over."""
    found = standing(incidents=(SloIncident(row(ended_s=ended_s), None),))
    window = Window((NOW_S - length_s) * 10**9, NOW_S * 10**9)
    began_ns = burning_since_ns([found], window)
    assert began_ns == (None if since_s is None else since_s * 10**9)
