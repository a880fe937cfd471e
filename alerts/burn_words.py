"""The sentences of an objective's alerts, with the templates that Prometheus fills in.

As the kubernetes-mixin splits them: a summary in one line, a description with one fact a line.
Source: monitoring.mixins.dev, "Guidelines for alert names, labels, and annotations".
"""

from alerts import durations, vocabulary
from alerts.burnrate import Pair
from alerts.objectives import Goodput, Objective, RawRatio
from alerts.rulefile import literal, quoted


def of_objective(objective: Objective, name: str) -> str:
    """A recorded series of one objective."""
    return f"{name}{{{vocabulary.SLO}={quoted(objective.name)}}}"


def alerting_burn(objective: Objective, pair: Pair) -> str:
    """The name of the series that a pair alerts by, which no other pair of the objective has."""
    window = durations.render(pair.long_s)
    if sum(each.long_s == pair.long_s for each in objective.policy.pairs) > 1:
        window += f"_{durations.render(pair.short_s)}_{pair.severity}"
    return vocabulary.alerting_burn(window)


def what(objective: Objective) -> str:
    """What is promised."""
    return f"What: {literal(objective.display_name)}. {literal(objective.promise)}"


def fired_by(objective: Objective, pair: Pair) -> str:
    """A pair's own numbers, while that pair alerts; else nothing."""
    long, short = durations.render(pair.long_s), durations.render(pair.short_s)

    def value(series: str, form: str) -> str:
        asked = of_objective(objective, series)
        return f"{{{{ with query `{asked}` }}}}{{{{ . | first | value | {form} }}}}{{{{ end }}}}"

    whole, tenths = 'printf "%.0f"', 'printf "%.1f"'
    alerting = of_objective(objective, alerting_burn(objective, pair))
    unit = " s" if isinstance(objective.indicator, RawRatio) else ""
    return (
        f"{{{{ with query `{alerting}` }}}}Fired by the last {long} and {short}:"
        f" {value(vocabulary.bad_events(long), whole)} of"
        f" {value(vocabulary.events(long), whole)}{unit} bad in the last {long}; they burn"
        f" {value(vocabulary.burn_rate(long), tenths)} and"
        f" {value(vocabulary.burn_rate(short), tenths)} times too fast, alerting above"
        f" {float(pair.factor):.3g}. {{{{ end }}}}"
    )


def budget_left(objective: Objective) -> str:
    """What is left of the period's budget, and for how long."""
    left = of_objective(objective, vocabulary.BUDGET_LEFT)
    lasts = of_objective(objective, vocabulary.EXHAUSTED_IN)
    period = durations.render(objective.period_s)
    return (
        f"{{{{ with query `{left}` }}}}"
        f"Budget: {{{{ . | first | value | humanizePercentage }}}} of {period} is left"
        f"{{{{ with query `{lasts}` }}}}; at this pace it lasts"
        " {{ . | first | value | humanizeDuration }}{{ end }}.{{ end }}"
    )


def first_step(objective: Objective) -> str:
    """What to do first."""
    if isinstance(objective.indicator, Goodput):
        return (
            "First: open dashboard_url, or run `tailspan explain --incident"
            f" {objective.name}`: either names the likely cause and what to change."
        )
    service = literal(objective.service)
    return f"First: look at the dashboards of {service}: Tailspan does not see these requests."
