"""Calendar periods and time slices: the rules in Prometheus agree with the live evaluator."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pytest

from alerts import vocabulary
from alerts.burnrate import Counts, State
from alerts.generate import EXPLORER_URL, tailspan_rules
from alerts.history import Bucket, History, states_at
from alerts.objectives import Objective
from alerts.status import status_at

pytestmark = pytest.mark.real

MINUTE_S: Final = 60
HOUR_S: Final = 3600

Make = Callable[..., Objective]
Run = Callable[[str, Mapping[str, object]], None]

# promtool's clock starts in 1970: the first week here ends at 6 h.
WEEK: Final = {
    "period": "1w",
    "window": "calendar: {startTime: '1970-01-01 01:00:00', timeZone: Africa/Monrovia}",
}
STARTS_S: Final = 6270
"""Monrovia was 44 min 30 s behind UTC in 1970: 01:44:30."""
SLICED: Final = {
    "method": "Timeslices",
    "slices": ", timeSliceTarget: 0.9, timeSliceWindow: 1m",
}


def counters(minutes: Sequence[tuple[int, int]], samples: int) -> list[dict[str, str]]:
    """Both of Tailspan's counters, so many values a minute, by its events and bad ones."""
    events, good = [0], [0]
    for number, bad in minutes:
        for sample in range(1, samples + 1):
            events.append(events[-1] + number // samples)
            good.append(good[-1] + number // samples - (bad if sample == samples else 0))
    return [
        {"series": f'{name}{{slo="chat"}}', "values": " ".join(map(str, values))}
        for name, values in (
            (vocabulary.EVENTS, events),
            (vocabulary.GOOD_EVENTS, good),
        )
    ]


def near(series: str, value: float, within: float) -> str:
    """An expression that yields 1 if a series has about this value."""
    return f'abs({series}{{slo="chat"}} - {value}) < bool {within}'


def test_a_new_calendar_period_has_a_new_budget(promtool: Run, objective: Make) -> None:
    """The budget is spent before the boundary, and whole after it; so is the live evaluator's."""
    about = objective(**WEEK)
    minutes = [(40, 4 if 60 <= each < 100 else 0) for each in range(240)]
    buckets = [
        Bucket((each + 1) * MINUTE_S, Counts(bad, number))
        for each, (number, bad) in enumerate(minutes)
    ]
    history = History(0, buckets, 15)
    before = status_at(about, history, 0, {}, 104 * MINUTE_S)
    after = status_at(about, history, 0, {}, 4 * HOUR_S)
    assert before.span.end_s == after.span.start_s == STARTS_S
    assert before.period.bad == 160
    assert after.period.bad == 0
    assert after.budget_left == 1
    assert before.budget_left is not None
    one = [{"labels": '{slo="chat"}', "value": 1}]
    promtool(
        tailspan_rules([about], EXPLORER_URL, now_s=0),
        {
            "interval": "1m",
            "input_series": counters(minutes, 1),
            "promql_expr_test": [
                {"expr": expr, "eval_time": f"{at_s}s", "exp_samples": one}
                for at_s, expr in [
                    (104 * MINUTE_S, near(vocabulary.PERIOD_END, STARTS_S, 1)),
                    (104 * MINUTE_S, near(vocabulary.bad_events("1w"), 160, 9)),
                    (
                        104 * MINUTE_S,
                        near(vocabulary.BUDGET_LEFT, float(before.budget_left), 0.002),
                    ),
                    (4 * HOUR_S, near(vocabulary.PERIOD_START, STARTS_S, 1)),
                    (4 * HOUR_S, near(vocabulary.BUDGET_LEFT, 1, 0.0001)),
                    (4 * HOUR_S, near(vocabulary.coverage("1w"), float(after.covered), 0.0005)),
                ]
            ]
            + [
                {
                    "expr": f'{vocabulary.EXHAUSTED_IN}{{slo="chat"}}',
                    "eval_time": f"{4 * HOUR_S}s",
                    "exp_samples": [],
                }
            ],
        },
    )


@pytest.mark.parametrize("bad_from", [60, 61])
def test_time_slices_alert_in_the_same_minute(
    promtool: Run, objective: Make, bad_from: int
) -> None:
    """One bad request of eight makes a bad slice; minutes without requests are no slices."""
    about = objective(**SLICED)
    minutes = [
        (0, 0) if each % 7 == 3 else (8, 1 if each >= bad_from and each % 2 else 0)
        for each in range(150)
    ]
    requests = [
        Bucket((each + 1) * MINUTE_S, Counts(bad, number))
        for each, (number, bad) in enumerate(minutes)
    ]
    slices = about.indicator.slices
    assert slices is not None
    history = History(0, slices.judged(requests, 150 * MINUTE_S), 15)
    told = {
        at_s: states_at(history, at_s, about.policy, about.budget)["page"]
        for at_s in range(MINUTE_S, 150 * MINUTE_S, MINUTE_S)
    }
    assert State.FIRING in told.values()
    assert State.QUIET in told.values()
    promtool(
        tailspan_rules([about], EXPLORER_URL, now_s=0),
        {
            "interval": "30s",
            "input_series": counters(minutes, 2),
            "promql_expr_test": [
                {
                    "expr": 'count(ALERTS{alertname="TailspanBudgetBurn",severity="page"})',
                    "eval_time": f"{at_s}s",
                    "exp_samples": [{"labels": "{}", "value": 1}] if state is State.FIRING else [],
                }
                for at_s, state in told.items()
            ],
        },
    )


def test_the_rules_ask_to_be_written_again_before_their_calendar_ends(
    promtool: Run, objective: Make
) -> None:
    """Without the boundaries the remaining budget would be absent, and nobody would know why."""
    rules = tailspan_rules([objective(**WEEK)], EXPLORER_URL, now_s=-4 * 365 * 86_400)
    promtool(
        rules,
        {
            "interval": "1m",
            "input_series": [],
            "promql_expr_test": [
                {
                    "expr": 'count(ALERTS{alertname="TailspanCalendarEnds",severity="ticket"})',
                    "eval_time": "5m",
                    "exp_samples": [{"labels": "{}", "value": 1}],
                }
            ],
        },
    )
