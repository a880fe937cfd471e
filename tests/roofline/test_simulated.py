from dataclasses import replace

import pytest

from roofline.arrow import engines_of, gpus_of
from roofline.peaks import device_named
from roofline.shape import Parallel
from roofline.shape_from_config import read_shape, shape_of
from roofline.verdict import RooflineVerdict
from roofline.windows import RooflineWindow, windows_of
from simulator import gpu
from simulator.dataset import Dataset, run
from simulator.fault import SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from tests.roofline import configs
from tests.roofline.test_weights import PUBLISHED


def a_case(rate_per_s: float, *faults: SimulatedFault) -> Dataset:
    return run(
        FleetConfig(
            replicas=1,
            workload=Workload(rate_per_s=rate_per_s),
            duration_s=300.0,
            faults=faults,
            seed=5,
        )
    )


def whole_windows(case: Dataset) -> list[RooflineWindow]:
    (start,) = case.starts
    assert start.shape is not None
    ((key, engine),) = engines_of(case.sample_table()).items()
    gpus = gpus_of(case.gpu_table(), key.replica)
    return windows_of(engine, read_shape(start.shape), device_named(start.device), gpus)[1:-1]


def test_its_constants_match_its_reported_shape() -> None:
    reported = gpu.machine(4)
    shape = shape_of(reported.shape)
    assert shape.parallel.gpus == reported.gpus == 4
    assert shape.kv_token_bytes == gpu.KV_TOKEN_BYTES
    assert replace(shape, parallel=Parallel()) == shape_of(configs.llama_3_8b())
    assert 2 * PUBLISHED[configs.llama_3_8b] == pytest.approx(gpu.WEIGHT_BYTES, rel=0.005)
    assert 2 * PUBLISHED[configs.llama_3_8b] == pytest.approx(gpu.TOKEN_FLOPS, rel=0.005)


def test_modelled_bandwidth_equals_the_gpu_samples() -> None:
    windows = whole_windows(a_case(5.0))
    assert len(windows) >= 3
    for window in windows:
        assert window.residual_ratio == pytest.approx(0.0, abs=0.1)
        assert window.mbu is not None
        assert 0.3 < window.mbu < 1.0
        assert window.verdict is RooflineVerdict.MEMORY_BOUND
        assert window.findings == ()


def test_traffic_that_no_step_explains_is_a_neighbour_on_the_gpu() -> None:
    neighbour = SimulatedFault(cause="noisy_neighbour", start_s=0.0, end_s=300.0, severity=1.0)
    windows = whole_windows(a_case(2.0, neighbour))
    assert windows
    for window in windows:
        assert window.residual_ratio is not None
        assert window.residual_ratio > 0.1
