"""The series of what engines cost, and of what part of it went for nothing.

    engine_cost = cost (`series.COSTS`) + wasted_cost + engine_idle_cost + what is unbilled

Engines send no samples while they load: that time is in the bill of `tailspan cost` alone.

over replicas that have a price. One without has none of them: nobody knows is not $0.
"""

from typing import Final

from exporters.definitions.series_types import ENGINE_LABELS, REQUEST_LABELS, TENANT_LABELS, Series

PRICED_REQUESTS: Final = Series(
    "tailspan_priced_requests_total",
    "Ended requests that have a cost, those of tailspan_cost_usd_total, by how it was found: the"
    " engine's ledger, or weighted tokens where that told nothing.",
    (*REQUEST_LABELS, "priced_by"),
)
WASTED: Final = Series(
    "tailspan_wasted_cost_usd_total",
    "What evictions made engines compute again for ended requests, in US dollars; not in"
    " tailspan_cost_usd_total.",
    REQUEST_LABELS,
)
TENANT_PRICED_REQUESTS: Final = Series(
    "tailspan_tenant_priced_requests_total",
    "Ended requests that have a cost: those of tailspan_tenant_cost_usd_total.",
    TENANT_LABELS,
)
ENGINE_PRICE: Final = Series(
    "tailspan_engine_price_usd_per_second",
    "What a second of the engine costs, all its GPUs together, in US dollars. Times 3,600: an"
    " hour. Absent where no price list has its device.",
    ENGINE_LABELS,
)
ENGINE_UP: Final = Series(
    "tailspan_engine_up_seconds_total",
    "Time in which the engine was heard of, in seconds. A silence of over a minute is not in it.",
    ENGINE_LABELS,
)
ENGINE_IDLE: Final = Series(
    "tailspan_engine_idle_seconds_total",
    "Of that time, what lay between steps, in seconds. Absent where nobody tells busy from idle.",
    ENGINE_LABELS,
)
ENGINE_COST: Final = Series(
    "tailspan_engine_cost_usd_total",
    "The bill: what the engine cost while it was heard of, busy or not, in US dollars.",
    ENGINE_LABELS,
)
ENGINE_IDLE_COST: Final = Series(
    "tailspan_engine_idle_cost_usd_total",
    "Of the bill, what was paid for time between steps, in US dollars.",
    ENGINE_LABELS,
)

COST_SERIES: Final = (
    PRICED_REQUESTS,
    WASTED,
    TENANT_PRICED_REQUESTS,
    ENGINE_PRICE,
    ENGINE_UP,
    ENGINE_IDLE,
    ENGINE_COST,
    ENGINE_IDLE_COST,
)
