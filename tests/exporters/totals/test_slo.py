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


def test_counters_are_zero_before_the_first_request(exporter: PrometheusExporter) -> None:
    assert _counts(exporter, "all") == (0, 0)
    assert _counts(exporter, "a") == (0, 0)
    assert [_excluded(exporter, r) for r in ("aborted", "client_error", "unknown", "late")] == [
        0,
        0,
        0,
        0,
    ]


def test_thresholds_are_exact(exporter: PrometheusExporter, request_row: Row) -> None:
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


def test_uncountable_requests_are_counted(exporter: PrometheusExporter, request_row: Row) -> None:
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


def test_late_requests_do_not_count(
    exporter: PrometheusExporter, request_row: Row, clock: Any
) -> None:
    """Old requests that are sent again must not cause a page."""
    clock.advance(3600)
    exporter.on_stored([request_row(ttft_s=9.0)], [])
    assert _counts(exporter, "all") == (0, 0)
    assert _excluded(exporter, "late") == 1


def test_a_repeated_request_is_one_event(exporter: PrometheusExporter, request_row: Row) -> None:
    row = request_row(ttft_s=0.1)
    exporter.on_stored([row, row], [])
    exporter.on_stored([row], [])
    assert _counts(exporter, "all") == (1, 1)


def test_groups_beyond_the_cap_share_one_counter(clock: Any, request_row: Row) -> None:
    grouped = Goodput(None, parse("ttft_s <= 0.5", GOOD), ("tenant",))
    exporter = PrometheusExporter(
        clock_unix_ns=clock,
        objectives={"all": Goodput(None, parse("ttft_s <= 0.5", GOOD)), "each": grouped},
        separate=lambda goodput: (("a",), ("quiet",)),
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


def test_the_counters_of_a_new_group_begin_at_zero(clock: Any, request_row: Row) -> None:
    """Prometheus does not count the first value of a series as an increase."""
    separate = [("a",)]
    exporter = PrometheusExporter(
        clock_unix_ns=clock,
        objectives={"each": Goodput(None, parse("ttft_s <= 0.5", GOOD), ("tenant",))},
        separate=lambda goodput: tuple(separate),
    )

    def send(tenant: str) -> None:
        exporter.on_stored([request_row(ttft_s=9.0, tenant=tenant) for _ in range(10)], [])

    def events(tenant: str) -> float | None:
        labels = {"slo": "each", "tenant": tenant}
        return exporter.registry.get_sample_value("tailspan_slo_events_total", labels)

    send("a")
    assert (events("a"), events("b"), events("other")) == (10, None, 0)
    separate.append(("b",))
    send("a")
    send("b")
    assert [(events("a"), events("b"), events("other")) for _ in range(2)] == [(20, 0, 10)] * 2
    send("b")
    assert (events("a"), events("b"), events("other")) == (20, 10, 10)
    separate.remove(("a",))
    send("a")
    assert (events("a"), events("b"), events("other")) == (None, 10, 20)
