import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from alerts.expression import parse
from alerts.fields import GOOD
from alerts.objectives import Goodput
from collector.counters import Counters
from exporters.definitions.engine_series import ENGINE_GAUGES, ROOFLINES
from exporters.definitions.gpu_series import GPU_GAUGES
from exporters.definitions.series import ALL, COSTS, METRIC_SERIES, SCRAPE_BYTES, SCRAPE_SECONDS
from exporters.format.negotiation import Format
from exporters.format.text import write
from exporters.prometheus import PrometheusExporter
from exporters.totals.engines import EngineKey
from exporters.totals.label_limits import ExporterLabels
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import QUEUE_PARTS, Outcome, PricedBy, RequestTimeline, Source
from telemetry.starts import EngineStart
from tests.probe.results import EXAMPLE

Row = Callable[..., RequestTimeline]
Sample = Callable[..., EngineSample]
PAIR = {"model": "llama", "replica": "r1"}
ENGINE = {**PAIR, "engine": "0"}


def _value(exporter: PrometheusExporter, name: str, **labels: str) -> float | None:
    return exporter.registry.get_sample_value(name, labels)


def test_a_request_counts_under_its_labels(exporter: PrometheusExporter, request_row: Row) -> None:
    exporter.on_stored([request_row(ttft_s=0.51)], [])
    assert _value(exporter, "tailspan_ttft_seconds_bucket", **PAIR, le="0.5") == 0
    assert _value(exporter, "tailspan_ttft_seconds_bucket", **PAIR, le="0.75") == 1
    assert _value(exporter, "tailspan_ttft_seconds_bucket", **PAIR, le="+Inf") == 1
    assert _value(exporter, "tailspan_ttft_seconds_count", **PAIR) == 1
    assert _value(exporter, "tailspan_ttft_seconds_sum", **PAIR) == 0.51
    assert _value(exporter, "tailspan_requests_total", **PAIR, outcome="stop") == 1
    assert _value(exporter, "tailspan_requests_total", **PAIR, outcome="error") == 0
    assert _value(exporter, "tailspan_output_tokens_total", **PAIR) == 20


@pytest.mark.parametrize("limit", ["0", "1e308"])
def test_requests_count_whatever_number_an_objective_contains(
    clock: Any, request_row: Row, limit: str
) -> None:
    """A histogram cannot have a bound of 0 or of 1e308."""
    goodput = Goodput(None, parse(f"ttft_s <= 2 and not queue_s > {limit}", GOOD))
    exporter = PrometheusExporter(clock_unix_ns=clock, objectives={"chat": goodput})
    exporter.on_stored([request_row(queue_s=0.0)], [])
    assert _value(exporter, "tailspan_slo_events_total", slo="chat") == 1
    assert _value(exporter, "tailspan_slo_good_events_total", slo="chat") == 1
    assert _value(exporter, "tailspan_queue_seconds_count", **PAIR) == 1
    assert "tailspan_queue_seconds" in write(exporter.families(), Format.PROTOBUF).decode("latin-1")


def test_an_unseen_value_has_no_series(exporter: PrometheusExporter, request_row: Row) -> None:
    text = generate_latest(exporter.registry).decode()
    assert "tailspan_ttft_seconds" not in text
    assert "tailspan_engine_waiting_requests" not in text
    exporter.on_stored([request_row(ttft_s=None)], [])
    assert _value(exporter, "tailspan_ttft_seconds_count", **PAIR) is None


def test_outcomes_start_at_zero(exporter: PrometheusExporter, sample_row: Sample) -> None:
    exporter.on_stored([], [sample_row()])
    for outcome in Outcome:
        assert _value(exporter, "tailspan_requests_total", **PAIR, outcome=outcome) == 0


def test_a_repeated_batch_is_not_counted_twice(
    exporter: PrometheusExporter, request_row: Row, sample_row: Sample
) -> None:
    batch = [request_row(), request_row()], [sample_row()]
    exporter.on_stored(*batch)
    once = generate_latest(exporter.registry).decode()
    exporter.on_stored(*batch)
    again = generate_latest(exporter.registry).decode()
    assert _value(exporter, "tailspan_exporter_repeated_requests_total") == 2
    assert set(once.splitlines()) ^ set(again.splitlines()) == {
        "tailspan_exporter_repeated_requests_total 0.0",
        "tailspan_exporter_repeated_requests_total 2.0",
    }


def test_a_request_that_is_stored_a_minute_after_its_end_is_late(
    exporter: PrometheusExporter, request_row: Row, clock: Any
) -> None:
    """Requests of `request_row` end 1.5 s after the clock's start."""
    clock.advance(61)
    exporter.on_stored([request_row()], [])
    assert _value(exporter, "tailspan_late_requests_total") == 0
    clock.advance(1)
    exporter.on_stored([request_row(), request_row()], [])
    assert _value(exporter, "tailspan_late_requests_total") == 2


def test_requests_after_the_clock_was_set_back_are_not_late(
    exporter: PrometheusExporter, request_row: Row, clock: Any
) -> None:
    clock.advance(3600)
    exporter.on_stored([request_row(received_unix_ns=clock())], [])
    clock.advance(-1800)
    for _ in range(3):
        exporter.on_stored([request_row(received_unix_ns=clock())], [])
        clock.advance(2)
        assert _value(exporter, "tailspan_late_requests_total") == 0


def test_gauges_of_a_silent_engine_end(
    exporter: PrometheusExporter, sample_row: Sample, clock: Any
) -> None:
    exporter.on_stored([], [sample_row()])
    assert _value(exporter, "tailspan_engine_waiting_requests", **ENGINE) == 3
    assert _value(exporter, "tailspan_engine_kv_cache_usage_ratio", **ENGINE) == 0.5
    clock.advance(61)
    assert _value(exporter, "tailspan_engine_waiting_requests", **ENGINE) is None
    assert _value(exporter, "tailspan_engine_steps_total", **ENGINE) == 100
    last = _value(exporter, "tailspan_engine_last_sample_timestamp_seconds", **ENGINE)
    assert last == 1_790_000_000


def test_simulated_data_is_marked(exporter: PrometheusExporter, request_row: Row) -> None:
    exporter.on_stored([request_row()], [])
    assert _value(exporter, "tailspan_simulated_data") == 0
    exporter.on_stored([request_row(source=Source.SIMULATOR)], [])
    assert _value(exporter, "tailspan_simulated_data") == 1


def test_hostile_labels_are_bounded_and_escaped(clock: Any, request_row: Row) -> None:
    exporter = PrometheusExporter(clock_unix_ns=clock, labels=ExporterLabels(limit=3))
    exporter.on_stored([request_row(model='evil"\n} 1\n')], [])
    exporter.on_stored([request_row(model=f"m{n}") for n in range(1_000)], [])
    families = list(text_string_to_metric_families(generate_latest(exporter.registry).decode()))
    models = {
        sample.labels["model"]
        for family in families
        for sample in family.samples
        if "model" in sample.labels
    }
    assert models == {'evil"\n} 1\n', "m0", "m1", "other"}
    other = {"model": "other", "replica": "r1", "outcome": "stop"}
    assert _value(exporter, "tailspan_requests_total", **other) == 998
    assert _value(exporter, "tailspan_exporter_label_overflows_total", label="model") == 998
    assert _value(exporter, "tailspan_exporter_label_values", label="model") == 3
    assert _value(exporter, "tailspan_exporter_label_values_limit", label="model") == 3


def test_each_tenant_has_separate_counts(exporter: PrometheusExporter, request_row: Row) -> None:
    exporter.on_stored(
        [request_row(tenant="a"), request_row(tenant="a", replica="r2"), request_row()], []
    )
    stop = {"model": "llama", "outcome": "stop"}
    assert _value(exporter, "tailspan_tenant_requests_total", **stop, tenant="a") == 2
    assert _value(exporter, "tailspan_tenant_requests_total", **stop, tenant="") == 1
    tokens = {"model": "llama", "tenant": "a"}
    assert _value(exporter, "tailspan_tenant_output_tokens_total", **tokens) == 40


def test_the_counters_of_a_new_tenant_begin_at_zero(clock: Any, request_row: Row) -> None:
    """Prometheus does not count the first value of a series as an increase."""
    exporter = PrometheusExporter(clock_unix_ns=clock, usd_per_s=lambda replica, engine: 0.001)
    priced = {"cost_usd": 0.5, "billed_s": 1.0, "priced_by": PricedBy.LEDGER}
    names = ("requests", "output_tokens", "cost_usd", "priced_requests")

    def scrape(tenant: str) -> list[float]:
        exporter.on_stored([request_row(tenant=tenant, **priced)], [])
        values = {
            (each.name, each.labels.get("outcome", "stop")): each.value
            for family in exporter.registry.collect()
            for each in family.samples
            if each.labels.get("tenant") == tenant
        }
        return [values[f"tailspan_tenant_{name}_total", "stop"] for name in names]

    assert scrape("a") == [1, 20, 0.5, 1]  # the first scrape after a start
    assert scrape("b") == [0, 0, 0, 0]
    assert scrape("b") == [2, 40, 1.0, 2]
    assert scrape("a") == [2, 40, 1.0, 2]


def test_an_engine_has_an_info_series(exporter: PrometheusExporter, sample_row: Sample) -> None:
    exporter.on_stored([], [sample_row(region="eu", config="c0ffee", source=Source.SCRAPE)])
    values = {**ENGINE, "region": "eu", "config": "c0ffee", "source": "scrape", "version": ""}
    assert _value(exporter, "tailspan_engine_info", **values) == 1


def test_the_info_series_has_the_version_of_the_latest_start(sample_row: Sample) -> None:
    sample = sample_row()
    start = EngineStart(
        replica=sample.replica,
        engine=sample.engine,
        process=1,
        at_unix_ns=1,
        config="c0ffee",
        arguments="{}",
        version="0.33.0",
    )
    asked: list[set[str]] = []

    def starts(replicas: Collection[str]) -> dict[EngineKey, EngineStart]:
        asked.append(set(replicas))
        return {(start.replica, start.engine): start, ("invented", 0): start}

    exporter = PrometheusExporter(starts=starts, clock_unix_ns=lambda: sample.at_unix_ns)
    exporter.on_stored([], [sample])
    info = next(each for each in exporter.collect() if each.name == "tailspan_engine_info")
    assert [each.labels["version"] for each in info.samples] == ["0.33.0"]
    assert set(map(frozenset, asked)) == {frozenset({sample.replica})}


def test_a_removed_replica_has_no_series(clock: Any, request_row: Row, sample_row: Sample) -> None:
    exporter = PrometheusExporter(
        clock_unix_ns=clock, labels=ExporterLabels(limit=1, combined_limit=1)
    )
    exporter.on_stored([request_row()], [sample_row()])
    clock.advance(7 * 3600)
    exporter.on_stored([request_row(replica="r2")], [sample_row(replica="r2")])
    assert _value(exporter, "tailspan_requests_total", **PAIR, outcome="stop") is None
    assert _value(exporter, "tailspan_engine_steps_total", **ENGINE) is None
    labels = {**PAIR, "replica": "r2"}
    assert _value(exporter, "tailspan_requests_total", **labels, outcome="stop") == 1
    assert _value(exporter, "tailspan_engine_steps_total", **labels, engine="0") == 100


def test_the_collector_exports_its_own_metrics(clock: Any) -> None:
    counters = Counters()
    exporter = PrometheusExporter(counters.report, clock_unix_ns=clock)
    items = {"signal": "traces", "result": "refused", "reason": "missing_id"}
    assert _value(exporter, "tailspan_collector_items_total", **items) == 0
    assert _value(exporter, "tailspan_collector_last_commit_timestamp_seconds") is None
    counters.committed(1_790_000_000 * 10**9)
    committed = _value(exporter, "tailspan_collector_last_commit_timestamp_seconds")
    assert committed == 1_790_000_000


def test_only_known_series_are_exported(clock: Any, request_row: Row, sample_row: Sample) -> None:
    counters = Counters()
    counters.committed(1)
    exporter = PrometheusExporter(
        counters.report,
        clock_unix_ns=clock,
        objectives={"chat": Goodput(None, parse("ttft_s <= 0.5", GOOD))},
        targets={"chat": 0.99},
        notifications=lambda: {("team", "dead"): 1},
        usd_per_s=lambda replica, engine: 0.001,
        labels=ExporterLabels(combined_limit=1),
    )
    given = [name for name in EngineSample.__dataclass_fields__ if name.endswith("_total")]
    whole = dict.fromkeys([*given, *ENGINE_GAUGES], 1)
    parts: dict[str, Any] = dict.fromkeys((*QUEUE_PARTS, *COSTS), 0.04)
    parts["priced_by"] = PricedBy.LEDGER
    exporter.on_stored([request_row(**parts) for _ in range(400)], [sample_row(**whole)])
    exporter.on_stored([request_row(model="second"), request_row(tenant="a")], [])
    gpu = dict.fromkeys(GPU_GAUGES, 1)
    exporter.on_gpus_stored(
        [
            GpuSample(
                replica="r1",
                gpu="GPU-1",
                at_unix_ns=clock(),
                energy_j_total=1.0,
                throttle_reasons="hw_slowdown",
                **gpu,  # type: ignore[arg-type]
            )
        ]
    )
    exporter.on_probes_stored([replace(EXAMPLE, at_unix_ns=clock())])
    values = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in exporter.registry.collect()
    }
    of_the_scrape = {METRIC_SERIES.name, SCRAPE_SECONDS.name, SCRAPE_BYTES.name}
    of_others = {each.name for each in ROOFLINES.values()}
    assert values == {each.name for each in ALL} - of_the_scrape - of_others


def test_scrapes_and_counting_run_at_once(exporter: PrometheusExporter, request_row: Row) -> None:
    rows = [request_row() for _ in range(500)]
    writer = threading.Thread(
        target=lambda: [exporter.on_stored([row], []) for row in rows]  # type: ignore[func-returns-value]
    )
    writer.start()
    while writer.is_alive():
        values = {
            sample.value
            for family in exporter.collect()
            for sample in family.samples
            if sample.name in ("tailspan_ttft_seconds_count", "tailspan_e2e_seconds_count")
        }
        assert len(values) <= 1
    writer.join()
    assert _value(exporter, "tailspan_ttft_seconds_count", **PAIR) == 500


@pytest.mark.parametrize("first", [Source.INSTRUMENTATION, Source.NATIVE])
def test_a_request_of_two_sources_counts_once(
    exporter: PrometheusExporter, request_row: Row, first: Source
) -> None:
    """One source sends two spans with one request id for two choices, which count as two
    requests."""
    both = (Source.INSTRUMENTATION, Source.NATIVE)
    for number, source in enumerate(both if first is both[0] else reversed(both)):
        for choice in range(2):
            span_id = f"{number}{choice}" * 8
            exporter.on_stored([request_row(request_id="a", span_id=span_id, source=source)], [])
    assert _value(exporter, "tailspan_requests_total", **PAIR, outcome="stop") == 2


def test_a_clients_report_is_not_counted(exporter: PrometheusExporter, request_row: Row) -> None:
    exporter.on_stored([request_row(source=Source.CLIENT)], [])
    assert _value(exporter, "tailspan_requests_total", **PAIR, outcome="stop") is None
