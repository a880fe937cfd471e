from typing import Any

import pytest

from diagnosis.inputs.arrow import samples_of
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric
from tests.diagnosis.making import (
    REPLICAS,
    asked,
    evidence,
    quiet,
    shares,
    slower_where,
    told_each_second,
)

CPU = {"host_cpu_busy_s_total": 2.0, "process_cpu_s_total": 0.5, "core_cpu_s_total": 1.0}
STOLEN = "host_cpu_steal_s_total"


def test_another_process_on_the_gpu_slows_its_replica() -> None:
    """The clock is as ever, and the guest is counted."""
    usual = {"gpu": "0", "sm_clock_hz": 1.98e9, "foreign_processes": 0}
    gpus = told_each_second({"r1": {"foreign_processes": 2}}, usual)
    slower = slower_where(("r1",), 2.0)
    first = asked(slower, Metric.TPOT, Servers(gpus=samples_of(gpus))).causes[0]
    assert first.id == "noisy_neighbour"
    assert first.share > 0.9
    assert first.where == {"replica": "r1"}
    assert evidence(first, "other processes on the GPU") == (0, 2)
    assert evidence(first, "SM clock") == pytest.approx((1.98e9, 1.98e9))
    assert any("MIG" in lever.action for lever in first.levers)


def host(**now: float) -> Servers:
    """Hosts whose processors tell who uses them."""
    engines: dict[str, Any] = dict.fromkeys(REPLICAS, now)
    return Servers(samples_of(told_each_second(engines, {**CPU, STOLEN: 0.0})))


def test_processors_that_others_use_are_a_neighbours() -> None:
    """What API server and core use themselves is not counted; what is stolen is."""
    slower = slower_where(REPLICAS, 2.0)
    first = asked(slower, Metric.TPOT, host(host_cpu_busy_s_total=6.0)).causes[0]
    assert first.id == "noisy_neighbour"
    assert evidence(first, "CPUs used by other processes") == pytest.approx((0.5, 4.5))
    stolen = asked(slower, Metric.TPOT, host(host_cpu_steal_s_total=0.8)).causes[0]
    assert stolen.id == "noisy_neighbour"
    assert evidence(stolen, "CPUs stolen") == pytest.approx((0.0, 0.8))


def test_a_server_that_is_busy_itself_has_no_neighbour() -> None:
    """All that the host does more is its core's own."""
    own = host(host_cpu_busy_s_total=5.0, core_cpu_s_total=4.0)
    assert not asked(slower_where(REPLICAS, 2.0), Metric.TPOT, own).causes


def test_a_neighbour_that_slows_nobody_is_no_cause() -> None:
    """There are processors enough."""
    assert "noisy_neighbour" not in shares(
        asked(quiet(), Metric.TPOT, host(host_cpu_busy_s_total=6.0))
    )
