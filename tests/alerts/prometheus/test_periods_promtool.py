"""For calendar periods and time slices, Prometheus and the live evaluator agree."""

from collections.abc import Callable, Sequence
from typing import Final

import pytest

from alerts import vocabulary
from alerts.burnrate import EventCounts, State
from alerts.evaluation.status import status_at
from alerts.history import History, HistoryBucket, states_at
from alerts.objectives import Objective
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules
from tests.alerts.prometheus.rule_test import MINUTE_S, ONE, PAGE, Run, expect, slo_counters

pytestmark = pytest.mark.real

Make = Callable[..., Objective]

# promtool's clock starts in 1970, so the first week ends after a few hours.
WEEK: Final = {
    "period": "1w",
    "window": "calendar: {startTime: '1970-01-01 01:00:00', timeZone: Africa/Monrovia}",
}
STARTS_S: Final = 6270
"""The start in UTC is 01:44:30, because Monrovia was 44 min 30 s behind UTC in 1970."""
SLICED: Final = {"method": "Timeslices", "slices": ", timeSliceTarget: 0.9, timeSliceWindow: 1m"}


def counters(minutes: Sequence[tuple[int, int]], samples: int) -> dict[str, str]:
    """Return Tailspan's two counters, with this number of values per minute."""
    events, good = [0], [0]
    for number, bad in minutes:
        for sample in range(1, samples + 1):
            events.append(events[-1] + number // samples)
            good.append(good[-1] + number // samples - (bad if sample == samples else 0))
    return slo_counters(events, good)


def near(series: str, value: float, within: float) -> str:
    """Return an expression that is 1 if a series is close to this value."""
    return f'sum(abs({series}{{slo="chat"}} - {value}) < bool {within})'


def test_a_new_calendar_period_has_a_new_budget(promtool: Run, objective: Make) -> None:
    about = objective(**WEEK)
    step_s = 2 * MINUTE_S
    steps = [(80, 8 if 15 <= each < 35 else 0) for each in range(70)]
    buckets = [
        HistoryBucket((each + 1) * step_s, EventCounts(bad, number))
        for each, (number, bad) in enumerate(steps)
    ]
    history = History(0, buckets, 15)
    first_s, second_s = 104 * MINUTE_S, 140 * MINUTE_S
    before = status_at(about, history, 0, {}, first_s)
    after = status_at(about, history, 0, {}, second_s)
    assert before.span.end_s == after.span.start_s == STARTS_S
    assert before.period.bad == 160
    assert after.period.bad == 0
    assert after.budget_left == 1
    assert before.budget_left is not None
    promtool(
        tailspan_rules([about], EXPLORER_URL, now_s=0),
        counters(steps, 1),
        [
            expect(near(vocabulary.PERIOD_END, STARTS_S, 1), first_s, ONE),
            expect(near(vocabulary.bad_events("1w"), 160, 9), first_s, ONE),
            expect(near(vocabulary.BUDGET_LEFT, float(before.budget_left), 0.002), first_s, ONE),
            expect(near(vocabulary.PERIOD_START, STARTS_S, 1), second_s, ONE),
            expect(near(vocabulary.BUDGET_LEFT, 1, 0.0001), second_s, ONE),
            expect(near(vocabulary.coverage("1w"), float(after.covered), 0.0005), second_s, ONE),
            expect(f'{vocabulary.EXHAUSTED_IN}{{slo="chat"}}', second_s),
        ],
        interval="2m",
    )


@pytest.mark.parametrize("bad_from", [60, 61])
def test_time_slices_alert_in_the_same_minute(
    promtool: Run, objective: Make, bad_from: int
) -> None:
    about = objective(**SLICED)
    minutes = [
        (0, 0) if each % 7 == 3 else (8, 1 if each >= bad_from and each % 2 else 0)
        for each in range(150)
    ]
    requests = [
        HistoryBucket((each + 1) * MINUTE_S, EventCounts(bad, number))
        for each, (number, bad) in enumerate(minutes)
    ]
    slices = about.indicator.slices
    assert slices is not None
    history = History(0, slices.judged(requests, 150 * MINUTE_S), 15)
    states = {
        at_s: states_at(history, at_s, about.policy, about.budget)["page"]
        for at_s in range(MINUTE_S, 150 * MINUTE_S, MINUTE_S)
    }
    assert {State.FIRING, State.QUIET} <= set(states.values())
    promtool(
        tailspan_rules([about], EXPLORER_URL, now_s=0),
        counters(minutes, 2),
        [
            expect(PAGE, at_s, ONE if state is State.FIRING else {})
            for at_s, state in states.items()
        ],
        interval="30s",
    )


def test_a_ticket_asks_to_generate_the_rules_again_before_their_calendar_ends(
    promtool: Run, objective: Make
) -> None:
    """After the last boundary in the rules, the remaining budget would be absent."""
    rules = tailspan_rules([objective(**WEEK)], EXPLORER_URL, now_s=-4 * 365 * 86_400)
    ends = 'count(ALERTS{alertname="TailspanCalendarEnds",severity="ticket"})'
    promtool(rules, samples=[expect(ends, "5m", ONE)])
