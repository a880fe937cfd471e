import pytest

from diagnosis.inputs.arrow import samples_of
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric
from tests.diagnosis.making import (
    REPLICAS,
    asked,
    evidence,
    first_cause,
    fleet,
    quiet,
    sampled_each_second,
    shares,
    slower_where,
)

CPU = {"host_cpu_busy_s_total": 2.0, "process_cpu_s_total": 0.5, "core_cpu_s_total": 1.0}
STOLEN = "host_cpu_steal_s_total"


def test_another_process_on_the_gpu_slows_its_replica() -> None:
    usual = {"gpu": "0", "sm_clock_hz": 1.98e9, "foreign_processes": 0}
    gpus = sampled_each_second({"r1": {"foreign_processes": 2}}, usual)
    slower = slower_where(("r1",), 2.0)
    first = first_cause(
        asked(slower, Metric.TPOT, Servers(gpus=samples_of(gpus))), "noisy_neighbour", 0.9
    )
    assert first.where == {"replica": "r1"}
    assert evidence(first, "other processes on the GPU") == (0, 2)
    assert evidence(first, "SM clock") == pytest.approx((1.98e9, 1.98e9))
    assert any("MIG" in lever.action for lever in first.levers)


def host(**now: float) -> Servers:
    return fleet(now, {**CPU, STOLEN: 0.0})


def test_processors_that_others_use_are_a_neighbours() -> None:
    """CPU time of the API server and of the engine core is not foreign."""
    slower = slower_where(REPLICAS, 2.0)
    first = first_cause(
        asked(slower, Metric.TPOT, host(host_cpu_busy_s_total=6.0)), "noisy_neighbour"
    )
    assert evidence(first, "CPUs used by other processes") == pytest.approx((0.5, 4.5))
    stolen = first_cause(
        asked(slower, Metric.TPOT, host(host_cpu_steal_s_total=0.8)), "noisy_neighbour"
    )
    assert evidence(stolen, "CPUs stolen") == pytest.approx((0.0, 0.8))


def test_a_server_that_is_busy_itself_has_no_neighbour() -> None:
    own = host(host_cpu_busy_s_total=5.0, core_cpu_s_total=4.0)
    assert not asked(slower_where(REPLICAS, 2.0), Metric.TPOT, own).causes


def test_a_neighbour_without_an_effect_is_no_cause() -> None:
    assert "noisy_neighbour" not in shares(
        asked(quiet(), Metric.TPOT, host(host_cpu_busy_s_total=6.0))
    )
