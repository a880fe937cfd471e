import json
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from collector.normalise.engine_points import normalise_points
from collector.normalise.log_events import normalise_events
from collector.normalise.spans import normalise_spans
from simulator import live
from simulator.dataset import Dataset, run
from simulator.faults import SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from store.database import open_database
from store.queries import (
    GPU_COLUMNS,
    REQUEST_COLUMNS,
    SAMPLE_COLUMNS,
    gpu_table,
    request_table,
    sample_table,
)
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline
from telemetry.window import Window
from tests.simulator.conftest import TinyCollector

START_UNIX_NS = 1_790_000_000 * 10**9
CAUSES = ("config_change", "lora_swap", "spec_decode_rejection", "kv_transfer", "slow_rank")
EVERYTHING = FleetConfig(
    workload=Workload(rate_per_s=10.0),
    faults=tuple(SimulatedFault(cause=cause, start_s=12.0, end_s=35.0) for cause in CAUSES),
    duration_s=60.0,
    started_unix_ns=START_UNIX_NS,
)
"""A fleet with every kind of telemetry, a restart and a change of the engine's arguments."""


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return run(EVERYTHING)


def _without_ids(row: RequestTimeline) -> dict[str, object]:
    return {name: value for name, value in asdict(row).items() if name != "span_id"}


def test_a_dataset_equals_the_collected_rows(dataset: Dataset, collector: TinyCollector) -> None:
    plan = live.SimulationPlan(
        endpoint=collector.url,
        fleet=EVERYTHING,
        backfill_s=60.0,
        duration_s=0.0,
    )

    def clock_ns() -> int:
        return START_UNIX_NS + 60 * 10**9

    sent = live.run(plan, threading.Event(), lambda _: None, clock_ns=clock_ns, wait=lambda _: None)
    assert sent.dropped_requests == sent.dropped_samples == 0
    now = START_UNIX_NS + 10**12
    spans = [normalise_spans(each.SerializeToString(), now) for each in collector.traces]
    points = [normalise_points(each.SerializeToString(), now) for each in collector.metrics]
    events = [normalise_events(each.SerializeToString(), now) for each in collector.events]
    assert [each.refused for each in (*spans, *points, *events) if each.refused] == []

    received = [_without_ids(row) for batch in spans for row in batch.requests]
    expected = [_without_ids(row) for row in dataset.requests]
    assert sorted(received, key=str) == sorted(expected, key=str)

    samples = [sample for batch in points for sample in batch.samples]
    process = samples[0].process

    def order(sample: EngineSample) -> tuple[str, int]:
        return sample.replica, sample.at_unix_ns

    reported = [replace(sample, process=process) for sample in dataset.samples]
    assert sorted(samples, key=order) == sorted(reported, key=order)
    gpus = {(gpu.gpu, gpu.at_unix_ns): gpu for batch in points for gpu in batch.gpus}
    assert gpus == {(gpu.gpu, gpu.at_unix_ns): gpu for gpu in dataset.gpus}
    starts = {start for batch in events for start in batch.starts}
    assert starts == {replace(start, process=process) for start in dataset.starts}


def test_a_datasets_tables_equal_the_stores(dataset: Dataset, tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/tailspan.db")
    with Writer(engine) as writer:
        writer.submit(dataset.requests, dataset.samples, dataset.starts, dataset.gpus).result(30)
    ever = Window(0, 2**63 - 1)
    pairs = (
        (dataset.request_table(), request_table(engine, ever), REQUEST_COLUMNS, "span_id"),
        (dataset.sample_table(), sample_table(engine, ever), SAMPLE_COLUMNS, "replica"),
        (dataset.gpu_table(), gpu_table(engine, ever), GPU_COLUMNS, "gpu"),
    )
    engine.dispose()
    for made, kept, columns, key in pairs:
        assert tuple(made.column_names) == tuple(columns)
        assert made.schema == kept.schema
        instant = "received_unix_ns" if key == "span_id" else "at_unix_ns"
        order = [(instant, "ascending"), (key, "ascending")]
        made_rows, kept_rows = (each.sort_by(order).to_pylist() for each in (made, kept))
        assert made_rows == kept_rows


def test_the_same_seed_makes_the_same_case() -> None:
    short = replace(EVERYTHING, duration_s=20.0)
    once = run(short)
    assert run(short) == once
    assert run(replace(short, seed=2)).requests != once.requests


def test_the_truth_contains_the_active_causes(dataset: Dataset) -> None:
    assert [truth.cause for truth in dataset.truth] == list(CAUSES)
    assert dataset.truth[0].where == {"argument": "model.enforce_eager"}
    open_ended = SimulatedFault(cause="slow_rank", start_s=5.0, severity=0.5, replica=1)
    [truth] = run(replace(EVERYTHING, faults=(open_ended,), duration_s=10.0)).truth
    assert json.loads(truth.line()) == {
        "cause": "slow_rank",
        "severity": 0.5,
        "start_unix_s": 1_790_000_005.0,
        "end_unix_s": None,
        "where": {"replica": "sim-1"},
        "affects": "tpot_s",
    }


def test_a_fleet_without_an_end_makes_no_dataset() -> None:
    with pytest.raises(ValueError, match="duration_s: None; allowed: more than 0"):
        run(FleetConfig())
