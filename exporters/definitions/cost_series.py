"""The series of the cost of engines and of recomputation. For replicas with a price:

    engine_cost = cost (`series.COSTS`) + wasted_cost + engine_idle_cost + unbilled cost

A replica without a price has no cost series. The series exclude the time for which engines load,
because engines send no samples then. Only `tailspan cost` bills this time.
"""

from typing import Final

from exporters.definitions.series_types import (
    ENGINE_LABELS,
    REQUEST_LABELS,
    TENANT_LABELS,
    MetricSeries,
)

PRICED_REQUESTS: Final = MetricSeries(
    "tailspan_priced_requests_total",
    "Ended requests whose cost is in tailspan_cost_usd_total, by pricing method: from the"
    " engine's step ledger, or from weighted tokens if the ledger has no data.",
    (*REQUEST_LABELS, "priced_by"),
)
WASTED: Final = MetricSeries(
    "tailspan_wasted_cost_usd_total",
    "Cost of work that engines repeated for ended requests after preemptions, in US dollars; not"
    " included in tailspan_cost_usd_total.",
    REQUEST_LABELS,
)
TENANT_PRICED_REQUESTS: Final = MetricSeries(
    "tailspan_tenant_priced_requests_total",
    "Ended requests that tailspan_tenant_cost_usd_total includes.",
    TENANT_LABELS,
)
ENGINE_PRICE: Final = MetricSeries(
    "tailspan_engine_price_usd_per_second",
    "Price per second of the engine with all its GPUs, in US dollars. Multiply by 3,600 for the"
    " price per hour."
    " Absent if no price list contains the engine's device.",
    ENGINE_LABELS,
)
ENGINE_UP: Final = MetricSeries(
    "tailspan_engine_up_seconds_total",
    "Time in which the engine sent samples, in seconds. Gaps of more than a minute between samples"
    " do not count.",
    ENGINE_LABELS,
)
ENGINE_IDLE: Final = MetricSeries(
    "tailspan_engine_idle_seconds_total",
    "Time between steps while the engine sent samples, in seconds. Absent if the engine does not"
    " report busy time.",
    ENGINE_LABELS,
)
ENGINE_COST: Final = MetricSeries(
    "tailspan_engine_cost_usd_total",
    "Cost of the engine while it sent samples, busy or idle, in US dollars.",
    ENGINE_LABELS,
)
ENGINE_IDLE_COST: Final = MetricSeries(
    "tailspan_engine_idle_cost_usd_total",
    "Cost of the engine's time between steps, in US dollars. It is part of"
    " tailspan_engine_cost_usd_total.",
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
