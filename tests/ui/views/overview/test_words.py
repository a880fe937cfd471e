"""The Overview in words, mood by mood."""

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
from ui.frame.view import View
from ui.kit.slo_cards import card, windows
from ui.kit.slo_status import (
    SloIncident,
    SloState,
    burning_since_ns,
    goes_on,
    incident_of,
    overlapping,
)
from ui.kit.wording import code_html
from ui.views.overview.incidents import incidents
from ui.views.overview.words import EXAMPLE, answer, of_filters

DAY_S = 86_400
NOW_S = 1_790_000_000 // DAY_S * DAY_S + 43_200
(CHAT,) = inspect_texts({"chat.yaml": EXAMPLE}).spec.objectives
HOSTILE = "<script>alert(1)</script>\u202e"


def standing(
    bad: Iterable[tuple[int, int, int]] = (),
    *,
    burns: tuple[SloIncident, ...] = (),
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
    return SloState(status, history.counts(NOW_S - 900, NOW_S), burns)


def row(severity: str = "page", ended_s: int | None = None) -> IncidentRow:
    """A burn of the last half hour."""
    began = NOW_S - 1_800
    return IncidentRow("chat", severity, began + 300, began, NOW_S, ended_s, NOW_S, "11", "1/40")


def burn(kept: IncidentRow, bad: int | None = None, cause: str | None = None) -> SloIncident:
    """The incident of one row."""
    return SloIncident(
        kept,
        kept.severity,
        kept.began_unix_s,
        kept.ended_unix_s,
        Fraction(kept.peak_burn),
        kept.peak_unix_s,
        Fraction(1, 40),
        bad,
        cause,
    )


def said(*found: SloState, requests: int = 9_999) -> tuple[str, str]:
    """Mood and sentence."""
    told = answer(found, requests, 900, UTC)
    return told.mood, told.sentence


def test_a_burn_that_pages_says_how_fast_since_when_and_for_how_many() -> None:
    """With the SLO's name."""
    mood, sentence = said(standing([(0, 5_000, 5_000)], burns=(burn(row(), 812),)))
    assert mood == "hurt"
    assert sentence.startswith("SLO “chat” is ")
    assert "<b>45.5× too fast</b> since <b>11:30</b>; <b>812 requests</b> missed it" in sentence


def test_a_burn_is_reported_without_an_evaluator() -> None:
    """By its windows, where no incident was stored."""
    mood, sentence = said(standing([(0, 5_000, 5_000)]))
    assert mood == "hurt"
    assert "(last 1h)" in sentence


def test_a_burn_that_makes_a_ticket_says_so() -> None:
    """It does not page."""
    mood, sentence = said(standing(burns=(burn(row("ticket"), 30),)))
    assert mood == "near"
    assert "slow enough for a ticket" in sentence


def test_a_page_and_a_ticket_that_overlap_are_one_incident() -> None:
    """The page names it, and its peak is never below the burn of now."""
    found = standing([(0, 5_000, 5_000)])
    earlier = IncidentRow(
        *("chat", "ticket", NOW_S - 3_000, NOW_S - 3_600, NOW_S, None, NOW_S - 600, "12", "1/20")
    )
    over = row("ticket", NOW_S - 90_000)
    before = replace(over, began_unix_s=NOW_S - 99_000, fired_unix_s=NOW_S - 98_000)
    groups = overlapping([row(), earlier, before])
    assert [len(each) for each in groups] == [2, 1]
    history = History(NOW_S - 40 * DAY_S, [Bucket(NOW_S, Counts(7, 9))], 15)
    one = incident_of(groups[0], found.status, history, {("ticket", NOW_S - 3_000): "prefills"})
    assert (one.row.severity, one.severity, one.goes_on) == ("page", "page", True)
    assert (one.began_unix_s, one.bad, one.cause) == (NOW_S - 3_600, 7, "prefills")
    assert one.budget_spent == Fraction(1, 20)
    assert one.peak_burn == max(filter(None, found.status.burns.values()))
    assert one.peak_unix_s == NOW_S
    last = incident_of(groups[1], found.status, history, {})
    assert not last.goes_on
    assert last.bad is None
    assert last.peak_burn == Fraction(11)


def test_a_budget_that_is_spent_is_reported_when_nothing_burns() -> None:
    """With by how much more."""
    mood, sentence = said(standing([(20 * DAY_S, 90_000, 90_000)]))
    assert mood == "near"
    assert "has spent its" in sentence


def test_too_few_requests_are_no_answer() -> None:
    """No data is not zero, and requests that count for no SLO are named."""
    quiet = standing(hourly=0)
    assert said(quiet, requests=0)[0] == "unknown"
    assert "none of 3,000 requests counted for an SLO in 15 min" in said(quiet, requests=3_000)[1]


@pytest.mark.parametrize(
    ("bad", "mood", "share"), [(0, "fine", "100 %"), (1, "fine", "99 %"), (40, "near", "60 %")]
)
def test_with_filters_the_answer_is_about_their_requests(bad: int, mood: str, share: str) -> None:
    """The objective that they miss most speaks."""
    other = replace(CHAT, name="talk", target=Fraction(1, 2), target_written="50 %")
    view = View(equals={"tenant": HOSTILE})
    judged = [(other, Counts(0, 100)), (CHAT, Counts(bad, 100))]
    found = of_filters(view, judged, 900)
    assert found.mood == mood
    assert f"{share} of 100 requests in 15 min met SLO “" in found.sentence
    assert "<script" not in found.sentence
    if bad > 0:
        assert f"“chat” (target 99 %); <b>{bad}</b> missed it." in found.sentence
    assert of_filters(view, [(CHAT, Counts(0, 0))], 900).mood == "unknown"


@pytest.mark.parametrize("reason", REASONS)
def test_a_blind_objective_is_never_an_all_clear(reason: str) -> None:
    """Whatever was counted: requests come in that are not. The card says what to do."""
    blind = replace(standing(), blind=reason)
    mood, sentence = said(standing(), blind)
    assert mood == "near"
    assert sentence.startswith(
        "<b>Unknown:</b> requests arrive, but SLO “chat” does not count them: "
    )
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
    assert "paging</span>" in card(burning)


def test_a_burn_that_is_held_back_says_why() -> None:
    """Which one, and how fast it burns."""
    mood, sentence = said(standing([(0, 500, 500)], hourly=0, since_s=NOW_S - 300, objective=CHAT))
    assert mood == "near"
    assert "may be" in sentence
    assert "no alert yet: not enough history" in sentence


def test_objectives_that_are_met_are_fine() -> None:
    """The one closest to its target speaks for all."""
    other = replace(CHAT, name="talk", target=Fraction(1, 2), target_written="50 %")
    mood, sentence = said(standing([(0, 20, 4_000)]), standing(objective=other))
    assert mood == "fine"
    assert "All 2 SLOs are met; closest to its target is SLO “chat”: <b>99.8 %</b>" in sentence
    assert "in 15 min were good (target 99 %)" in sentence


def test_a_young_burn_is_reported_before_it_alerts() -> None:
    """By the shortest window, which reacts first."""
    mood, sentence = said(standing([(0, 40, 100), (600, 0, 9_000)], hourly=1_000))
    assert mood == "near"
    assert "SLO “chat” is met: " in sentence
    assert "burned <b>3.64×</b> too fast in the last 5m; 14.4× alerts" in sentence


def test_below_the_target_without_an_alert_is_near() -> None:
    """It is no lie that nothing alerts, and none that the range was bad."""
    mood, sentence = said(standing([(0, 120, 3_000)]))
    assert mood == "near"
    assert "SLO “chat” is missed: only <b>" in sentence
    assert "nothing burns fast enough to alert" in sentence


def test_an_incident_leads_to_its_cause() -> None:
    """By its name: the page reads its range and what it is compared with, as the command does."""
    told = incidents([standing(burns=(burn(row()),))], UTC)
    assert f"<a href='root-cause?incident=chat%40{row().fired_unix_s}'>Find the cause</a>" in told


def test_incidents_are_told_with_what_is_known_of_them() -> None:
    """Those that go on first; what nobody knows is left out."""
    over = burn(row("ticket", NOW_S - 60), None, f"prefills {HOSTILE}")
    told = incidents([standing(burns=(over, burn(row(), 3)))], UTC)
    assert told.index("for 30 min so far") < told.index("for 29 min")
    assert "3 requests missed it" in told
    assert "spent 2.5 % of the error budget" in told
    assert "prefills &lt;script&gt;" in told
    assert "<script" not in told
    assert "None in this range" in incidents([standing()], UTC)


def test_an_incident_goes_on_until_it_ended() -> None:
    """As of an instant before its end it is under way."""
    assert goes_on(row(), NOW_S)
    assert goes_on(row(ended_s=NOW_S), NOW_S - 1)
    assert not goes_on(row(ended_s=NOW_S), NOW_S)


def test_a_card_tells_budget_pace_and_windows() -> None:
    """And of a period that is known in part, that it is."""
    told = card(standing([(0, 5_000, 5_000)], since_s=NOW_S - DAY_S))
    assert "of the error budget left" in told
    assert "gone in" in told
    assert "counted for 1 d so far" in told
    assert "paging" in told
    assert "first token ≤ 500 ms, then ≤ 50 ms per token" in told
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
    found = standing(burns=(burn(row(ended_s=ended_s), None),))
    window = Window((NOW_S - length_s) * 10**9, NOW_S * 10**9)
    began_ns = burning_since_ns([found], window)
    assert began_ns == (None if since_s is None else since_s * 10**9)
