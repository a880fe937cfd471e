import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailspan_vllm import names
from tailspan_vllm.start_up.failed_start import ENDED, failed_starts
from tailspan_vllm.start_up.process import FirstProcess
from tailspan_vllm.start_up.progress import StartProgress, StartStage

FIRST = FirstProcess(began=100.0, plugin=106.0, began_unix_ns=0)
CORE = [
    StartProgress(0, 7, StartStage.PROCESS, 108.0),
    StartProgress(0, 7, StartStage.EXECUTOR, 115.0),
]


def worker(process: int, *at: float) -> list[StartProgress]:
    stages = (StartStage.WORKER, StartStage.DEVICE, StartStage.WEIGHTS, StartStage.PROFILED)
    return [StartProgress(0, process, stage, each) for stage, each in zip(stages, at, strict=False)]


def test_an_exception_ends_the_part_of_the_slowest_worker() -> None:
    reports = [*CORE, *worker(8, 117.0, 119.0, 125.0), *worker(9, 118.0, 120.0)]
    reports += [StartProgress(0, 9, StartStage.FAILED, 130.0, "OutOfMemoryError")]
    reports += [StartProgress(0, 7, StartStage.FAILED, 131.0, "RuntimeError")]
    (failed,) = failed_starts(FIRST, reports, 140.0)
    assert failed.parts == {
        names.START_IMPORTS: 6.0,
        names.START_CONFIG: 2.0,
        names.START_ENGINE_PROCESS: 7.0,
        names.START_WORKERS: 3.0,
        names.START_DEVICE: 2.0,
        names.START_WEIGHTS: 10.0,
    }
    assert (failed.reached, failed.reason) == (names.START_WEIGHTS, "OutOfMemoryError")


def test_a_killed_engine_ends_with_the_first_process() -> None:
    (failed,) = failed_starts(FIRST, [*CORE, *worker(8, 117.0, 119.0, 125.0, 127.0)], 140.0)
    assert (failed.reached, failed.reason) == (names.START_WARM_UP, ENDED)
    assert failed.parts[names.START_WARM_UP] == 13.0
    assert sum(failed.parts.values()) == 40.0


def test_before_a_worker_reports_the_start_failed_in_the_workers() -> None:
    (failed,) = failed_starts(FIRST, CORE, 140.0)
    assert failed.reached == names.START_WORKERS


def test_an_engine_in_the_first_process_has_no_own_process() -> None:
    reports = [CORE[0]._replace(at=100.0), CORE[1]]
    (failed,) = failed_starts(FIRST, reports, 140.0)
    assert failed.parts[names.START_ENGINE_PROCESS] == 0.0
    assert sum(failed.parts.values()) == 40.0


def test_an_engine_that_was_ready_did_not_fail() -> None:
    ready = [*CORE, StartProgress(0, 7, StartStage.READY, 130.0)]
    other = [each._replace(engine=1) for each in CORE]
    (failed,) = failed_starts(FIRST, [*ready, *other], 140.0)
    assert failed.engine == 1
    assert failed_starts(FIRST, ready, 140.0) == []


def test_a_server_that_began_no_engine_reports_nothing() -> None:
    assert failed_starts(FIRST, [], 140.0) == []
    assert failed_starts(FIRST, [CORE[0]], 140.0) == []


@pytest.mark.parametrize("at", [math.nan, 90.0, 1e9])
def test_instants_that_are_not_in_order_have_no_parts(at: float) -> None:
    assert failed_starts(FIRST, [CORE[0], CORE[1]._replace(at=at)], 140.0) == []


@given(
    gaps=st.lists(st.floats(0.0, 1e4), min_size=4, max_size=9),
    reached=st.integers(0, 4),
)
def test_the_parts_sum_to_the_time_until_the_failure(gaps: list[float], reached: int) -> None:
    at = [0.0]
    for gap in gaps:
        at.append(at[-1] + gap)
    first = FirstProcess(at[0], at[1], 0)
    core = [
        StartProgress(0, 7, StartStage.PROCESS, at[2]),
        StartProgress(0, 7, StartStage.EXECUTOR, at[3]),
    ]
    stages = worker(8, *at[4:-1][:reached])
    (failed,) = failed_starts(first, [*core, *stages], at[-1])
    assert all(each >= 0 for each in failed.parts.values())
    assert sum(failed.parts.values()) == pytest.approx(at[-1])
    assert list(failed.parts)[-1] == failed.reached
