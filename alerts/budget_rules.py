"""Recorded series: an objective's target, and its remaining budget for the period.

The counts of the period are added up from the recorded counts of the shortest window, five of
which overlap: a month costs the same for every query (43,200 samples), no raw series is read so
far back, and the first value comes within a minute.

PromQL has no time zones and no ranges of varying length. So the boundaries of calendar periods
are written into the rules for some years. What is recorded has the start of its period as a label,
and the samples with the present period's label are added up. What ended up to one window before a
boundary counts in part in the period after it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from alerts import vocabulary
from alerts.burn_words import of_objective
from alerts.objectives import Objective
from alerts.periods import DAY_S, Calendar
from alerts.rulefile import Recording, number
from telemetry import durations

BUDGET_INTERVAL = "2m"
"""A period's budget does not change in 15 s. Less than the 5 min for which a sample stays valid."""

OVERLAP = 5
"""Samples taken within each window."""

YEARS: Final = 3
"""For which the boundaries of calendar periods are written, beyond the present year; of weeks these
are about 200."""
ENDS_SOON_S: Final = 90 * DAY_S
"""Before the last of them an alert asks to write the rules anew."""

_LABEL: Final = vocabulary.PERIOD_LABEL
_OF_EACH: Final = f"on ({vocabulary.SLO}) group_left ()"
"""One value of the objective for all of its groups."""


def budget_rules(objective: Objective, window_s: int, now_s: int) -> list[Recording]:
    """The recordings.

    Args:
        objective: whose.
        window_s: the shortest window that is recorded, at least a minute.
        now_s: the present, in unix seconds: calendar periods are written from its year on.
    """
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
        # Of a period that is known in part, the rest counts as good traffic at the same rate.
        (
            vocabulary.BUDGET_LEFT,
            f"1 - {bad} / ({events} > 0) / {number(objective.budget)} * {coverage}",
        ),
        (vocabulary.EXHAUSTED_IN, lasts),
    ]
    if calendar:
        bear_it = f"* on ({vocabulary.SLO}) group_left ({_LABEL}) {this_period}"
        recorded[:0] = [
            *_boundaries(calendar, now_s),
            (vocabulary.PERIOD, f'count_values by ({vocabulary.SLO}) ("{_LABEL}", {start})'),
            *(
                (vocabulary.in_period(name), f"{series(name)} {bear_it}")
                for name in (
                    vocabulary.events(window),
                    vocabulary.bad_events(window),
                    vocabulary.SEEN,
                )
            ),
        ]
    labels = {vocabulary.SLO: objective.name}
    return [Recording(name, expr, labels) for name, expr in recorded]


def horizon_s(now_s: int) -> int:
    """Until when the boundaries of calendar periods are written, at least."""
    return _year_s(now_s, 1 + YEARS)


def longest_s(calendar: Calendar, now_s: int) -> int:
    """The length of the longest calendar period that is written, in whole days."""
    bounds = calendar.boundaries(_year_s(now_s), horizon_s(now_s))
    longest = max(after - before for before, after in pairwise(bounds))
    return -(-longest // DAY_S) * DAY_S


def _year_s(now_s: int, more: int = 0) -> int:
    year = datetime.fromtimestamp(now_s, UTC).year + more
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


def _boundaries(calendar: Calendar, now_s: int) -> Iterator[tuple[str, str]]:
    """When the present period starts and ends, as functions of time()."""
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
