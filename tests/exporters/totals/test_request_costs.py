from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import generate_latest

from exporters.definitions.cost_series import COST_SERIES, ENGINE_UP
from exporters.definitions.series_types import OTHER
from exporters.prometheus import PrometheusExporter
from exporters.totals.label_limits import ExporterLabels
from telemetry.engines import EngineSample
from telemetry.requests import PricedBy, RequestTimeline

Row = Callable[..., RequestTimeline]
Sample = Callable[..., EngineSample]
PAIR = {"model": "llama", "replica": "r1"}
LEDGER = {**PAIR, "priced_by": "ledger"}
TOKENS = {**PAIR, "priced_by": "tokens"}
PRICE = 0.001


@pytest.fixture
def exporter(clock: Any) -> PrometheusExporter:
    return PrometheusExporter(clock_unix_ns=clock, usd_per_s=lambda replica, engine: PRICE)


def priced(row: Row, billed_s: float, **changes: Any) -> RequestTimeline:
    """Return a request with a cost, by default from the ledger's account."""
    about: dict[str, Any] = {"engine": 0, "priced_by": PricedBy.LEDGER, "wasted_s": 0.0}
    return row(billed_s=billed_s, cost_usd=billed_s * PRICE, **{**about, **changes})


def value(exporter: PrometheusExporter, name: str, **labels: str) -> float | None:
    return exporter.registry.get_sample_value(name, labels)


def test_requests_differ_by_how_priced(exporter: PrometheusExporter, request_row: Row) -> None:
    exporter.on_stored(
        [
            priced(request_row, 2.0),
            priced(request_row, 1.0),
            priced(request_row, 4.0, priced_by=PricedBy.TOKENS),
        ],
        [],
    )
    assert value(exporter, "tailspan_cost_usd_total", **PAIR) == pytest.approx(0.007)
    assert value(exporter, "tailspan_priced_requests_total", **LEDGER) == 2
    assert value(exporter, "tailspan_priced_requests_total", **TOKENS) == 1


def test_recomputation_is_counted_separately(
    exporter: PrometheusExporter, request_row: Row
) -> None:
    exporter.on_stored([priced(request_row, 2.0, wasted_s=0.5)], [])
    assert value(exporter, "tailspan_cost_usd_total", **PAIR) == pytest.approx(0.002)
    assert value(exporter, "tailspan_wasted_cost_usd_total", **PAIR) == pytest.approx(0.0005)


def test_each_tenant_has_separate_costs(exporter: PrometheusExporter, request_row: Row) -> None:
    exporter.on_stored(
        [priced(request_row, 1.0, tenant="acme", replica=each) for each in ("r1", "r2")], []
    )
    acme = {"model": "llama", "tenant": "acme"}
    assert value(exporter, "tailspan_tenant_cost_usd_total", **acme) == pytest.approx(0.002)
    assert value(exporter, "tailspan_tenant_priced_requests_total", **acme) == 2


def test_an_engine_without_a_price_has_no_cost_series(
    clock: Any, request_row: Row, sample_row: Sample
) -> None:
    exporter = PrometheusExporter(clock_unix_ns=clock)
    exporter.on_stored([request_row(billed_s=2.0, wasted_s=1.0)], [sample_row()])
    text = generate_latest(exporter.registry).decode()
    for each in COST_SERIES:
        seconds = each.name.endswith("_seconds_total")
        assert (f"\n{each.name}{{" in text) == seconds, each.name
    assert f"{ENGINE_UP.name}{{" in text


def test_costs_start_at_zero_with_a_price(exporter: PrometheusExporter, sample_row: Sample) -> None:
    """If the counters did not start at zero, `rate` would not include the first request."""
    exporter.on_stored([], [sample_row()])
    assert value(exporter, "tailspan_priced_requests_total", **LEDGER) == 0
    assert value(exporter, "tailspan_wasted_cost_usd_total", **PAIR) == 0
    engine = {**PAIR, "engine": "0"}
    assert value(exporter, "tailspan_engine_price_usd_per_second", **engine) == PRICE


def test_bills_sum(
    exporter: PrometheusExporter, request_row: Row, sample_row: Sample, clock: Any
) -> None:
    for at in range(11):
        exporter.on_stored([], [sample_row(busy_s_total=at * 0.5)])
        clock.advance(1)
    exporter.on_stored([priced(request_row, 4.0, wasted_s=1.0)], [])
    parts = [
        value(exporter, "tailspan_cost_usd_total", **PAIR),
        value(exporter, "tailspan_wasted_cost_usd_total", **PAIR),
        value(exporter, "tailspan_engine_idle_cost_usd_total", **PAIR, engine="0"),
    ]
    bill = value(exporter, "tailspan_engine_cost_usd_total", **PAIR, engine="0")
    assert bill == pytest.approx(0.01)
    assert sum(each or 0.0 for each in parts) == pytest.approx(bill)


def test_costs_are_capped_like_all_else(clock: Any, request_row: Row) -> None:
    exporter = PrometheusExporter(
        clock_unix_ns=clock, labels=ExporterLabels(limit=2), usd_per_s=lambda replica, engine: PRICE
    )
    exporter.on_stored([priced(request_row, 1.0, tenant=f"t{n}") for n in range(1_000)], [])
    other = {"model": "llama", "tenant": OTHER}
    assert value(exporter, "tailspan_tenant_cost_usd_total", **other) == pytest.approx(0.998)
    text = generate_latest(exporter.registry).decode()
    assert text.count("\ntailspan_tenant_cost_usd_total{") == 3
