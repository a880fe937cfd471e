from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from alerts.burnrate import EventCounts
from alerts.evaluation.counting import store_tally
from alerts.objectives import Goodput
from alerts.openslo.reader import inspect_texts
from store.database import open_database
from telemetry.window import Window
from ui.kit import colours
from ui.views.overview.words import EXAMPLE
from ui.views.slos import compliance
from ui.views.slos.compliance import ComplianceStep

NS = 10**9
(CHAT,) = inspect_texts({"chat.yaml": EXAMPLE}).spec.objectives
MIDNIGHT_S = int(datetime(2026, 3, 29, tzinfo=UTC).timestamp())


def test_days_are_in_the_readers_zone(database: Callable[..., str], one_request: Any) -> None:
    """The day on which the clocks go forward has 23 hours."""
    rows = [
        one_request(
            n,
            received_unix_ns=(MIDNIGHT_S + (n - 24) * 3_600) * NS,
            ttft_s=0.1 if n % 4 else 2.0,
            decode_s=0.1,
            streamed=True,
        )
        for n in range(72)
    ]
    engine = open_database(database(rows))
    assert isinstance(CHAT.indicator, Goodput)
    at_s = MIDNIGHT_S + 48 * 3_600
    berlin = ZoneInfo("Europe/Berlin")
    anew = compliance.read(engine, CHAT, CHAT.indicator, at_s, berlin, "day")
    assert [(each.to_unix_s - each.from_unix_s) // 3_600 for each in anew] == [24, 23, 24, 24]
    assert [each.counts.events for each in anew] == [23, 23, 24, 2]
    assert sum(each.counts.bad for each in anew) == 18
    store_tally(engine, CHAT.indicator, at_s - 3_600)
    assert compliance.read(engine, CHAT, CHAT.indicator, at_s, berlin, "day") == anew
    hours = compliance.read(engine, CHAT, CHAT.indicator, at_s, ZoneInfo("Asia/Kolkata"), "hour")
    assert sum(each.counts.events for each in hours) == 72
    engine.dispose()


def test_each_hour_is_a_step_when_the_clocks_go_back(
    database: Callable[..., str], one_request: Any
) -> None:
    """The hour from 02:00 to 03:00 comes twice."""
    from_s = int(datetime(2026, 10, 24, tzinfo=UTC).timestamp())
    rows = [
        one_request(n, received_unix_ns=(from_s + n * 3_600) * NS, ttft_s=0.1, streamed=True)
        for n in range(72)
    ]
    engine = open_database(database(rows))
    assert isinstance(CHAT.indicator, Goodput)
    berlin, at_s = ZoneInfo("Europe/Berlin"), from_s + 72 * 3_600
    hours = compliance.read(engine, CHAT, CHAT.indicator, at_s, berlin, "hour")
    assert [each.from_unix_s for each in hours] == [from_s + n * 3_600 for n in range(72)]
    assert all(each.to_unix_s - each.from_unix_s == 3_600 for each in hours)
    days = compliance.read(engine, CHAT, CHAT.indicator, at_s, berlin, "day")
    assert [each.counts.events for each in days] == [22, 25, 24, 1]
    engine.dispose()


@pytest.mark.parametrize(
    ("place", "day", "hours"),
    [
        ("America/Havana", datetime(2026, 11, 1), 25),  # 00:00 comes twice
        ("Africa/Cairo", datetime(2026, 4, 24), 23),  # there is no 00:00
    ],
)
def test_a_day_on_which_the_clocks_change_at_midnight_is_one_step(
    database: Callable[..., str], one_request: Any, place: str, day: datetime, hours: int
) -> None:
    zone = ZoneInfo(place)
    from_s = int(day.replace(tzinfo=zone).timestamp())
    rows = [
        one_request(n, received_unix_ns=(from_s + n * 3_600) * NS, ttft_s=0.1, streamed=True)
        for n in range(hours + 24)
    ]
    engine = open_database(database(rows))
    assert isinstance(CHAT.indicator, Goodput)
    at_s = from_s + (hours + 24) * 3_600
    days = compliance.read(engine, CHAT, CHAT.indicator, at_s, zone, "day")
    assert [each.from_unix_s for each in days] == [from_s, from_s + hours * 3_600]
    assert [each.to_unix_s for each in days] == [from_s + hours * 3_600, at_s]
    assert [each.counts.events for each in days] == [hours, 24]
    engine.dispose()


def test_a_step_below_the_target_is_marked_and_counted() -> None:
    steps = [
        ComplianceStep(MIDNIGHT_S, MIDNIGHT_S + 86_400, EventCounts(1, 1_000)),
        ComplianceStep(MIDNIGHT_S + 86_400, MIDNIGHT_S + 2 * 86_400, EventCounts(50, 1_000)),
    ]
    sentence = compliance.sentence(steps, CHAT, "day", MIDNIGHT_S + 3_600, UTC)
    assert sentence == (
        "Met on 1 of 2 days with 2,000 requests until 01:00:00; the target is 99 %."
    )
    shown = Window(MIDNIGHT_S * NS, (MIDNIGHT_S + 2 * 86_400) * NS)
    figure = compliance.figure(steps, CHAT, shown, UTC, colours.LIGHT)
    assert list(figure.data[0].marker.symbol) == ["circle", "x"]
    assert figure.data[0].customdata[1] == "95 % of 1,000 requests"
    assert "No request was counted yet" in compliance.sentence([], CHAT, "day", 0, UTC)
