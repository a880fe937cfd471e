"""Probes dashboard: endpoints as users of each region see them."""

from typing import Final

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
from dashboards.promql import PROBES, of, rate, share
from exporters.definitions.probe_series import (
    COST,
    DURATION,
    GAUGES,
    LAST,
    RESULTS,
    SUCCESS,
    UNLISTED,
)
from telemetry.probes import ProbeOutcome

_PLACE: Final = "{{endpoint}} {{region}}"
_BY: Final = "region, endpoint"
_COUNTED: Final = 'outcome!~"missed|over_budget|abort"'
_ANSWERED: Final = f'outcome=~"{"|".join(each for each in ProbeOutcome if each.succeeded)}"'
_DAY_S: Final = "86400 * "


def _results(*also: str, over: str = "$__range", by: str = "") -> str:
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (increase({of(RESULTS, PROBES, *also)}[{over}]))"


def _by_place(title: str, description: str, query: str) -> Panel:
    return Panel(
        title=title,
        description=description,
        unit=GrafanaUnit.SECONDS,
        page="outside",
        queries=(PanelQuery(query, _PLACE),),
    )


BOARD: Final = Board(
    uid="tailspan-probes",
    title="Tailspan / Probes",
    description="Endpoints as users of each region see them, measured by `tailspan probe`.",
    variables=("prober_region", "endpoint"),
    rows=(
        Row(
            title="Now",
            panels=(
                Panel(
                    title="Probes with a complete answer",
                    description=(
                        "The share of the sent probes that got a complete answer. Probes that "
                        "the prober did not send, or stopped, do not count."
                    ),
                    unit=GrafanaUnit.SHARE,
                    decimals=3,
                    kind=PanelKind.NUMBER,
                    width=6,
                    most=1,
                    page="outside",
                    queries=(
                        PanelQuery(
                            share(_results(_ANSWERED), _results(_COUNTED)), "of all endpoints"
                        ),
                    ),
                    thresholds=(
                        ColourThreshold(0, BAD),
                        ColourThreshold(0.99, WARNING),
                        ColourThreshold(0.999, GOOD),
                    ),
                ),
                Panel(
                    title="Endpoints that fail",
                    description="Endpoints and regions whose latest probe got no complete answer.",
                    unit=GrafanaUnit.NUMBER,
                    kind=PanelKind.NUMBER,
                    width=6,
                    page="outside",
                    queries=(
                        PanelQuery(
                            f"sum(1 - max by ({_BY}, model) ({of(SUCCESS, PROBES)}))",
                            "endpoints by region",
                        ),
                    ),
                    thresholds=(ColourThreshold(0, GOOD), ColourThreshold(1, BAD)),
                ),
                Panel(
                    title="First certificate to expire",
                    description="Time until the first of these endpoints' certificates expires.",
                    unit=GrafanaUnit.DAYS,
                    kind=PanelKind.NUMBER,
                    width=6,
                    page="outside",
                    queries=(
                        PanelQuery(
                            "clamp_min((min("
                            f"{of(GAUGES['certificate_ends_unix_s'], PROBES)}) - time())"
                            " / 86400, 0)",
                            "the first certificate",
                        ),
                    ),
                    thresholds=(
                        ColourThreshold(0, BAD),
                        ColourThreshold(7, WARNING),
                        ColourThreshold(15, GOOD),
                    ),
                ),
                Panel(
                    title="Cost of probing per day",
                    description=(
                        "The list price of the probes' tokens, at the rate of the range shown."
                        " Endpoints without a list price are not included."
                    ),
                    unit=GrafanaUnit.USD,
                    kind=PanelKind.NUMBER,
                    width=6,
                    page="outside",
                    queries=(
                        PanelQuery(
                            f"{_DAY_S}{rate(COST, PROBES, over='$__range')}", "all endpoints"
                        ),
                    ),
                ),
            ),
        ),
        Row(
            title="Failures",
            panels=(
                Panel(
                    title="Success, by endpoint and region",
                    description=(
                        "The share of the sent probes that got a complete answer. Probes that "
                        "the prober did not send, or stopped, do not count."
                    ),
                    unit=GrafanaUnit.SHARE,
                    decimals=3,
                    most=1,
                    page="outside",
                    queries=(
                        PanelQuery(
                            share(
                                rate(RESULTS, PROBES, _ANSWERED, by=_BY),
                                rate(RESULTS, PROBES, _COUNTED, by=_BY),
                            ),
                            _PLACE,
                        ),
                    ),
                ),
                Panel(
                    title="Probes per second, by outcome",
                    description=(
                        "stop and length are complete answers. over_budget and missed were not"
                        " sent. `tailspan outside` prints the reasons of failures."
                    ),
                    unit=GrafanaUnit.PER_S,
                    kind=PanelKind.STACKED,
                    page="outside",
                    queries=(PanelQuery(rate(RESULTS, PROBES, by="outcome"), "{{outcome}}"),),
                ),
            ),
        ),
        Row(
            title="Latency",
            panels=(
                Panel(
                    title="Phases of the whole wait",
                    description=(
                        "The mean over the latest probe of each endpoint and region. The phases "
                        "sum to the whole wait. processing is the network and the server until "
                        "the first event."
                    ),
                    unit=GrafanaUnit.SECONDS,
                    kind=PanelKind.STACKED,
                    page="outside",
                    queries=(
                        PanelQuery(
                            f"sum by (phase) ({of(DURATION, PROBES)})"
                            f" / on () group_left () count({of(SUCCESS, PROBES)})",
                            "{{phase}}",
                        ),
                    ),
                ),
                _by_place(
                    "Whole wait, by endpoint and region",
                    "The wait of the latest probe, including the set-up of its connection.",
                    f"avg by ({_BY}) (sum without (phase) ({of(DURATION, PROBES)}))",
                ),
                _by_place(
                    "First content, by endpoint and region",
                    "Time from the ready connection to the first content token of the latest probe."
                    " An answer that contains only reasoning has no value.",
                    f"max by ({_BY}) ({of(GAUGES['first_content_s'], PROBES)})",
                ),
                _by_place(
                    "Longest gap, by endpoint and region",
                    "The longest gap between two streamed events that contain tokens.",
                    f"max by ({_BY}) ({of(GAUGES['itl_max_s'], PROBES)})",
                ),
            ),
        ),
        Row(
            title="Prober",
            panels=(
                _by_place(
                    "Time since the latest probe",
                    "If this time exceeds the interval in the prober's file, the prober has"
                    " stopped, or the budget of the day is spent.",
                    f"time() - max by ({_BY}) ({of(LAST, PROBES)})",
                ),
                Panel(
                    title="Results without a series",
                    description=(
                        "Results per second of endpoints beyond the limit on endpoints. No other"
                        " panel shows these endpoints."
                    ),
                    unit=GrafanaUnit.PER_S,
                    page="outside",
                    queries=(PanelQuery(rate(UNLISTED, ""), "all endpoints"),),
                ),
            ),
        ),
    ),
)
