"""Objectives dashboard: targets, remaining budget, burn rates."""

from typing import Final

from alerts import vocabulary
from alerts.fields import GROUPING, PROBE_GROUPING
from dashboards.panels import (
    BAD,
    GOOD,
    WARNING,
    Board,
    ColourThreshold,
    GrafanaUnit,
    Panel,
    PanelKind,
    PanelQuery,
    Row,
)
from dashboards.promql import OBJECTIVES, rate, share
from exporters.definitions import series
from exporters.definitions.series_types import MetricSeries

_WINDOWS: Final = ("5m", "1h", "6h", "3d")
_LABELS: Final = " ".join(
    f"{{{{{label}}}}}" for label in dict.fromkeys((*GROUPING, *PROBE_GROUPING))
)
"""The labels of a group in a legend. Grafana leaves out labels that a series does not have."""
_OF_GROUP: Final = f"{{{{slo}}}} {_LABELS}"


def _increase_over(of: MetricSeries, window: str) -> str:
    return f"sum by (slo) (increase({of.name}{{{OBJECTIVES}}}[{window}]))"


def _bad_events(window: str) -> str:
    events = _increase_over(series.SLO_EVENTS, window)
    return f"({events} - {_increase_over(series.SLO_GOOD_EVENTS, window)})"


BOARD: Final = Board(
    uid="tailspan-objectives",
    title="Tailspan / Objectives",
    description=("The objectives with their targets, remaining error budgets and burn rates."),
    variables=("slo",),
    rows=(
        Row(
            title="Compliance",
            panels=(
                Panel(
                    title="Requests that met the objective",
                    description=(
                        "The share of the objective's requests that met it in the range shown,"
                        " counted with the exact threshold."
                    ),
                    unit=GrafanaUnit.SHARE,
                    decimals=3,
                    kind=PanelKind.NUMBER,
                    width=8,
                    most=1,
                    queries=(
                        PanelQuery(
                            share(
                                _increase_over(series.SLO_GOOD_EVENTS, "$__range"),
                                _increase_over(series.SLO_EVENTS, "$__range"),
                            ),
                            "{{slo}}",
                        ),
                    ),
                ),
                Panel(
                    title="Target",
                    description="The share of requests that must meet the objective.",
                    unit=GrafanaUnit.SHARE,
                    decimals=3,
                    kind=PanelKind.NUMBER,
                    width=8,
                    most=1,
                    queries=(
                        PanelQuery(
                            f"max by (slo) ({series.SLO_TARGET.name}{{{OBJECTIVES}}})", "{{slo}}"
                        ),
                    ),
                ),
                Panel(
                    title="Budget used in the range shown",
                    description=(
                        "Bad requests in the range shown, divided by those that the target "
                        "allows. Above 1, the objective was missed."
                    ),
                    unit=GrafanaUnit.TIMES,
                    kind=PanelKind.NUMBER,
                    width=8,
                    queries=(
                        PanelQuery(
                            share(
                                _bad_events("$__range"),
                                _increase_over(series.SLO_EVENTS, "$__range"),
                            )
                            + f" / on (slo) (1 - max by (slo) ({series.SLO_TARGET.name}))",
                            "{{slo}}",
                        ),
                    ),
                    thresholds=(
                        ColourThreshold(0, GOOD),
                        ColourThreshold(0.5, WARNING),
                        ColourThreshold(1, BAD),
                    ),
                ),
            ),
        ),
        Row(
            title="Error budget",
            panels=(
                Panel(
                    title="Budget left of the whole period",
                    description=(
                        "The share of the period's error budget that is left. Below 0, the "
                        "objective is missed. Time without data counts as good. From the rules "
                        "of `tailspan slo rules`."
                    ),
                    unit=GrafanaUnit.SHARE,
                    kind=PanelKind.NUMBER,
                    signed=True,
                    width=12,
                    queries=(PanelQuery(f"{vocabulary.BUDGET_LEFT}{{{OBJECTIVES}}}", _OF_GROUP),),
                    thresholds=(
                        ColourThreshold(-10, BAD),
                        ColourThreshold(0, WARNING),
                        ColourThreshold(0.5, GOOD),
                    ),
                ),
                Panel(
                    title="Time until the budget is spent",
                    description=(
                        "Days until the budget is spent, at the burn rate of the last hour. No"
                        " value if no budget is used."
                    ),
                    unit=GrafanaUnit.DAYS,
                    kind=PanelKind.NUMBER,
                    width=12,
                    queries=(
                        PanelQuery(f"{vocabulary.EXHAUSTED_IN}{{{OBJECTIVES}}} / 86400", _OF_GROUP),
                    ),
                ),
                Panel(
                    title="Burn rate, by window",
                    description=(
                        "A paging alert fires above 14.4 over 1 h and 5 min, or above 6 over 6 h "
                        "and 30 min. A ticket is created above 3 over one day, or above 1 over "
                        "three days. These limits come from the rules of `tailspan slo rules`."
                    ),
                    unit=GrafanaUnit.TIMES,
                    width=24,
                    queries=tuple(
                        PanelQuery(
                            f"{vocabulary.burn_rate(window)}{{{OBJECTIVES}}}",
                            f"{{{{slo}}}} over {window} {_LABELS}",
                        )
                        for window in _WINDOWS
                    ),
                    thresholds=(
                        ColourThreshold(0, GOOD),
                        ColourThreshold(1, WARNING),
                        ColourThreshold(14.4, BAD),
                    ),
                ),
                Panel(
                    title="Good and bad requests",
                    description=(
                        "Requests per second that met the objective (goodput), and requests per"
                        " second that missed it."
                    ),
                    unit=GrafanaUnit.REQUESTS_PER_S,
                    kind=PanelKind.STACKED,
                    colours={"good": "green", "bad": "red"},
                    queries=(
                        PanelQuery(rate(series.SLO_GOOD_EVENTS, OBJECTIVES), "good"),
                        PanelQuery(
                            "clamp_min("
                            + rate(series.SLO_EVENTS, OBJECTIVES)
                            + " - "
                            + rate(series.SLO_GOOD_EVENTS, OBJECTIVES)
                            + ", 0)",
                            "bad",
                        ),
                    ),
                ),
                Panel(
                    title="Requests that are not counted",
                    description=(
                        "Requests per second, by reason: aborted before the result was known, a"
                        " client error, an unknown value, or reported too late."
                    ),
                    unit=GrafanaUnit.REQUESTS_PER_S,
                    queries=(
                        PanelQuery(
                            rate(series.SLO_EXCLUDED_EVENTS, OBJECTIVES, by="slo, reason"),
                            "{{slo}} {{reason}}",
                        ),
                    ),
                ),
                Panel(
                    title="Firing alerts",
                    description="Firing alerts of Tailspan's rules, including inhibited alerts.",
                    unit=GrafanaUnit.NUMBER,
                    kind=PanelKind.NUMBER,
                    width=24,
                    queries=(
                        PanelQuery(
                            'count(ALERTS{alertname=~"Tailspan.*",alertstate="firing"})'
                            " or vector(0)",
                            "firing",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
