import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailspan_vllm import names
from tailspan_vllm.start_up.instants import EngineInstants, WorkerStart
from tailspan_vllm.start_up.parts import parts_of
from tailspan_vllm.start_up.process import FirstProcess

FIRST = FirstProcess(began=100.0, plugin=106.0, began_unix_ns=0)
WORKER = WorkerStart(device_s=2.0, weights_s=12.0, compile_s=9.0, warm_up_s=5.0)
ENGINE = EngineInstants(process=108.0, executor=115.0, loaded=130.0, ready=147.0, worker=WORKER)

_seconds = st.floats(0.0, 1e4)


def test_each_gap_is_one_part() -> None:
    assert parts_of(FIRST, ENGINE, 148.5) == {
        names.START_IMPORTS: 6.0,
        names.START_CONFIG: 2.0,
        names.START_ENGINE_PROCESS: 7.0,
        names.START_WORKERS: 1.0,
        names.START_DEVICE: 2.0,
        names.START_WEIGHTS: 12.0,
        names.START_COMPILE: 9.0,
        names.START_WARM_UP: 5.0,
        names.START_KV_CACHE: 3.0,
        names.START_SERVER: 1.5,
    }


@given(
    gaps=st.lists(_seconds, min_size=5, max_size=5),
    served=st.none() | _seconds,
    worker=st.none() | st.builds(WorkerStart, *[_seconds] * 4),
)
def test_parts_sum_to_the_whole(
    gaps: list[float], served: float | None, worker: WorkerStart | None
) -> None:
    """The parts sum to the whole even if a worker reports more time than its stage took."""
    at = [0.0]
    for gap in gaps:
        at.append(at[-1] + gap)
    first = FirstProcess(at[0], at[1], 0)
    engine = EngineInstants(at[2], at[3], at[4], at[5], worker)
    ready = None if served is None else at[5] + served
    parts = parts_of(first, engine, ready)
    assert parts is not None
    assert all(part >= 0 for part in parts.values())
    assert sum(parts.values()) == pytest.approx(at[5] if ready is None else ready)


def test_without_a_workers_report_its_stages_are_one_part() -> None:
    parts = parts_of(FIRST, ENGINE._replace(worker=None), None)
    assert parts is not None
    assert parts[names.START_UNSPLIT] == 32.0
    assert names.START_WEIGHTS not in parts
    assert names.START_SERVER not in parts


def test_an_engine_in_the_first_process_has_no_own_process() -> None:
    parts = parts_of(FIRST, ENGINE._replace(process=100.0), None)
    assert parts is not None
    assert parts[names.START_ENGINE_PROCESS] == 0.0
    assert parts[names.START_CONFIG] == 9.0


def test_instants_that_are_not_in_order_have_no_parts() -> None:
    assert parts_of(FIRST, ENGINE._replace(loaded=114.0), None) is None


def test_an_api_server_that_was_ready_before_the_engine_adds_nothing() -> None:
    parts = parts_of(FIRST, ENGINE, 120.0)
    assert parts is not None
    assert parts[names.START_SERVER] == 0.0
