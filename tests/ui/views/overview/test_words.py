from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC
from fractions import Fraction
from typing import Any

import pytest

from alerts.blindness import REASONS
from alerts.burnrate import EventCounts
from alerts.evaluation.status import status_at
from alerts.history import History, HistoryBucket
from alerts.objectives import Objective
from alerts.openslo.reader import inspect_texts
from analysis.slo_states import (
    SloIncident,
    SloState,
    burning_since_ns,
    incident_of,
    is_open,
    overlapping,
)
from telemetry.incidents import IncidentRow
from telemetry.window import Window
from ui.frame.view import View
from ui.kit.slo_cards import card, windows
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
    """Return the status after a month of steady traffic and these bad events.

    Args:
        bad: (seconds ago, number of bad events, number of events).
    """
    buckets = [
        HistoryBucket(at, EventCounts(0, hourly))
        for at in range(NOW_S - 30 * DAY_S + 3_600, NOW_S + 1, 3_600)
    ]
    buckets += [
        HistoryBucket(NOW_S - ago, EventCounts(broken, events)) for ago, broken, events in bad
    ]
    history = History(since_s, buckets if hourly or bad else [], 15)
    status = status_at(objective, history, since_s, {}, NOW_S)
    return SloState(status, history.counts(NOW_S - 900, NOW_S), NOW_S - 900, burns)


def row(severity: str = "page", ended_s: int | None = None) -> IncidentRow:
    began = NOW_S - 1_800
    return IncidentRow("chat", severity, began + 300, began, NOW_S, ended_s, NOW_S, "11", "1/40")


def burn(kept: IncidentRow, bad: int | None = None, cause: str | None = None) -> SloIncident:
    return SloIncident(
        kept,
        kept.severity,
        kept.began_unix_s,
        kept.ended_unix_s,
        Fraction(kept.peak_burn),
        kept.peak_unix_s,
        False,
        Fraction(1, 40),
        bad,
        cause,
    )


def mood_and_sentence(*found: SloState, requests: int = 9_999) -> tuple[str, str]:
    reported = answer(found, requests, 900, UTC)
    return reported.mood, reported.sentence


TALK = replace(CHAT, name="talk", target=Fraction(1, 2), target_written="50 %")
ALL_BAD = (0, 5_000, 5_000)


@pytest.mark.parametrize(
    ("found", "mood", "words"),
    [
        (
            [standing([ALL_BAD], burns=(burn(row(), 812),))],
            "bad",
            ["<b>45.5× too fast</b> since <b>11:30</b>; <b>812 requests</b> missed it"],
        ),
        (
            [standing([ALL_BAD], burns=(burn(replace(row(), began_unix_s=NOW_S - DAY_S), 9),))],
            "bad",
            ["since <b>2026-09-20 12:00</b>; <b>9 requests</b> missed it"],
        ),
        ([standing([ALL_BAD])], "bad", ["(last 1h)"]),
        ([standing(burns=(burn(row("ticket"), 30),))], "near", ["the alert is a ticket"]),
        ([standing([(20 * DAY_S, 90_000, 90_000)])], "near", ["has spent its"]),
        (
            [standing([(0, 500, 500)], hourly=0, since_s=NOW_S - 300)],
            "near",
            ["may be", "no alert yet: not enough history"],
        ),
        (
            [standing([(0, 20, 4_000)]), standing(objective=TALK)],
            "fine",
            [
                "All 2 SLOs are met; closest to its target is SLO “chat”: <b>99.8 %</b>",
                "in 15 min were good (target 99 %)",
            ],
        ),
        (
            [standing([(0, 40, 100), (600, 0, 9_000)], hourly=1_000)],
            "near",
            [
                "SLO “chat” is met: ",
                "burned <b>3.64×</b> too fast in the last 5m; the alert threshold is 14.4×",
            ],
        ),
        (
            [standing([(0, 120, 3_000)])],
            "near",
            ["SLO “chat” is missed: only <b>", "the burn rate is too low to alert"],
        ),
    ],
    ids=[
        "page",
        "since yesterday",
        "no evaluator",
        "ticket",
        "spent",
        "held back",
        "met",
        "young",
        "missed",
    ],
)
def test_the_answer(found: list[SloState], mood: str, words: list[str]) -> None:
    reported = answer(found, 9_999, 900, UTC)
    assert reported.mood == mood
    assert all(each in reported.sentence for each in words)


def test_a_page_and_a_ticket_that_overlap_are_one_incident() -> None:
    found = standing([ALL_BAD])
    earlier = IncidentRow(
        *("chat", "ticket", NOW_S - 3_000, NOW_S - 3_600, NOW_S, None, NOW_S - 600, "12", "1/20")
    )
    over = row("ticket", NOW_S - 90_000)
    before = replace(over, began_unix_s=NOW_S - 99_000, fired_unix_s=NOW_S - 98_000)
    groups = overlapping([row(), earlier, before])
    assert [len(each) for each in groups] == [2, 1]
    history = History(NOW_S - 40 * DAY_S, [HistoryBucket(NOW_S, EventCounts(7, 9))], 15)
    causes = {("ticket", NOW_S - 3_000): "of the ticket", ("page", row().fired_unix_s): "prefills"}
    one = incident_of(groups[0], found.status, history, causes)
    assert (one.row.severity, one.severity, one.is_open) == ("page", "page", True)
    assert (one.began_unix_s, one.bad, one.cause) == (NOW_S - 3_600, 7, "prefills")
    assert one.budget_spent == Fraction(1, 20)
    assert one.peak_burn == max(filter(None, found.status.burns.values()))
    assert one.peak_unix_s == NOW_S
    second = replace(row(), fired_unix_s=NOW_S - 5, ended_unix_s=None)
    page = incident_of(
        [replace(row(), ended_unix_s=NOW_S - 60), earlier, second], found.status, history, {}
    )
    assert page.row == second, "the newest page"
    last = incident_of(groups[1], found.status, history, {})
    assert not last.is_open
    assert last.bad is None
    assert last.peak_burn == Fraction(11)


def test_too_few_requests_are_no_answer() -> None:
    quiet = standing(hourly=0)
    assert mood_and_sentence(quiet, requests=0)[0] == "unknown"
    assert (
        "none of 3,000 requests counted for an SLO in 15 min"
        in mood_and_sentence(quiet, requests=3_000)[1]
    )


@pytest.mark.parametrize(
    ("bad", "mood", "share"), [(0, "fine", "100 %"), (1, "fine", "99 %"), (40, "near", "60 %")]
)
def test_with_filters_the_answer_is_about_their_requests(bad: int, mood: str, share: str) -> None:
    view = View(equals={"tenant": HOSTILE})
    judged = [(TALK, EventCounts(0, 100)), (CHAT, EventCounts(bad, 100))]
    found = of_filters(view, judged, 900)
    assert found.mood == mood
    assert f"{share} of 100 requests in 15 min met SLO “" in found.sentence
    assert "<script" not in found.sentence
    if bad > 0:
        assert f"“chat” (target 99 %); <b>{bad}</b> missed it." in found.sentence
    assert of_filters(view, [(CHAT, EventCounts(0, 0))], 900).mood == "unknown"


@pytest.mark.parametrize(("bad", "events"), [(0, 1), (1, 1), (3, 29)])
def test_with_filters_a_few_requests_have_no_share(bad: int, events: int) -> None:
    view = View(equals={"tenant": "acme"})
    found = of_filters(view, [(CHAT, EventCounts(bad, events))], 900)
    assert found.mood == "unknown"
    assert found.sentence == (
        f"<b>tenant acme:</b> {events - bad} of {events} requests in 15 min met SLO “chat”."
        " This is too few for a share; at least 30 are needed."
    )
    # an objective with enough requests comes first
    more = of_filters(view, [(CHAT, EventCounts(bad, events)), (TALK, EventCounts(0, 30))], 900)
    assert more.mood == "fine"
    assert "100 % of 30 requests" in more.sentence


@pytest.mark.parametrize("reason", REASONS)
def test_a_blind_objective_is_never_an_all_clear(reason: str) -> None:
    blind = replace(standing(), blind=reason)
    mood, sentence = mood_and_sentence(standing(), blind)
    assert mood == "near"
    assert sentence.startswith(
        "<b>Unknown:</b> requests arrive, but SLO “chat” does not count them: "
    )
    assert code_html(REASONS[reason].why) in sentence
    for each in (blind, replace(standing(hourly=0), blind=reason)):
        shown = card(each, UTC)
        assert "<span class='state near'>blind</span>" in shown
        assert "Blind in the last hour" in shown
        assert code_html(REASONS[reason].remedy) in shown


def test_a_burn_comes_before_blindness() -> None:
    burning = replace(standing([ALL_BAD]), blind="unknown")
    assert mood_and_sentence(burning)[0] == "bad"
    assert "paging</span>" in card(burning, UTC)


def test_an_incident_links_to_its_cause() -> None:
    text = incidents([standing(burns=(burn(row()),))], UTC)
    assert f"<a href='root-cause?incident=chat%40{row().fired_unix_s}'>Find the cause</a>" in text


def test_incidents_are_listed_with_details() -> None:
    over = burn(row("ticket", NOW_S - 60), None, f"prefills {HOSTILE}")
    text = incidents([standing(burns=(over, burn(row(), 3)))], UTC)
    assert text.index("for 30 min so far") < text.index("for 29 min")
    assert "3 requests missed it" in text
    assert "spent 2.5 % of the error budget" in text
    assert "prefills &lt;script&gt;" in text
    assert "<script" not in text
    assert "No incident in this range" in incidents([standing()], UTC)


def test_a_peak_on_another_day_than_the_start_has_its_date() -> None:
    long = replace(row(), began_unix_s=NOW_S - 2 * DAY_S)
    assert "peak 11× at 2026-09-21 12:00" in incidents([standing(burns=(burn(long),))], UTC)
    assert "peak 11× at 12:00" in incidents([standing(burns=(burn(row()),))], UTC)


def test_a_page_of_the_past_shows_no_later_peak() -> None:
    """The evaluator stores only the highest burn rate of the whole incident."""
    found = standing([ALL_BAD])
    later = replace(row(), peak_unix_s=NOW_S + 1, last_unix_s=NOW_S + 600, peak_burn="1000")
    history = History(NOW_S - 40 * DAY_S, [HistoryBucket(NOW_S, EventCounts(7, 9))], 15)
    one = incident_of([later], found.status, history, {})
    now = max(filter(None, found.status.burns.values()))
    assert (one.peak_burn, one.peak_unix_s, one.is_peak_later) == (now, NOW_S, True)
    assert one.budget_spent is None
    text = incidents([standing(burns=(one,))], UTC)
    assert "burn rate" in text
    assert "peak" not in text


def test_an_incident_goes_on_until_it_ended() -> None:
    assert is_open(row(), NOW_S)
    assert is_open(row(ended_s=NOW_S), NOW_S - 1)
    assert not is_open(row(ended_s=NOW_S), NOW_S)


def test_a_card_has_budget_pace_and_windows() -> None:
    reported = card(standing([ALL_BAD], since_s=NOW_S - DAY_S), UTC)
    assert "of the error budget left" in reported
    assert "spent in" in reported
    assert "counted for 1 d so far" in reported
    assert "paging" in reported
    assert "first token ≤ 500 ms, then ≤ 50 ms per token" in reported
    assert windows(standing()).count("<tr>") == 5
    assert "No requests counted yet" in card(standing(hourly=0), UTC)


def test_hostile_names_are_text() -> None:
    objective: Any = replace(CHAT, display_name=HOSTILE, description=HOSTILE)
    assert "<script" not in card(standing(objective=objective), UTC)


@pytest.mark.parametrize(
    ("length_s", "ended_s", "since_s"),
    [
        (900, None, NOW_S - 1_800),
        (900, NOW_S - 1_000, NOW_S - 1_800),
        (600, NOW_S - 1_300, None),
        (3_600, None, None),
    ],
)
def test_a_burn_is_not_usual(length_s: int, ended_s: int | None, since_s: int | None) -> None:
    """A burn that began before the range and reaches into it is not usual traffic."""
    found = standing(burns=(burn(row(ended_s=ended_s), None),))
    window = Window((NOW_S - length_s) * 10**9, NOW_S * 10**9)
    began_ns = burning_since_ns([found], window)
    assert began_ns == (None if since_s is None else since_s * 10**9)
