from dataclasses import replace

import numpy as np
import pytest

from diagnosis.inputs.arrow import samples_of
from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric
from tests.diagnosis.making import (
    ALPHA_S,
    REPLICAS,
    asked,
    evidence,
    first_cause,
    fleet,
    later,
    quiet,
    sampled_each_second,
    shares,
    slower_where,
    summed,
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


def cached_in_the_window(times: float) -> Requests:
    """Return requests whose prompts are not cached in the baseline, and cached except for 13 tokens
    in the window. In the window, the own work is slower by the factor `times`."""
    requests = quiet()
    prompt = np.maximum(requests.numbers["prompt_tokens"], 100.0)
    own_s = 0.005 + ALPHA_S * prompt
    numbers = {
        **requests.numbers,
        "prompt_tokens": prompt,
        "cached_tokens": np.zeros_like(prompt),
        "prefill_own_s": own_s,
    }
    return later(
        summed(replace(requests, numbers=numbers)),
        cached_tokens=prompt - 13.0,
        prefill_own_s=(0.005 + ALPHA_S * 13.0) * times,
        decode_own_s=lambda old: old * times,
    )


def test_a_neighbour_is_found_if_the_window_is_cached_and_the_baseline_is_not() -> None:
    """No prefill of the baseline is as small as those of the window, but the decodes can be
    compared."""
    usual = {"gpu": "0", "sm_clock_hz": 1.98e9, "foreign_processes": 0}
    late = {"foreign_processes": 1}
    gpus = sampled_each_second(dict.fromkeys(REPLICAS, late), usual)
    found = asked(cached_in_the_window(1.6), Metric.TPOT, Servers(gpus=samples_of(gpus)))
    first = first_cause(found, "noisy_neighbour", 0.9)
    assert evidence(first, "slowdown for the same work") == pytest.approx((1.0, 1.6), rel=0.05)


def test_a_neighbour_that_lowers_the_clock_a_little_explains_most_of_the_slowdown() -> None:
    """The values are from a recording on an H200, whose power limit a neighbour reached."""
    usual = {"gpu": "0", "sm_clock_hz": 1.98e9, "foreign_processes": 0, "throttle_reasons": ""}
    late = {"sm_clock_hz": 1.90e9, "foreign_processes": 1, "throttle_reasons": "sw_power_cap"}
    gpus = sampled_each_second(dict.fromkeys(REPLICAS, late), usual)
    slower = slower_where(REPLICAS, 2.0)
    found = asked(slower, Metric.TPOT, Servers(gpus=samples_of(gpus)))
    first_cause(found, "noisy_neighbour", 0.9)
    assert shares(found)["gpu_throttling"] == pytest.approx(0.06, abs=0.02)


def test_a_neighbour_on_a_gpu_whose_clock_explains_the_slowdown_gets_half() -> None:
    usual = {"gpu": "0", "sm_clock_hz": 1.98e9, "foreign_processes": 0}
    late = {"sm_clock_hz": 0.99e9, "foreign_processes": 1}
    gpus = sampled_each_second(dict.fromkeys(REPLICAS, late), usual)
    found = shares(asked(slower_where(REPLICAS, 2.0), Metric.TPOT, Servers(gpus=samples_of(gpus))))
    assert found == pytest.approx({"noisy_neighbour": 0.5, "gpu_throttling": 0.5}, abs=0.05)


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
