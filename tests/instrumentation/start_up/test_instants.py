import math

import pytest
from tailspan_vllm.start_up.instants import WORKERS_LIMIT, EngineInstants, StartRecord, WorkerStart


def test_instants_are_known_once_all_were_seen() -> None:
    record = StartRecord(process=1.0, executor=2.0, loaded=3.0)
    assert record.instants() is None
    record.ready = 4.0
    assert record.instants() == EngineInstants(1.0, 2.0, 3.0, 4.0, None)


def test_the_slowest_worker_counts_at_each_stage() -> None:
    record = StartRecord(process=1.0, executor=2.0, loaded=3.0, ready=4.0)
    record.add(WorkerStart(0.1, 5.0, 0.0, 1.0))
    record.add(WorkerStart(0.3, 4.0, 2.0, 0.5))
    instants = record.instants()
    assert instants is not None
    assert instants.worker == WorkerStart(0.3, 5.0, 2.0, 1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_report_that_is_not_valid_is_left_out(value: float) -> None:
    record = StartRecord()
    record.add(WorkerStart(weights_s=value))
    assert record.workers == []


def test_the_number_of_reports_is_limited() -> None:
    record = StartRecord()
    for _ in range(WORKERS_LIMIT + 1):
        record.add(WorkerStart())
    assert len(record.workers) == WORKERS_LIMIT
