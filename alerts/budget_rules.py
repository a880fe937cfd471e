"""Recorded series: an objective's target, and its remaining budget for the period.

The counts of the period are added up from the recorded counts of the shortest window, five of
which overlap: a month costs the same for every query (43,200 samples), no raw series is read so
far back, and the first value comes within a minute.
"""

from alerts import vocabulary
from alerts.burn_words import of_objective
from alerts.objectives import Objective
from alerts.rulefile import Recording, number
from telemetry import durations

BUDGET_INTERVAL = "2m"
"""A period's budget does not change in 15 s. Less than the 5 min for which a sample stays valid."""

OVERLAP = 5
"""Samples taken within each window."""


def budget_rules(objective: Objective, window_s: int) -> list[Recording]:
    """The recordings.

    Args:
        objective: whose.
        window_s: the shortest window that is recorded, at least a minute.
    """
    window, period = durations.render(window_s), durations.render(objective.period_s)
    step_s = window_s // OVERLAP
    step = durations.render(step_s)
    labels = {vocabulary.SLO: objective.name}

    def summed(name: str, function: str = "sum_over_time") -> str:
        return f"{function}({of_objective(objective, name)}[{period}:{step}])"

    events, bad, coverage, left = (
        of_objective(objective, name)
        for name in (
            vocabulary.events(period),
            vocabulary.bad_events(period),
            vocabulary.coverage(period),
            vocabulary.BUDGET_LEFT,
        )
    )
    pace = vocabulary.burn_rate(durations.render(objective.policy.pairs[0].long_s))
    burning = of_objective(objective, pace)
    watched = summed(vocabulary.SEEN, "count_over_time")

    def total(name: str) -> str:
        return f"{summed(name)} / {OVERLAP}"

    return [
        Recording(vocabulary.TARGET, f"vector({number(objective.target)})", labels),
        Recording(vocabulary.events(period), total(vocabulary.events(window)), labels),
        Recording(vocabulary.bad_events(period), total(vocabulary.bad_events(window)), labels),
        Recording(
            vocabulary.coverage(period),
            f"clamp_max({watched} * {step_s} / {objective.period_s}, 1)",
            labels,
        ),
        # Of a period that is known in part, the rest counts as good traffic at the same rate.
        Recording(
            vocabulary.BUDGET_LEFT,
            f"1 - {bad} / ({events} > 0) / {number(objective.budget)} * {coverage}",
            labels,
        ),
        Recording(
            vocabulary.EXHAUSTED_IN,
            f"clamp_min({left}, 0) * {objective.period_s} / ({burning} > 0)",
            labels,
        ),
    ]
