from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, func, select
from starlette.testclient import TestClient

from collector.drop_reasons import Refusal
from collector.normalise.values import EARLIEST_UNIX_NS
from collector.rows.engine_start_limits import ALL_BURST
from collector.server import Collector
from collector.testing import running
from cost.prices import PriceList
from cost.pricing import Pricing
from exporters.format.exposition import Exposition
from exporters.metrics_app import metrics_app
from exporters.prometheus import PrometheusExporter
from exporters.self_metrics.clocks import ClockMetrics
from exporters.totals.label_limits import COMBINED_LIMIT, LIMIT
from exporters.totals.latest_starts import LatestStarts
from exporters.totals.rooflines import MAX_ENGINES, RooflineMetrics
from store.database import open_database
from store.queries import request_table, sample_table
from store.replicas.engine_starts import UNSEEN_NS, delete_starts, in_force
from store.retention import delete_older
from store.schema import STARTS
from store.writer import Writer
from telemetry.corroborated_time import CorroboratedClock
from telemetry.engines import MAX_TRACKED
from telemetry.window import Window
from tests.hostile.otlp_messages import S, post, record, samples, send_spans, spans, start

NOW_NS: Final = 1_790_000_000 * S
DAY_NS: Final = 86_400 * S
EVER: Final = Window(0, 2**63 - 1)
EXTREMES: Final = (0, 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1)
NUMBERS: Final = (float("nan"), float("inf"), float("-inf"), -1.0, -1e308, 1e308, 5e-324, 2.0**63)


AT_ONCE = 5_000
"""Starts per message; each has three of the 16,384 parts that otlp_envelope.py allows."""
FEW_AT_ONCE = 300
"""Samples per message; each number of a sample is one part."""


@dataclass
class Tailspan:
    """A collector on a free port with a SQLite file and /metrics."""

    engine: Engine
    collector: Collector
    exporter: PrometheusExporter
    rooflines: RooflineMetrics
    starts: LatestStarts
    scraped: TestClient

    def series(self, name: str) -> dict[tuple[str, ...], float]:
        """Return a scraped metric's values, by the values of its labels."""
        text = self.scraped.get("/metrics").text
        lines = [line for line in text.splitlines() if line.startswith(name)]
        families = text_string_to_metric_families("\n".join([*lines, ""]))
        return {
            tuple(each.labels.values()): each.value
            for family in families
            for each in family.samples
            if each.name == name
        }

    def refused(self, signal: str, reason: str) -> int:
        return self.collector.counters.report().items[signal, "refused", reason]


@pytest.fixture
def tailspan(tmp_path: Path) -> Iterator[Tailspan]:
    engine = open_database(f"sqlite:///{tmp_path}/tailspan.db")
    clock = CorroboratedClock(lambda: NOW_NS, lambda: NOW_NS)
    starts = LatestStarts(lambda replicas: in_force(engine, replicas=replicas), clock)
    times = [NOW_NS - DAY_NS]  # the exporter started before the engines
    exporter = PrometheusExporter(clock_unix_ns=lambda: times[-1], starts=starts.of)
    times.append(NOW_NS)
    rooflines = RooflineMetrics(starts.of, clock)
    with Writer(engine) as writer:
        made = Collector(
            writer,
            [exporter, rooflines],
            gpu_listeners=[exporter],
            grpc_port=0,
            http_port=0,
            clock=clock,
            pricing=Pricing(PriceList()),
            keep_ns=7 * DAY_NS,
        )
        clocks = ClockMetrics(made.clocks.report, clock, lambda: made.clocks.overflows)
        app = metrics_app(Exposition([exporter, rooflines, clocks]), lambda: True)
        with running(made) as collector, TestClient(app) as scraped:
            yield Tailspan(engine, collector, exporter, rooflines, starts, scraped)
    engine.dispose()


def many(messages: list[Any]) -> Any:
    whole = type(messages[0])()
    for each in messages:
        whole.MergeFrom(each)
    return whole


def test_invented_engine_starts_are_limited_expire_and_hide_no_real_engine(
    tailspan: Tailspan,
) -> None:
    real = start(NOW_NS - 3 * UNSEEN_NS, "real")
    post(tailspan.collector, "/v1/logs", real.SerializeToString())
    post(tailspan.collector, "/v1/metrics", samples(NOW_NS, "real").SerializeToString())
    rejected = 0
    for first in range(0, 2 * AT_ONCE, AT_ONCE):
        flood = ExportLogsServiceRequest()
        for number in range(first, first + AT_ONCE):
            flood.resource_logs.add().CopyFrom(real.resource_logs[0])
            replica = flood.resource_logs[-1].resource.attributes[0].value
            replica.string_value = f"made-up-{number}"
        answer = post(tailspan.collector, "/v1/logs", flood.SerializeToString())
        reported = ExportLogsServiceResponse.FromString(answer).partial_success
        rejected += reported.rejected_log_records
    assert rejected == 2 * AT_ONCE - (ALL_BURST - 1)
    assert "too_many_starts (at most 256 starts of a replica" in reported.error_message
    assert tailspan.refused("logs", Refusal.TOO_MANY_STARTS) == rejected
    with tailspan.engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(STARTS)) == ALL_BURST
    assert [each.replica for each in in_force(tailspan.engine, replicas={"real"})] == ["real"]
    tailspan.series("tailspan_engine_info")
    assert {replica for replica, _ in tailspan.starts.of({"real"})} == {"real"}
    # Engines without samples for an hour are removed.
    delete_starts(tailspan.engine, 7 * DAY_NS, 400 * DAY_NS, NOW_NS)
    assert [each.replica for each in in_force(tailspan.engine)] == ["real"]


@pytest.mark.parametrize("named", [False, True])
def test_a_span_from_the_future_moves_no_other_span(tailspan: Tailspan, named: bool) -> None:
    good = [record(NOW_NS - number * S) for number in range(1, 11)]
    sent = spans(good, "a")
    bad = spans([record(NOW_NS)], "a" if named else "client")
    if not named:
        bad.resource_spans[0].resource.Clear()
    span = bad.resource_spans[0].scope_spans[0].spans[0]
    for ahead_ns, expected in ((166 * 3_600 * S, 1), (5 * 3_600 * S, 0)):
        span.span_id = ahead_ns.to_bytes(8, "big")
        span.end_time_unix_nano = NOW_NS + ahead_ns
        del span.attributes[:]
        span.attributes.extend(sent.resource_spans[0].scope_spans[0].spans[0].attributes)
        kept = [
            each for each in span.attributes if each.key.startswith(("tailspan.o", "tailspan.b"))
        ]
        del span.attributes[:]
        span.attributes.extend(kept)
        answer = post(tailspan.collector, "/v1/traces", many([bad, sent]).SerializeToString())
        reported = ExportTraceServiceResponse.FromString(answer).partial_success
        assert reported.rejected_spans == expected
    send_spans(tailspan.collector, [record(NOW_NS - 20 * S)], "a")
    table = request_table(tailspan.engine, EVER, columns=["received_unix_ns", "clock_ahead_s"])
    rows = table.to_pylist()
    moved = [row for row in rows if row["clock_ahead_s"] is not None]
    assert len(rows) == 12
    assert [row["clock_ahead_s"] for row in moved] == [5 * 3_600.0]
    still = sorted(row["received_unix_ns"] for row in rows if row not in moved)
    assert still == sorted(NOW_NS - (4 + number) * S for number in [*range(1, 11), 20])


def test_extreme_instants_are_refused_by_themselves(tailspan: Tailspan) -> None:
    sent = ExportTraceServiceRequest()
    for first in EXTREMES:
        for last in (*EXTREMES, NOW_NS):
            message = spans([record(NOW_NS)], "a")
            span = message.resource_spans[0].scope_spans[0].spans[0]
            span.start_time_unix_nano, span.end_time_unix_nano = first, last
            sent.MergeFrom(message)
    good = spans([record(NOW_NS - S)], "a")
    answer = post(tailspan.collector, "/v1/traces", many([sent, good]).SerializeToString())
    reported = ExportTraceServiceResponse.FromString(answer).partial_success
    assert reported.rejected_spans == len(EXTREMES) * (len(EXTREMES) + 1)
    rows = request_table(tailspan.engine, EVER).to_pylist()
    assert [row["received_unix_ns"] for row in rows] == [NOW_NS - 5 * S]

    measured = ExportMetricsServiceRequest()
    for first in EXTREMES[1:]:
        for at in EXTREMES:
            sampled = samples(NOW_NS, "a")
            for metric in sampled.resource_metrics[0].scope_metrics[0].metrics:
                points = (metric.sum if metric.HasField("sum") else metric.gauge).data_points
                points[0].time_unix_nano, points[0].start_time_unix_nano = at, first
            measured.MergeFrom(sampled)
    measured.MergeFrom(samples(NOW_NS - S, "a"))
    answer = post(tailspan.collector, "/v1/metrics", measured.SerializeToString())
    refused = ExportMetricsServiceResponse.FromString(answer).partial_success
    assert refused.rejected_data_points == 4 * len(EXTREMES) * (len(EXTREMES) - 1)
    at_unix_ns = sample_table(tailspan.engine, EVER)["at_unix_ns"].to_pylist()
    assert at_unix_ns == [NOW_NS - S]


def test_extreme_numbers_are_refused_and_no_result_is_infinite(tailspan: Tailspan) -> None:
    traced = ExportTraceServiceRequest()
    whole = spans([record(NOW_NS - S, itl_max_s=0.1, preemptions=0, billed_s=0.1)], "a")
    attributes = whole.resource_spans[0].scope_spans[0].spans[0].attributes
    for place, attribute in enumerate(attributes):
        kind = attribute.value.WhichOneof("value")
        for number in NUMBERS if kind == "double_value" else (-1, 2**63 - 1, -(2**63)):
            if kind not in ("double_value", "int_value"):
                continue
            message = spans([record(NOW_NS - S)], "a")
            span = message.resource_spans[0].scope_spans[0].spans[0]
            del span.attributes[:]
            span.attributes.extend(attributes)
            setattr(span.attributes[place].value, kind, number)
            traced.MergeFrom(message)
    answer = post(tailspan.collector, "/v1/traces", many([traced, whole]).SerializeToString())
    reported = ExportTraceServiceResponse.FromString(answer).partial_success
    # The smallest positive number is a valid duration.
    assert reported.rejected_spans > len(traced.resource_spans) * 0.8

    measured = ExportMetricsServiceRequest()
    for number in NUMBERS:
        for instant in range(1, 3):
            sampled = samples(NOW_NS - instant * S, "a")
            for metric in sampled.resource_metrics[0].scope_metrics[0].metrics:
                points = (metric.sum if metric.HasField("sum") else metric.gauge).data_points
                points[0].as_double = number
            measured.MergeFrom(sampled)
    measured.MergeFrom(samples(NOW_NS, "a"))
    post(tailspan.collector, "/v1/metrics", measured.SerializeToString())
    text = tailspan.scraped.get("/metrics").text
    for line in text.splitlines():
        if not line.startswith("#") and 'le="+Inf"' not in line:
            assert not line.lower().endswith(("inf", "nan")), line


def test_invented_names_are_limited_and_counted(tailspan: Tailspan) -> None:
    post(tailspan.collector, "/v1/metrics", samples(NOW_NS - S, "real").SerializeToString())
    one = samples(NOW_NS, "x")
    invented = MAX_TRACKED + FEW_AT_ONCE
    for first in range(0, invented, FEW_AT_ONCE):
        flood, engines_of_one = ExportMetricsServiceRequest(), ExportMetricsServiceRequest()
        for number in range(first, first + FEW_AT_ONCE):
            flood.MergeFrom(one)
            each = flood.resource_metrics[-1]
            each.resource.attributes[0].value.string_value = f"made-up-{number}"
            engines_of_one.MergeFrom(samples(NOW_NS, "real", engine=number))
        post(tailspan.collector, "/v1/metrics", flood.SerializeToString())
        post(tailspan.collector, "/v1/metrics", engines_of_one.SerializeToString())
    requests = [record(NOW_NS - S, model=f"m{each}", tenant=f"t{each}") for each in range(500)]
    send_spans(tailspan.collector, requests, "real")
    last_sample = tailspan.series("tailspan_engine_last_sample_timestamp_seconds")
    assert len(last_sample) <= COMBINED_LIMIT
    assert any("real" in labels for labels in last_sample)
    assert len(tailspan.rooflines._engines) <= MAX_ENGINES
    held = tailspan.series("tailspan_exporter_label_values")
    assert held["replica",] <= COMBINED_LIMIT
    assert held["model",] <= LIMIT
    overflows = tailspan.series("tailspan_exporter_label_overflows_total")
    assert overflows["replica",] >= FEW_AT_ONCE
    assert overflows["engine",] >= FEW_AT_ONCE
    assert overflows["model",] >= 500 - LIMIT
    assert tailspan.series("tailspan_clock_untracked_messages_total")[()] >= FEW_AT_ONCE
    left_out = tailspan.series("tailspan_roofline_left_out_samples_total")
    assert left_out["engine",] >= FEW_AT_ONCE


def test_samples_out_of_order_and_twice_and_counters_that_reset(tailspan: Tailspan) -> None:
    for at_s in (-5, -3, -4, -3, -5, -1, -2):
        sampled = samples(NOW_NS + at_s * S, "a", started_unix_ns=NOW_NS - 60 * S)
        post(tailspan.collector, "/v1/metrics", sampled.SerializeToString())
    kept = sample_table(tailspan.engine, EVER)["at_unix_ns"].to_pylist()
    assert sorted(kept) == [NOW_NS - at_s * S for at_s in (5, 4, 3, 2, 1)]
    steps = tailspan.series("tailspan_engine_steps_total")
    assert list(steps.values()) == [1000]
    for totals, expected in ((400, 1000), (2_000, 2_000)):
        sampled = samples(
            NOW_NS - 10_000 + totals,
            "a",
            started_unix_ns=NOW_NS - 60 * S,
            totals={"tailspan.engine.steps": totals},
        )
        post(tailspan.collector, "/v1/metrics", sampled.SerializeToString())
        assert max(tailspan.series("tailspan_engine_steps_total").values()) == expected


def test_rows_beyond_the_retention_are_rejected(tailspan: Tailspan) -> None:
    old = [record(NOW_NS - 8 * DAY_NS), record(EARLIEST_UNIX_NS + 5 * S), record(NOW_NS - S)]
    reported = send_spans(tailspan.collector, old, "a").partial_success
    assert reported.rejected_spans == 2
    assert delete_older(tailspan.engine, 7 * DAY_NS, NOW_NS, pause=lambda: None) == 0


def test_parts_longer_than_their_request_are_refused(tailspan: Tailspan) -> None:
    """If the collector accepted a TTFT of a day, it could be reported as any quantile of TTFT."""
    malformed = []
    for name, seconds in (("ttft", 86_400.0), ("itl_max", 4.5)):
        message = spans([record(NOW_NS - S, itl_max_s=0.1)], "a")
        for attribute in message.resource_spans[0].scope_spans[0].spans[0].attributes:
            if name in attribute.key or (name == "ttft" and "time_to_first" in attribute.key):
                attribute.value.double_value = seconds
        malformed.append(message)
    answer = post(tailspan.collector, "/v1/traces", many(malformed).SerializeToString())
    reported = ExportTraceServiceResponse.FromString(answer).partial_success
    assert reported.rejected_spans == 2
    assert tailspan.refused("traces", Refusal.PARTS_DO_NOT_SUM) == 2
