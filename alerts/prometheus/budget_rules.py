"""Rules that record an objective's target and the remaining budget of its period.

The rules sum the recorded counts of the shortest window, which are sampled five times per window.
With a window of 5 min, a query over 30 days reads 43,200 samples.

PromQL has no time zones and no ranges of varying length. So the rules contain the boundaries of
calendar periods for `YEARS` years. Some events of the last window before a boundary may be counted
in the next period.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from alerts import vocabulary
from alerts.objectives import Objective
from alerts.periods import DAY_S, Calendar
from alerts.prometheus.alert_text import of_objective
from alerts.prometheus.rulefile import RecordingRule, number
from telemetry import durations

BUDGET_INTERVAL = "2m"
"""The interval must be below 5 min, because Prometheus ignores older samples."""

OVERLAP = 5
"""Number of samples that contain the same event."""

YEARS: Final = 3
"""Years after the current year for which the rules contain calendar boundaries."""
ENDS_SOON_S: Final = 90 * DAY_S
"""An alert asks the user to generate the rules again this long before the last boundary."""

_LABEL: Final = vocabulary.PERIOD_LABEL
_OF_EACH: Final = f"on ({vocabulary.SLO}) group_left ()"
"""Joins the single series of an objective with the series of its groups."""


def budget_rules(objective: Objective, window_s: int, now_s: int) -> list[RecordingRule]:
    """The recording rules of a budget. `window_s` is the shortest window, at least a minute."""
    calendar = objective.calendar
    window = durations.render(window_s)
    period = calendar.duration if calendar else durations.render(objective.period_s)
    step_s = window_s // OVERLAP

    def series(name: str) -> str:
        return of_objective(objective, name)

    start, end = series(vocabulary.PERIOD_START), series(vocabulary.PERIOD_END)
    back, length, this_period = period, str(objective.period_s), series(vocabulary.PERIOD)
    if calendar:
        back = durations.render(longest_s(calendar, now_s))
        length = f"{_OF_EACH} ({end} - {start})"

    def summed(name: str, function: str = "sum_over_time") -> str:
        samples = f"[{back}:{durations.render(step_s)}]"
        if not calendar:
            return f"{function}({series(name)}{samples})"
        of_all = f"{function}({series(vocabulary.in_period(name))}{samples})"
        return (
            f"sum without ({_LABEL}) ({of_all} and on ({vocabulary.SLO}, {_LABEL}) {this_period})"
        )

    def total(name: str) -> str:
        return f"{summed(name)} / {OVERLAP}"

    events, bad, coverage, left = (
        series(name)
        for name in (
            vocabulary.events(period),
            vocabulary.bad_events(period),
            vocabulary.coverage(period),
            vocabulary.BUDGET_LEFT,
        )
    )
    burning = series(vocabulary.burn_rate(durations.render(objective.policy.pairs[0].long_s)))
    lasts = f"clamp_min({left}, 0) * {length} / ({burning} > 0)"
    if calendar:
        lasts = f"({lasts}) < {_OF_EACH} ({end} - time())"
    recorded = [
        (vocabulary.TARGET, f"vector({number(objective.target)})"),
        (vocabulary.events(period), total(vocabulary.events(window))),
        (vocabulary.bad_events(period), total(vocabulary.bad_events(window))),
        (
            vocabulary.coverage(period),
            f"clamp_max({summed(vocabulary.SEEN, 'count_over_time')} * {step_s} / {length}, 1)",
        ),
        # For the time without data, good events are assumed, at the request rate of the time with
        # data.
        (
            vocabulary.BUDGET_LEFT,
            f"1 - {bad} / ({events} > 0) / {number(objective.budget)} * {coverage}",
        ),
        (vocabulary.EXHAUSTED_IN, lasts),
    ]
    if calendar:
        with_period = f"* on ({vocabulary.SLO}) group_left ({_LABEL}) {this_period}"
        recorded[:0] = [
            *_boundaries(calendar, now_s),
            (vocabulary.PERIOD, f'count_values by ({vocabulary.SLO}) ("{_LABEL}", {start})'),
            *(
                (vocabulary.in_period(name), f"{series(name)} {with_period}")
                for name in (
                    vocabulary.events(window),
                    vocabulary.bad_events(window),
                    vocabulary.SEEN,
                )
            ),
        ]
    labels = {vocabulary.SLO: objective.name}
    return [RecordingRule(name, expr, labels) for name, expr in recorded]


def horizon_s(now_s: int) -> int:
    """The instant up to which the rules contain calendar boundaries."""
    return _year_s(now_s, 1 + YEARS)


def longest_s(calendar: Calendar, now_s: int) -> int:
    """Longest calendar period in the rules, rounded up to whole days."""
    bounds = calendar.boundaries(_year_s(now_s), horizon_s(now_s))
    longest = max(after - before for before, after in pairwise(bounds))
    return -(-longest // DAY_S) * DAY_S


def _year_s(now_s: int, more: int = 0) -> int:
    year = datetime.fromtimestamp(now_s, UTC).year + more
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


def _boundaries(calendar: Calendar, now_s: int) -> Iterator[tuple[str, str]]:
    bounds = list(calendar.boundaries(_year_s(now_s), horizon_s(now_s)))
    for name, values in (
        (vocabulary.PERIOD_START, bounds[:-1]),
        (vocabulary.PERIOD_END, bounds[1:]),
    ):
        steps = "".join(
            f"\n+ {after - before} * (time() >= bool {starts})"
            for (before, after), starts in zip(pairwise(values), bounds[1:], strict=False)
        )
        yield name, f"vector({values[0]}{steps}) and on () vector(time()) < {bounds[-1]}\n"
