from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from alerts.expression import parse
from alerts.fields import GOOD
from alerts.objectives import Goodput
from exporters.prometheus import PrometheusExporter
from telemetry.requests import Outcome, RequestTimeline, Source
from tests.alerts.in_flight import report_of

S = 10**9
Row = Callable[..., RequestTimeline]


@pytest.fixture
def made(clock: Any) -> Callable[[], PrometheusExporter]:
    def make() -> PrometheusExporter:
        objectives = {
            "ttft": Goodput(None, parse("ttft_s <= 0.5", GOOD)),
            "e2e": Goodput(None, parse("e2e_s <= 12", GOOD)),
        }
        return PrometheusExporter(clock_unix_ns=clock, objectives=objectives)

    return make


def counts(exporter: PrometheusExporter, slo: str) -> tuple[int, int]:
    value = exporter.registry.get_sample_value
    good = value("tailspan_slo_good_events_total", {"slo": slo})
    events = value("tailspan_slo_events_total", {"slo": slo})
    assert good is not None
    assert events is not None
    return int(good), int(events)


@pytest.fixture
def row(request_row: Row, clock: Any) -> RequestTimeline:
    return request_row(received_unix_ns=clock() - 30 * S, e2e_s=30.0, ttft_s=29.0)


def test_a_hung_request_counts_once(made: Callable[..., Any], row: RequestTimeline) -> None:
    exporter = made()
    exporter.on_in_flight_stored([report_of(row, 6)])
    assert (counts(exporter, "ttft"), counts(exporter, "e2e")) == ((0, 1), (0, 0))
    exporter.on_in_flight_stored([report_of(row, 16, 6)])
    exporter.on_in_flight_stored([report_of(row, 16, 6)])  # the response was lost
    assert (counts(exporter, "ttft"), counts(exporter, "e2e")) == ((0, 1), (0, 1))
    exporter.on_stored([replace(row, reported_in_flight_s=16.0)], [])
    assert (counts(exporter, "ttft"), counts(exporter, "e2e")) == ((0, 1), (0, 1))


def test_a_request_counts_once_with_restarts_and_several_collectors(
    made: Callable[..., Any], row: RequestTimeline
) -> None:
    """The message contains the request's age when it was last counted."""
    before, after, other = made(), made(), made()
    before.on_in_flight_stored([report_of(row, 6)])
    after.on_in_flight_stored([report_of(row, 16, 6)])
    other.on_stored([replace(row, reported_in_flight_s=16.0)], [])
    assert [counts(each, "ttft")[1] for each in (before, after, other)] == [1, 0, 0]
    assert [counts(each, "e2e")[1] for each in (before, after, other)] == [0, 1, 0]


def test_not_yet_bad_counts_at_end(made: Callable[..., Any], request_row: Row, clock: Any) -> None:
    exporter = made()
    row = request_row(received_unix_ns=clock() - 30 * S, e2e_s=11.0, ttft_s=0.2)
    exporter.on_in_flight_stored([replace(report_of(row, 6), ttft_s=0.2)])
    assert (counts(exporter, "ttft"), counts(exporter, "e2e")) == ((0, 0), (0, 0))
    exporter.on_stored([replace(row, reported_in_flight_s=6.0)], [])
    exporter.on_stored([request_row(received_unix_ns=clock() - S, e2e_s=1.0, ttft_s=0.9)], [])
    assert (counts(exporter, "ttft"), counts(exporter, "e2e")) == ((1, 2), (2, 2))


def test_a_row_before_its_report_is_counted(made: Callable[..., Any], row: RequestTimeline) -> None:
    """Rows and reports are separate messages, which may arrive in any order."""
    exporter = made()
    exporter.on_stored([replace(row, reported_in_flight_s=6.0)], [])
    exporter.on_in_flight_stored([report_of(row, 6)])
    assert counts(exporter, "ttft") == (0, 1)


def test_a_counter_does_not_decrease(made: Callable[..., Any], row: RequestTimeline) -> None:
    exporter = made()
    exporter.on_in_flight_stored([report_of(row, 6)])
    refused = replace(row, outcome=Outcome.REJECTED, http_status=400, reported_in_flight_s=6.0)
    exporter.on_stored([refused], [])
    assert counts(exporter, "ttft") == (0, 1)


def test_a_report_of_long_ago_is_late(made: Callable[..., Any], row: RequestTimeline) -> None:
    """Prometheus cannot store values for past times."""
    exporter = made()
    old = replace(row, received_unix_ns=row.received_unix_ns - 400 * S)
    exporter.on_in_flight_stored([report_of(old, 6)])
    late = {"slo": "ttft", "reason": "late"}
    value = exporter.registry.get_sample_value
    assert counts(exporter, "ttft") == (0, 0)
    assert value("tailspan_slo_excluded_events_total", late) == 1


def test_simulated_reports_are_marked(made: Callable[..., Any], row: RequestTimeline) -> None:
    exporter = made()
    exporter.on_in_flight_stored([report_of(row, 6)])
    assert exporter.registry.get_sample_value("tailspan_simulated_data") == 0
    exporter.on_in_flight_stored([report_of(replace(row, source=Source.SIMULATOR), 7)])
    assert exporter.registry.get_sample_value("tailspan_simulated_data") == 1


@pytest.mark.parametrize(
    ("by", "group", "separate", "counted"),
    [
        ("tenant", "acme", ["acme"], "acme"),
        ("tenant", "acme", ["globex"], "other"),
        ("tenant", None, [""], ""),
        ("streamed", True, ["true"], "true"),
        ("source", Source.SIMULATOR, ["simulator"], "simulator"),
    ],
)
def test_a_hung_request_counts_once_in_its_group(
    clock: Any, row: RequestTimeline, by: str, group: Any, separate: list[str], counted: str
) -> None:
    exporter = grouped(clock, by, separate)
    about = {by: group}
    row = replace(row, **about)
    exporter.on_in_flight_stored([replace(report_of(row, 6), **about)])
    exporter.on_in_flight_stored([replace(report_of(row, 16, 6), **about)])
    assert events(exporter, by) == {each: int(each == counted) for each in {"other", *separate}}
    exporter.on_stored([replace(row, reported_in_flight_s=16.0)], [])
    assert events(exporter, by) == {each: int(each == counted) for each in {"other", *separate}}


def test_a_request_keeps_the_group_it_was_counted_in(clock: Any, row: RequestTimeline) -> None:
    separate: list[str] = []
    exporter, row = grouped(clock, "tenant", separate), replace(row, tenant="acme")
    exporter.on_in_flight_stored([replace(report_of(row, 6), tenant="acme")])
    separate.append("acme")
    exporter.on_stored([replace(row, reported_in_flight_s=6.0)], [])
    assert events(exporter, "tenant") == {"other": 1, "acme": 0}


def test_groups_by_engine_count_a_request_when_it_ends(clock: Any, row: RequestTimeline) -> None:
    """The engine of a request is unknown until the request ends."""
    exporter, row = grouped(clock, "engine", ["0"]), replace(row, engine=0)
    exporter.on_in_flight_stored([report_of(row, 6)])
    assert events(exporter, "engine") == {"other": 0, "0": 0}
    exporter.on_stored([replace(row, reported_in_flight_s=6.0)], [])
    assert events(exporter, "engine") == {"other": 0, "0": 1}


def grouped(clock: Any, by: str, separate: list[str]) -> PrometheusExporter:
    """Return an exporter with an objective on TTFT, grouped by a field."""
    each = Goodput(None, parse("ttft_s <= 0.5", GOOD), (by,))
    return PrometheusExporter(
        clock_unix_ns=clock,
        objectives={"each": each},
        separate=lambda goodput: tuple((value,) for value in separate),
    )


def events(exporter: PrometheusExporter, by: str) -> dict[str, int]:
    name = "tailspan_slo_events_total"
    return {
        sample.labels[by]: int(sample.value)
        for family in exporter.registry.collect()
        for sample in family.samples
        if sample.name == name
    }
