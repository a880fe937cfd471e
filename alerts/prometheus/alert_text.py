"""The texts of an objective's alerts, with templates that Prometheus expands.

Source: monitoring.mixins.dev, "Guidelines for alert names, labels, and annotations".
"""

from alerts import vocabulary
from alerts.burnrate import WindowPair
from alerts.objectives import GoodProbes, Objective
from alerts.prometheus.rulefile import label_text, literal, quoted
from telemetry import durations


def of_objective(objective: Objective, name: str) -> str:
    """The PromQL selector of one objective's recorded series."""
    return f"{name}{{{vocabulary.SLO}={quoted(objective.name)}}}"


def queried(objective: Objective, name: str) -> str:
    """The template that queries a recorded series of the alert's group."""
    if not objective.by:
        return f"query `{of_objective(objective, name)}`"
    own = "".join(f",{label}=%q" for label in objective.by)
    values = " ".join(f"$labels.{label}" for label in objective.by)
    series = f"{name}{{{vocabulary.SLO}={quoted(objective.name)}{own}}}"
    return f"printf `{series}` {values} | query"


def subject(objective: Objective) -> str:
    """The template that expands to the objective's name with the alert's group."""
    if not objective.by:
        return objective.name
    labels = ",".join(f'{label}="{label_text(label)}"' for label in objective.by)
    return f"{objective.name}{literal('{')}{labels}}}"


def alerting_burn(objective: Objective, pair: WindowPair) -> str:
    """The name of the series that exists while a window pair alerts."""
    window = durations.render(pair.long_s)
    if sum(each.long_s == pair.long_s for each in objective.policy.pairs) > 1:
        window += f"_{durations.render(pair.short_s)}_{pair.severity}"
    return vocabulary.alerting_burn(window)


def what(objective: Objective) -> str:
    """The objective's display name and its statement."""
    return f"What: {literal(objective.display_name)}. {literal(objective.statement)}"


def fired_by(objective: Objective, pair: WindowPair) -> str:
    """A template with a pair's burn rates and counts. It is empty if the pair does not alert."""
    long, short = durations.render(pair.long_s), durations.render(pair.short_s)

    def value(series: str, form: str) -> str:
        own = queried(objective, series)
        return f"{{{{ with {own} }}}}{{{{ . | first | value | {form} }}}}{{{{ end }}}}"

    whole, tenths = 'printf "%.0f"', 'printf "%.1f"'
    alerting = queried(objective, alerting_burn(objective, pair))
    unit = (
        ""
        if objective.counted_in in ("requests", "probes", "events")
        else f" {objective.counted_in}"
    )
    return (
        f"{{{{ with {alerting} }}}}Fired by the last {long} and {short}:"
        f" {value(vocabulary.bad_events(long), whole)} of"
        f" {value(vocabulary.events(long), whole)}{unit} bad in the last {long}. Burn rates:"
        f" {value(vocabulary.burn_rate(long), tenths)} and"
        f" {value(vocabulary.burn_rate(short), tenths)}, alerting above"
        f" {float(pair.factor):.3g}. {{{{ end }}}}"
    )


def budget_left(objective: Objective) -> str:
    """A template with the remaining budget, and how long it lasts."""
    left = queried(objective, vocabulary.BUDGET_LEFT)
    lasts = queried(objective, vocabulary.EXHAUSTED_IN)
    period = objective.period_text
    return (
        f"{{{{ with {left} }}}}"
        f"Budget: {{{{ . | first | value | humanizePercentage }}}} of {period} is left"
        f"{{{{ with {lasts} }}}}; at this pace it lasts"
        " {{ . | first | value | humanizeDuration }}{{ end }}.{{ end }}"
    )


def first_step(objective: Objective, in_explorer: bool) -> str:
    """The sentence on what to do first. `in_explorer` is False if Tailspan does not count the
    objective's events. Then Tailspan need not run."""
    if not in_explorer:
        return (
            f"First: open the dashboards of {literal(objective.service)}. Prometheus counts this"
            " objective, not Tailspan."
        )
    if isinstance(objective.indicator, GoodProbes):
        return (
            "First: open dashboard_url, or run `tailspan outside`. Both show which regions and"
            " endpoints are affected, and why probes fail."
        )
    if objective.by:
        # A tenant's name must not be in a command that a user may paste into a shell.
        return (
            "First: open dashboard_url, or run `tailspan explain --incident` with the group's name"
            " from `tailspan slo status`. Both show the likely cause."
        )
    return (
        "First: open dashboard_url, or run `tailspan explain --incident"
        f" {objective.name}`. Both show the likely cause and what to change."
    )
