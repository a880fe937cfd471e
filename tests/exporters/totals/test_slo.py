"""Good and all, on /metrics, from the exact threshold."""

from collections.abc import Callable
from typing import Any

import pytest

from alerts.expression import parse
from alerts.fields import GOOD, WHERE
from alerts.objectives import Goodput
from exporters.prometheus import PrometheusExporter
from telemetry.requests import Outcome, RequestTimeline

Row = Callable[..., RequestTimeline]


@pytest.fixture
def exporter(clock: Any) -> PrometheusExporter:
    """With two objectives in force."""
    fast = parse("ttft_s <= 0.5", GOOD)
    return PrometheusExporter(
        clock_unix_ns=clock,
        objectives={"all": Goodput(None, fast), "a": Goodput(parse("tenant == 'a'", WHERE), fast)},
    )


def _counts(exporter: PrometheusExporter, slo: str) -> tuple[float | None, float | None]:
    value = exporter.registry.get_sample_value
    return (
        value("tailspan_slo_good_events_total", {"slo": slo}),
        value("tailspan_slo_events_total", {"slo": slo}),
    )


def _excluded(exporter: PrometheusExporter, reason: str) -> float | None:
    return exporter.registry.get_sample_value(
        "tailspan_slo_excluded_events_total", {"slo": "all", "reason": reason}
    )


def test_counters_stand_at_zero_before_the_first_request(exporter: PrometheusExporter) -> None:
    """A counter born at 1 loses its first event."""
    assert _counts(exporter, "all") == (0, 0)
    assert _counts(exporter, "a") == (0, 0)
    assert [_excluded(exporter, r) for r in ("aborted", "client_error", "unknown", "late")] == [
        0,
        0,
        0,
        0,
    ]


def test_a_request_counts_where_it_is_meant_and_by_the_exact_threshold(
    exporter: PrometheusExporter, request_row: Row
) -> None:
    """Half a second is kept; a nanosecond more is not."""
    exporter.on_stored(
        [
            request_row(ttft_s=0.5, tenant="a"),
            request_row(ttft_s=0.500000001, tenant="b"),
            request_row(ttft_s=0.1, outcome=Outcome.ERROR),
        ],
        [],
    )
    assert _counts(exporter, "all") == (1, 3)
    assert _counts(exporter, "a") == (1, 1)


def test_what_cannot_be_counted_is_counted_as_such(
    exporter: PrometheusExporter, request_row: Row
) -> None:
    """Left out of both sums, and in sight."""
    exporter.on_stored(
        [
            request_row(outcome=Outcome.ABORT, ttft_s=None, output_tokens=0, e2e_s=0.2),
            request_row(outcome=Outcome.REJECTED, http_status=400, ttft_s=None),
            request_row(ttft_s=None),
        ],
        [],
    )
    assert _counts(exporter, "all") == (0, 0)
    assert [_excluded(exporter, r) for r in ("aborted", "client_error", "unknown")] == [1, 1, 1]


def test_a_request_of_an_hour_ago_is_not_counted_as_of_now(
    exporter: PrometheusExporter, request_row: Row, clock: Any
) -> None:
    """A replay must wake nobody."""
    clock.advance(3600)
    exporter.on_stored([request_row(ttft_s=9.0)], [])
    assert _counts(exporter, "all") == (0, 0)
    assert _excluded(exporter, "late") == 1


def test_a_repeated_request_is_one_event(exporter: PrometheusExporter, request_row: Row) -> None:
    """As everywhere on /metrics."""
    row = request_row(ttft_s=0.1)
    exporter.on_stored([row, row], [])
    exporter.on_stored([row], [])
    assert _counts(exporter, "all") == (1, 1)


def test_each_group_with_a_place_has_counters_and_the_rest_has_one(
    clock: Any, request_row: Row
) -> None:
    """A thousand made-up tenants are one series; a group without requests stands at 0."""
    grouped = Goodput(None, parse("ttft_s <= 0.5", GOOD), ("tenant",))
    exporter = PrometheusExporter(
        clock_unix_ns=clock,
        objectives={"all": Goodput(None, parse("ttft_s <= 0.5", GOOD)), "each": grouped},
        placed=lambda goodput: (("a",), ("quiet",)),
    )
    rows = [request_row(ttft_s=9.0, tenant=f"x{at}") for at in range(1_000)]
    exporter.on_stored([request_row(ttft_s=0.1, tenant="a"), *rows], [])
    value = exporter.registry.get_sample_value
    for tenant, events, good in (("a", 1, 1), ("quiet", 0, 0), ("other", 1_000, 0)):
        labels = {"slo": "each", "tenant": tenant}
        assert value("tailspan_slo_events_total", labels) == events
        assert value("tailspan_slo_good_events_total", labels) == good
    assert value("tailspan_slo_events_total", {"slo": "all", "tenant": ""}) == 1_001
    assert value("tailspan_slo_groups", {"slo": "each"}) == 2
    family = next(
        each for each in exporter.registry.collect() if each.name == "tailspan_slo_events"
    )
    assert len(family.samples) == 4
