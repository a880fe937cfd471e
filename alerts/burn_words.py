"""The sentences of an objective's alerts, with the templates that Prometheus fills in.

As the kubernetes-mixin splits them: a summary in one line, a description with one fact a line.
Source: monitoring.mixins.dev, "Guidelines for alert names, labels, and annotations".
"""

from alerts import vocabulary
from alerts.burnrate import Pair
from alerts.objectives import Goodput, Objective
from alerts.rulefile import label_text, literal, quoted
from telemetry import durations


def of_objective(objective: Objective, name: str) -> str:
    """A recorded series of one objective."""
    return f"{name}{{{vocabulary.SLO}={quoted(objective.name)}}}"


def asked(objective: Objective, name: str) -> str:
    """In a template: the value of a recorded series, of the alert's own group."""
    if not objective.by:
        return f"query `{of_objective(objective, name)}`"
    own = "".join(f",{label}=%q" for label in objective.by)
    values = " ".join(f"$labels.{label}" for label in objective.by)
    series = f"{name}{{{vocabulary.SLO}={quoted(objective.name)}{own}}}"
    return f"printf `{series}` {values} | query"


def subject(objective: Objective) -> str:
    """In a template: the objective's name, with the alert's group."""
    if not objective.by:
        return objective.name
    labels = ",".join(f'{label}="{label_text(label)}"' for label in objective.by)
    return f"{objective.name}{literal('{')}{labels}}}"


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
        own = asked(objective, series)
        return f"{{{{ with {own} }}}}{{{{ . | first | value | {form} }}}}{{{{ end }}}}"

    whole, tenths = 'printf "%.0f"', 'printf "%.1f"'
    alerting = asked(objective, alerting_burn(objective, pair))
    unit = "" if objective.counted_in in ("requests", "events") else f" {objective.counted_in}"
    return (
        f"{{{{ with {alerting} }}}}Fired by the last {long} and {short}:"
        f" {value(vocabulary.bad_events(long), whole)} of"
        f" {value(vocabulary.events(long), whole)}{unit} bad in the last {long}; they burn"
        f" {value(vocabulary.burn_rate(long), tenths)} and"
        f" {value(vocabulary.burn_rate(short), tenths)} times too fast, alerting above"
        f" {float(pair.factor):.3g}. {{{{ end }}}}"
    )


def budget_left(objective: Objective) -> str:
    """What is left of the period's budget, and for how long."""
    left = asked(objective, vocabulary.BUDGET_LEFT)
    lasts = asked(objective, vocabulary.EXHAUSTED_IN)
    period = objective.period_text
    return (
        f"{{{{ with {left} }}}}"
        f"Budget: {{{{ . | first | value | humanizePercentage }}}} of {period} is left"
        f"{{{{ with {lasts} }}}}; at this pace it lasts"
        " {{ . | first | value | humanizeDuration }}{{ end }}.{{ end }}"
    )


def first_step(objective: Objective) -> str:
    """What to do first."""
    if objective.by and isinstance(objective.indicator, Goodput):
        # A tenant's name is not put into a command that somebody may paste into a shell.
        return (
            "First: open dashboard_url, or run `tailspan explain --incident` with the name of the"
            " group as `tailspan slo status` prints it: either names the likely cause."
        )
    if isinstance(objective.indicator, Goodput):
        return (
            "First: open dashboard_url, or run `tailspan explain --incident"
            f" {objective.name}`: either names the likely cause and what to change."
        )
    service = literal(objective.service)
    return f"First: look at the dashboards of {service}: Tailspan does not see these requests."
