"""Cost: what serving costs an hour, what and whom it is for."""

from typing import Final

from dashboards.panels import (
    BAD,
    DOUBTFUL,
    GOOD,
    Board,
    Kind,
    Panel,
    Query,
    Row,
    Threshold,
    Unit,
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


BOARD: Final = Board(
    uid="tailspan-cost",
    title="Tailspan / Cost",
    description="What serving costs, what and whom it is for. Servers without a price are in none"
    " of it.",
    variables=("model", "region", "replica", "tenant"),
    rows=(
        Row(
            title="Now",
            panels=(
                Panel(
                    title="An hour",
                    description="The price of all engines that are up, busy or not.",
                    unit=Unit.USD,
                    kind=Kind.NUMBER,
                    width=6,
                    page="cost",
                    queries=(Query(f"{_HOUR}sum({of(ENGINE_PRICE, SERVERS)})", "all engines"),),
                ),
                Panel(
                    title="A thousand requests",
                    description="Their share of engine steps. Idle time and what was computed"
                    " again are not in it.",
                    unit=Unit.USD,
                    kind=Kind.NUMBER,
                    width=6,
                    page="cost",
                    queries=(
                        Query(
                            f"1000 * {share(_REQUESTS, rate(PRICED_REQUESTS, SERVERS))}",
                            "1,000 requests",
                        ),
                    ),
                ),
                Panel(
                    title="Idle",
                    description="The share of the bill that was paid for time between steps."
                    " Absent where nobody tells busy from idle.",
                    unit=Unit.SHARE,
                    kind=Kind.NUMBER,
                    width=6,
                    page="cost",
                    queries=(Query(share(_IDLE, _BILL), "of the bill"),),
                    thresholds=(Threshold(0, GOOD), Threshold(0.5, DOUBTFUL), Threshold(0.8, BAD)),
                ),
                Panel(
                    title="Computed again",
                    description="The share of the bill that went into what evictions threw away.",
                    unit=Unit.SHARE,
                    kind=Kind.NUMBER,
                    width=6,
                    page="cost",
                    queries=(Query(share(_WASTED, _BILL), "of the bill"),),
                    thresholds=(Threshold(0, GOOD), Threshold(0.05, DOUBTFUL), Threshold(0.2, BAD)),
                ),
            ),
        ),
        Row(
            title="The bill",
            panels=(
                Panel(
                    title="An hour, by what it went for",
                    description="Requests, what was computed again, idle time, and what no request"
                    " pays for: of those that have not ended. Together they are the bill. A request"
                    " pays for all its time when it ends: where more ends than was done, unbilled"
                    " is below zero, and takes back what the others have above the bill. Over an"
                    " hour that evens out.",
                    unit=Unit.USD,
                    kind=Kind.STACKED,
                    signed=True,
                    width=24,
                    page="cost",
                    colours=_SPENT,
                    queries=(
                        Query(f"{_HOUR}{_REQUESTS}", "requests"),
                        Query(f"{_HOUR}{_WASTED}", "recomputed"),
                        Query(f"{_HOUR}{_IDLE}", "idle"),
                        Query(f"{_HOUR}({_BILL} - {_REQUESTS} - {_WASTED} - {_IDLE})", "unbilled"),
                    ),
                ),
            ),
        ),
        Row(
            title="Who pays",
            panels=(
                Panel(
                    title="An hour, by tenant",
                    description="What their requests cost, over all replicas of the model.",
                    unit=Unit.USD,
                    kind=Kind.STACKED,
                    page="cost",
                    queries=(
                        Query(f"{_HOUR}{rate(_TENANT_COST, TENANTS, by='tenant')}", "{{tenant}}"),
                    ),
                ),
                Panel(
                    title="A thousand requests, by tenant",
                    description="Long prompts and long answers cost more.",
                    unit=Unit.USD,
                    page="cost",
                    queries=(
                        Query(
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
                    title="An hour, by model",
                    description="What requests cost, idle time left out.",
                    unit=Unit.USD,
                    kind=Kind.STACKED,
                    page="cost",
                    queries=(Query(f"{_HOUR}{rate(_COST, MODELS, by='model')}", "{{model}}"),),
                ),
                Panel(
                    title="A million output tokens, by model",
                    description="The whole bill of the model's engines over the tokens that they"
                    " made: prompts and idle time included, as a managed price has them.",
                    unit=Unit.USD,
                    page="cost",
                    queries=(
                        Query(
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
                    title="An hour of each",
                    description="What its engines cost, all GPUs together.",
                    unit=Unit.USD,
                    width=8,
                    page="cost",
                    queries=(
                        Query(
                            f"{_HOUR}sum by (replica) ({of(ENGINE_PRICE, SERVERS)})",
                            "{{replica}}",
                        ),
                    ),
                ),
                Panel(
                    title="Idle, of each",
                    description="The share of time between steps. Absent where nobody tells busy"
                    " from idle.",
                    unit=Unit.SHARE,
                    most=1,
                    width=8,
                    page="cost",
                    queries=(
                        Query(
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
                    description="Of those that ended, by how it was found: by the engine's ledger,"
                    " or by weighted tokens. Below 1 together, some servers have no price.",
                    unit=Unit.SHARE,
                    most=1,
                    kind=Kind.STACKED,
                    width=8,
                    page="cost",
                    queries=(
                        Query(
                            # Of counters that just began, a rate is a guess: of one more than
                            # of the other.
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
