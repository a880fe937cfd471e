from typing import Any

import numpy as np
import pytest

from diagnosis.inputs.arrow import samples_of
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric
from tests.diagnosis.making import (
    REPLICAS,
    asked,
    at_replica,
    evidence,
    first_cause,
    later,
    quiet,
    sampled_each_second,
    shares,
    slower_where,
)

COOL = {"gpu": "0", "sm_clock_hz": 1.98e9, "throttle_reasons": "", "power_w": 650.0}
HOT = {"sm_clock_hz": 1.2e9, "throttle_reasons": "sw_thermal_slowdown", "power_w": 400.0}


def gpus(**now: dict[str, Any]) -> Servers:
    return Servers(gpus=samples_of(sampled_each_second(now, COOL)))


def test_a_lower_clock_that_slows_all_work_is_throttling() -> None:
    first = first_cause(
        asked(slower_where(("r0",), 2.0), Metric.TPOT, gpus(r0=HOT)), "gpu_throttling", 0.9
    )
    assert first.where == {"replica": "r0"}
    assert evidence(first, "slowdown for the same work") == pytest.approx((1.0, 2.0), rel=0.05)
    assert evidence(first, "SM clock") == pytest.approx((1.98e9, 1.2e9))
    assert evidence(first, "share of samples with a throttle") == (0, 1)
    assert any("nvidia-smi -pl" in lever.action for lever in first.levers)


@pytest.mark.parametrize("one", [{"sm_clock_hz": 1.2e9}, {"throttle_reasons": "hw_slowdown"}])
def test_clock_or_reason_alone_are_enough(one: dict[str, Any]) -> None:
    """Some drivers report only the clock, and some report only the reasons."""
    slower = slower_where(REPLICAS, 2.0)
    assert "gpu_throttling" in shares(asked(slower, Metric.TPOT, gpus(r0=one, r1=one)))


def test_a_slower_machine_with_normal_clocks_is_not_throttled() -> None:
    assert not asked(slower_where(REPLICAS, 2.0), Metric.TPOT, gpus()).causes


def test_a_lower_clock_without_slower_work_is_not_a_cause() -> None:
    assert not asked(quiet(), Metric.TPOT, gpus(r0=HOT, r1=HOT)).causes


def test_a_throttled_replica_beside_a_quick_one_is_found() -> None:
    """The slow replica serves a third of the requests, so the fleet's median is unchanged."""
    requests = slower_where(("r1",), 1.3)
    third = ~at_replica(requests, "r1") | (np.arange(len(requests)) % 2 == 0)
    more_s = np.random.default_rng(7).exponential(0.01, len(requests))
    each_s = more_s * requests.numbers["output_tokens"]
    slower = later(requests, decode_others_decode_s=lambda old: old + each_s).rows(third)
    found = asked(slower, Metric.TPOT, gpus(r1=HOT))
    assert shares(found)["gpu_throttling"] > 0.2
    (throttled,) = [cause for cause in found.causes if cause.id == "gpu_throttling"]
    assert throttled.where == {"replica": "r1"}
