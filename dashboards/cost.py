"""Cost dashboard: the cost of serving per hour, by part and by tenant."""

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
from dashboards.promql import MODELS, SERVERS, TENANTS, of, rate, share
from exporters.definitions.cost_series import (
    ENGINE_COST,
    ENGINE_IDLE,
    ENGINE_IDLE_COST,
    ENGINE_PRICE,
    ENGINE_UP,
    PRICED_REQUESTS,
    TENANT_PRICED_REQUESTS,
    WASTED,
)
from exporters.definitions.series import COSTS, REQUESTS, TENANT_COSTS, TOKENS

_HOUR: Final = "3600 * "
_COST: Final = COSTS["cost_usd"]
_TENANT_COST: Final = TENANT_COSTS["cost_usd"]
_SPENT: Final = {
    "requests": "#2a60b5",
    "recomputed": "#c8242b",
    "idle": "#c3c7cd",
    "unbilled": "#e5aa1f",
}

_BILL: Final = rate(ENGINE_COST, SERVERS)
_REQUESTS: Final = rate(_COST, SERVERS)
_WASTED: Final = rate(WASTED, SERVERS)
_IDLE: Final = rate(ENGINE_IDLE_COST, SERVERS)
_UNBILLED: Final = " - ".join(
    [_BILL, *(f"({each} or vector(0))" for each in (_REQUESTS, _WASTED, _IDLE))]
)
"""A part may be unknown. For example, a scraped engine does not report its idle time."""


BOARD: Final = Board(
    uid="tailspan-cost",
    title="Tailspan / Cost",
    description=(
        "The cost of serving, by part and by tenant. Servers without a price are not included."
    ),
    variables=("model", "region", "replica", "tenant"),
    rows=(
        Row(
            title="Now",
            panels=(
                Panel(
                    title="Cost per hour",
                    description="The price of all engines that are up, both busy and idle.",
                    unit=GrafanaUnit.USD,
                    kind=PanelKind.NUMBER,
                    width=6,
                    page="cost",
                    queries=(
                        PanelQuery(f"{_HOUR}sum({of(ENGINE_PRICE, SERVERS)})", "all engines"),
                    ),
                ),
                Panel(
                    title="Cost per thousand requests",
                    description=(
                        "The price of the engine time that requests used. Idle time and"
                        " recomputation are not included."
                    ),
                    unit=GrafanaUnit.USD,
                    kind=PanelKind.NUMBER,
                    width=6,
                    page="cost",
                    queries=(
                        PanelQuery(
                            f"1000 * {share(_REQUESTS, rate(PRICED_REQUESTS, SERVERS))}",
                            "1,000 requests",
                        ),
                    ),
                ),
                Panel(
                    title="Idle",
                    description=(
                        "The share of the bill for time between engine steps. No value if no"
                        " engine reports its busy time."
                    ),
                    unit=GrafanaUnit.SHARE,
                    kind=PanelKind.NUMBER,
                    width=6,
                    page="cost",
                    queries=(PanelQuery(share(_IDLE, _BILL), "of the bill"),),
                    thresholds=(
                        ColourThreshold(0, GOOD),
                        ColourThreshold(0.5, WARNING),
                        ColourThreshold(0.8, BAD),
                    ),
                ),
                Panel(
                    title="Recomputed",
                    description=(
                        "The share of the bill for work that was repeated after an eviction."
                    ),
                    unit=GrafanaUnit.SHARE,
                    kind=PanelKind.NUMBER,
                    width=6,
                    page="cost",
                    queries=(PanelQuery(share(_WASTED, _BILL), "of the bill"),),
                    thresholds=(
                        ColourThreshold(0, GOOD),
                        ColourThreshold(0.05, WARNING),
                        ColourThreshold(0.2, BAD),
                    ),
                ),
            ),
        ),
        Row(
            title="The bill",
            panels=(
                Panel(
                    title="Cost per hour, by part",
                    description=(
                        "The bill in parts: requests, recomputation, idle time, and unbilled "
                        "time of requests that have not ended. A request is billed when it ends, "
                        "so the unbilled part may be negative in an interval. Over an hour, this "
                        "cancels out. The unbilled part also contains the idle time of engines "
                        "that do not report their busy time."
                    ),
                    unit=GrafanaUnit.USD,
                    kind=PanelKind.STACKED,
                    signed=True,
                    width=24,
                    page="cost",
                    colours=_SPENT,
                    queries=(
                        PanelQuery(f"{_HOUR}{_REQUESTS}", "requests"),
                        PanelQuery(f"{_HOUR}{_WASTED}", "recomputed"),
                        PanelQuery(f"{_HOUR}{_IDLE}", "idle"),
                        PanelQuery(f"{_HOUR}({_UNBILLED})", "unbilled"),
                    ),
                ),
            ),
        ),
        Row(
            title="By tenant and model",
            panels=(
                Panel(
                    title="Cost per hour, by tenant",
                    description=(
                        "The cost of each tenant's requests, over all replicas of the model."
                    ),
                    unit=GrafanaUnit.USD,
                    kind=PanelKind.STACKED,
                    page="cost",
                    queries=(
                        PanelQuery(
                            f"{_HOUR}{rate(_TENANT_COST, TENANTS, by='tenant')}", "{{tenant}}"
                        ),
                    ),
                ),
                Panel(
                    title="Cost per thousand requests, by tenant",
                    description="Requests with long prompts or long answers cost more.",
                    unit=GrafanaUnit.USD,
                    page="cost",
                    queries=(
                        PanelQuery(
                            "1000 * "
                            + share(
                                rate(_TENANT_COST, TENANTS, by="tenant"),
                                rate(TENANT_PRICED_REQUESTS, TENANTS, by="tenant"),
                            ),
                            "{{tenant}}",
                        ),
                    ),
                ),
                Panel(
                    title="Cost per hour, by model",
                    description="The cost of requests, without idle time.",
                    unit=GrafanaUnit.USD,
                    kind=PanelKind.STACKED,
                    page="cost",
                    queries=(PanelQuery(f"{_HOUR}{rate(_COST, MODELS, by='model')}", "{{model}}"),),
                ),
                Panel(
                    title="Cost per million output tokens, by model",
                    description=(
                        "The whole bill of the model's engines, divided by their output tokens."
                        " Compare it with the price of a managed API."
                    ),
                    unit=GrafanaUnit.USD,
                    page="cost",
                    queries=(
                        PanelQuery(
                            "1000000 * "
                            + share(
                                rate(ENGINE_COST, SERVERS, by="model"),
                                rate(TOKENS["output_tokens"], SERVERS, by="model"),
                            ),
                            "{{model}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            title="Servers",
            panels=(
                Panel(
                    title="Cost per hour, by replica",
                    description="The cost of each replica's engines with all their GPUs.",
                    unit=GrafanaUnit.USD,
                    width=8,
                    page="cost",
                    queries=(
                        PanelQuery(
                            f"{_HOUR}sum by (replica) ({of(ENGINE_PRICE, SERVERS)})",
                            "{{replica}}",
                        ),
                    ),
                ),
                Panel(
                    title="Idle share, by replica",
                    description=(
                        "The share of time between engine steps. No value if no engine reports its"
                        " busy time."
                    ),
                    unit=GrafanaUnit.SHARE,
                    most=1,
                    width=8,
                    page="cost",
                    queries=(
                        PanelQuery(
                            share(
                                rate(ENGINE_IDLE, SERVERS, by="replica"),
                                rate(ENGINE_UP, SERVERS, by="replica"),
                            ),
                            "{{replica}}",
                        ),
                    ),
                ),
                Panel(
                    title="Requests that have a price",
                    description=(
                        "The share of ended requests that have a cost, by its method: the "
                        "engine's step ledger, or weighted token counts. If the sum is below 1, "
                        "some servers have no price."
                    ),
                    unit=GrafanaUnit.SHARE,
                    most=1,
                    kind=PanelKind.STACKED,
                    width=8,
                    page="cost",
                    queries=(
                        PanelQuery(
                            # The rate of a new counter is inaccurate.
                            f"clamp_max({rate(PRICED_REQUESTS, SERVERS, by='priced_by')}"
                            f" / on () group_left () ({rate(REQUESTS, SERVERS)} > 0), 1)",
                            "by {{priced_by}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
