from dataclasses import replace

import numpy as np
import pytest

from diagnosis.inputs.arrow import samples_of, servers_of
from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric
from tests.diagnosis.making import (
    BASELINE,
    REPLICAS,
    WINDOW,
    S,
    asked,
    asking_for_adapters,
    busier,
    fleet,
    later,
    quiet,
    sampled_each_second,
    shares,
    slower_where,
    started,
)


def test_two_machines_are_slow_for_two_reasons() -> None:
    usual = {"gpu": "0", "sm_clock_hz": 1.98e9, "throttle_reasons": "", "foreign_processes": 0}
    gpus = sampled_each_second(
        {
            "r0": {"sm_clock_hz": 1.2e9, "throttle_reasons": "sw_thermal_slowdown"},
            "r1": {"foreign_processes": 1},
        },
        usual,
    )
    servers = Servers(gpus=samples_of(gpus))
    found = asked(slower_where(REPLICAS, 2.0), Metric.TPOT, servers)
    assert set(shares(found)) == {"gpu_throttling", "noisy_neighbour"}
    assert all(share == pytest.approx(0.5, abs=0.15) for share in shares(found).values())
    assert {cause.where["replica"] for cause in found.causes} == {"r0", "r1"}


def test_a_neighbour_of_one_machine_is_not_blamed_for_another() -> None:
    """Both machines are slow. For one of them, no cause is found, so its growth stays
    unexplained."""
    gpus = sampled_each_second(
        {"r1": {"foreign_processes": 1}}, {"gpu": "0", "foreign_processes": 0}
    )
    found = asked(slower_where(REPLICAS, 2.0), Metric.TPOT, Servers(gpus=samples_of(gpus)))
    assert 0.3 < shares(found)["noisy_neighbour"] < 0.7
    assert found.unexplained == pytest.approx(1 - shares(found)["noisy_neighbour"], abs=0.01)


def through_the_front_end(prompts: float, pace: float) -> Requests:
    """Return requests with this front-end time per token, and with a queue before the front end."""
    requests = quiet()
    a_token_s = 2e-6 * requests.numbers["prompt_tokens"]
    waiting_s = np.random.default_rng(3).exponential(0.5, len(requests))
    requests = later(requests, frontend_s=a_token_s)
    requests.numbers["frontend_s"][:] = a_token_s
    return later(
        requests,
        prompt_tokens=lambda old: old * prompts,
        cached_tokens=lambda old: old * prompts,
        frontend_s=a_token_s * prompts * pace + waiting_s * (waiting_s > 0.1),
    )


def test_longer_prompts_share_the_price_of_a_slower_front_end() -> None:
    found = shares(asked(through_the_front_end(2.0, 2.0)))
    assert found["frontend_cpu"] == pytest.approx(found["longer_prompts"], abs=0.2)
    assert min(found["frontend_cpu"], found["longer_prompts"]) > 0.3


def test_a_slower_front_end_alone_has_the_whole_share() -> None:
    found = shares(asked(through_the_front_end(1.0, 3.0)))
    assert found["frontend_cpu"] > 0.9
    assert "longer_prompts" not in found


LOADING = fleet({"waiting_loras": 3}, {"waiting_loras": 0})


def test_only_more_adapters_are_lora_swaps() -> None:
    found = shares(asked(asking_for_adapters(30, 1.0), servers=LOADING))
    assert found["lora_swap"] > 0.9


def test_longer_answers_share_the_wait_for_an_adapter() -> None:
    found = shares(asked(asking_for_adapters(12, 4.0), servers=LOADING))
    assert 0.3 < found["lora_swap"] < 0.75
    assert found["longer_outputs"] > 0.2


def test_a_restart_is_not_blamed_for_lost_blocks() -> None:
    """Fewer requests run than before, but they wait for blocks.

    So the cache has too few blocks, and the queue is not the restart's backlog.
    """
    servers = replace(fleet({"running": 20}, {"running": 40}), starts=[started(960.0)])
    waited = later(quiet(), queue_kv_s=0.6, queue_seats_s=0.2)
    found = shares(asked(waited, servers=servers))
    assert max(found, key=lambda cause: found[cause]) == "kv_cache_exhausted"


def test_a_restart_and_a_higher_load_share_the_backlog() -> None:
    requests = busier(quiet(), 2)
    at_s = requests.received_unix_ns / S
    waited = later(requests, queue_seats_s=np.where((at_s > 950) & (at_s < 978), 3.0, 0.0))
    engines = sampled_each_second({}, {"waiting": 0, "running": 10})
    found = shares(asked(waited, servers=servers_of(engines, None, [started(960.0)])))
    assert found["cold_start"] == pytest.approx(0.5, abs=0.1)
    assert found["load_exceeds_capacity"] == pytest.approx(0.5, abs=0.1)


def test_a_baseline_that_begins_late_does_not_mean_less_traffic() -> None:
    """The first two thirds of the baseline have no data, but the request rate is unchanged."""
    waited = later(quiet(), queue_seats_s=0.6)
    late_requests = waited.rows(waited.received_unix_ns >= BASELINE.to_unix_ns * 2 // 3)
    assert "load_exceeds_capacity" not in shares(asked(late_requests))


def with_added(requests: Requests, tenant: str, **lengths: float) -> Requests:
    """Return requests; in the window, one tenant adds as many long requests as it sent before."""
    before = len(requests)
    more = busier(requests, 2, tenant=tenant)
    window = more.received_unix_ns >= WINDOW.from_unix_ns
    of_tenant = np.flatnonzero(window & more.label("tenant").is_value(tenant))
    added = np.random.default_rng(7).choice(of_tenant, len(more) - before, replace=False)
    numbers = dict(more.numbers)
    for name, value in {"cached_tokens": 0.0, **lengths}.items():
        numbers[name] = numbers[name].copy()
        numbers[name][added] = value
    return replace(more, numbers=numbers)


def test_requests_that_two_tenants_add_are_no_load() -> None:
    """The other tenants send as much as before, so the load of all tenants did not grow."""
    requests = with_added(quiet(), "acme", prompt_tokens=6_000.0)
    requests = with_added(requests, "globex", output_tokens=2_500.0)
    requests = later(requests, queue_budget_s=1.0, queue_seats_s=0.5, decode_others_prefill_s=0.5)
    found = shares(asked(requests, Metric.QUEUE))
    assert found
    assert "load_exceeds_capacity" not in found
