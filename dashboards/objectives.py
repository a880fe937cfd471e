"""Objectives: what was promised, what is left of the budget, and how fast it goes."""

from typing import Final

from alerts import vocabulary
from dashboards.panels import BAD, DOUBTFUL, GOOD, Board, Kind, Panel, Query, Row, Threshold, Unit
from dashboards.promql import OBJECTIVES, rate, share
from exporters.definitions import series
from exporters.definitions.series_types import Series

_WINDOWS: Final = ("5m", "1h", "6h", "3d")


def _over(of: Series, window: str) -> str:
    return f"sum by (slo) (increase({of.name}{{{OBJECTIVES}}}[{window}]))"


def _bad(window: str) -> str:
    return f"({_over(series.SLO_EVENTS, window)} - {_over(series.SLO_GOOD_EVENTS, window)})"


BOARD: Final = Board(
    uid="tailspan-objectives",
    title="Tailspan / Objectives",
    description="What was promised, how much of the budget is left, and how fast it goes.",
    variables=("slo",),
    rows=(
        Row(
            title="Kept?",
            panels=(
                Panel(
                    title="Requests that kept the promise",
                    description="Of the requests that the objective is about, over the range shown:"
                    " counted one by one against the exact threshold, not read off buckets.",
                    unit=Unit.SHARE,
                    kind=Kind.NUMBER,
                    width=8,
                    most=1,
                    queries=(
                        Query(
                            share(
                                _over(series.SLO_GOOD_EVENTS, "$__range"),
                                _over(series.SLO_EVENTS, "$__range"),
                            ),
                            "{{slo}}",
                        ),
                    ),
                ),
                Panel(
                    title="Promised",
                    description="The share of requests that is to keep the promise.",
                    unit=Unit.SHARE,
                    kind=Kind.NUMBER,
                    width=8,
                    most=1,
                    queries=(
                        Query(
                            f"max by (slo) ({series.SLO_TARGET.name}{{{OBJECTIVES}}})", "{{slo}}"
                        ),
                    ),
                ),
                Panel(
                    title="Budget spent by the range shown",
                    description="Bad requests of the range shown, of those that the promise allows"
                    " at the range's traffic. Above 1 the promise was broken over this range.",
                    unit=Unit.TIMES,
                    kind=Kind.NUMBER,
                    width=8,
                    queries=(
                        Query(
                            share(_bad("$__range"), _over(series.SLO_EVENTS, "$__range"))
                            + f" / on (slo) (1 - max by (slo) ({series.SLO_TARGET.name}))",
                            "{{slo}}",
                        ),
                    ),
                    thresholds=(Threshold(0, GOOD), Threshold(0.5, DOUBTFUL), Threshold(1, BAD)),
                ),
            ),
        ),
        Row(
            title="How fast does the budget go?",
            panels=(
                Panel(
                    title="Budget left of the whole period",
                    description="The share of the period's error budget that is left; below 0 the"
                    " objective is missed. Time that was not watched counts as good. From the rules"
                    " that `tailspan slo rules` makes, for objectives on other metrics too.",
                    unit=Unit.SHARE,
                    kind=Kind.NUMBER,
                    signed=True,
                    width=12,
                    queries=(Query(f"{vocabulary.BUDGET_LEFT}{{{OBJECTIVES}}}", "{{slo}}"),),
                    thresholds=(Threshold(-10, BAD), Threshold(0, DOUBTFUL), Threshold(0.5, GOOD)),
                ),
                Panel(
                    title="Budget lasts at the present pace",
                    description="How long the budget that is left lasts if it goes on burning as in"
                    " the last hour. Empty while nothing burns.",
                    unit=Unit.DAYS,
                    kind=Kind.NUMBER,
                    width=12,
                    queries=(
                        Query(f"{vocabulary.EXHAUSTED_IN}{{{OBJECTIVES}}} / 86400", "{{slo}}"),
                    ),
                ),
                Panel(
                    title="Burn rate",
                    description="How many times too fast the budget went, by window. A page needs"
                    " 1 h and 5 m above 14.4, or 6 h and 30 m above 6; a ticket a day above 3 or"
                    " three above 1. From the rules that `tailspan slo rules` makes.",
                    unit=Unit.TIMES,
                    width=24,
                    queries=tuple(
                        Query(
                            f"{vocabulary.burn_rate(window)}{{{OBJECTIVES}}}",
                            f"{{{{slo}}}} over {window}",
                        )
                        for window in _WINDOWS
                    ),
                    thresholds=(Threshold(0, GOOD), Threshold(1, DOUBTFUL), Threshold(14.4, BAD)),
                ),
                Panel(
                    title="Good and bad requests",
                    description="Requests a second that kept the promise (this is goodput), and"
                    " that did not.",
                    unit=Unit.REQUESTS_PER_S,
                    kind=Kind.STACKED,
                    colours={"good": "green", "bad": "red"},
                    queries=(
                        Query(rate(series.SLO_GOOD_EVENTS, OBJECTIVES), "good"),
                        Query(
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
                    title="Requests that count as nothing",
                    description="A second, by why: aborted before it was decided, the client's own"
                    " mistake, a value unknown, or told of too late.",
                    unit=Unit.REQUESTS_PER_S,
                    queries=(
                        Query(
                            rate(series.SLO_EXCLUDED_EVENTS, OBJECTIVES, by="slo, reason"),
                            "{{slo}} {{reason}}",
                        ),
                    ),
                ),
                Panel(
                    title="Alerts that fire",
                    description="Of Tailspan's rules, those held back included. 0 is quiet.",
                    unit=Unit.NUMBER,
                    kind=Kind.NUMBER,
                    width=24,
                    queries=(
                        Query(
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
