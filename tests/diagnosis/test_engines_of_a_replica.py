"""One slow engine of a data-parallel replica, whose other engine is not slow."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from diagnosis.evidence.gpus_and_hosts import foreign_cpus
from diagnosis.growth.case import case_of
from diagnosis.growth.own_work import fit_own_work
from diagnosis.inputs.arrow import servers_of
from diagnosis.inputs.requests import BoolArray, Requests
from diagnosis.inputs.server_labels import with_server_labels
from diagnosis.inputs.servers import Servers
from diagnosis.latency.tail import sort_latencies
from diagnosis.question import Metric, Question
from tests.diagnosis.making import (
    BASELINE,
    WINDOW,
    S,
    asked,
    at_replica,
    evidence,
    first_cause,
    labels,
    later,
    quiet,
    sampled_each_second,
    shares,
)

AT_ENGINE_1 = {"replica": "r0", "engine": "1"}


def on_engines(requests: Requests) -> Requests:
    """Turn replicas r0 and r1 into engines 0 and 1 of replica r0."""
    engine = np.where(at_replica(requests, "r1"), 1.0, 0.0)
    return replace(
        requests,
        numbers={**requests.numbers, "engine": engine},
        labels={**requests.labels, "replica": labels(["r0"] * len(requests))},
    )


def engines(now: dict[str, Any], usual: dict[str, Any]) -> Servers:
    """Return samples of two engines of r0; in the window, engine 1 has the values of `now`."""
    table = sampled_each_second({"r1": now}, usual)
    number = pa.array([int(name == "r1") for name in table["replica"].to_pylist()])
    replica = pa.array(["r0"] * table.num_rows)
    return servers_of(
        table.set_column(table.column_names.index("replica"), "replica", replica)
        .append_column("engine", number)
        .append_column("process", pa.array([7] * table.num_rows))
    )


def at_engine_1(requests: Requests) -> BoolArray:
    return np.asarray(requests.number("engine") == 1)


def late_at_engine_1(requests: Requests, **added_s: float) -> Requests:
    there = at_engine_1(requests)
    return later(requests, **{name: np.where(there, s, 0.0) for name, s in added_s.items()})


def test_an_engine_that_gets_more_than_its_share_is_out_of_balance() -> None:
    requests = quiet()
    moved = np.random.default_rng(7).random(len(requests)) < 0.8
    moved &= requests.received_unix_ns >= WINDOW.from_unix_ns
    names = np.where(moved | at_replica(requests, "r1"), "r1", "r0").tolist()
    skewed = on_engines(replace(requests, labels={**requests.labels, "replica": labels(names)}))
    waiting = late_at_engine_1(skewed, queue_seats_s=1.0)
    answer = asked(waiting, servers=engines({"waiting": 30}, {"waiting": 0}))
    first = first_cause(answer, "replica_imbalance", 0.9)
    assert first.where == AT_ENGINE_1
    assert evidence(first, "share of the traffic that r0 engine 1") == pytest.approx(
        (0.5, 0.9), abs=0.03
    )
    assert evidence(first, "requests waiting at the slow servers") == (0, 30)
    assert any("external-lb" in (lever.flag or "") for lever in first.levers)
    hits = {(hit.dimension, hit.value): hit.risk_ratio for hit in answer.dimensions}
    assert hits["engine", "1"] > 3


def test_the_engine_that_stalled_is_named() -> None:
    """Samples of the other engine are not mixed in."""
    meets = np.random.default_rng(6).random(6_000) < 0.1
    requests = on_engines(quiet())
    stalled = later(requests, decode_stall_s=np.where(meets & at_engine_1(requests), 10.0, 0.0))
    usual = {"busy_s_total": 0.6, "stall_s_total": 0.0, "longest_step_s": 0.1}
    now = {"busy_s_total": 0.9, "longest_step_s": 10.0}
    servers = engines({**now, "stall_s_total": lambda s: 0.5 if s % 100 == 0 else 0.0}, usual)
    first = first_cause(asked(stalled, Metric.TPOT, servers), "engine_stall", 0.8)
    assert first.where == AT_ENGINE_1
    assert evidence(first, "longest step") == (0.1, 10.0)
    # Every twentieth sample of the engine has a pause of 2.5 s. If both engines' samples were
    # mixed, every fortieth would have this pause.
    assert evidence(first, "stall time")[1] == pytest.approx(0.025, abs=0.005)


def test_a_full_cache_of_one_engine_is_named() -> None:
    full = late_at_engine_1(on_engines(quiet()), queue_kv_s=2.0)
    now, usual = {"kv_usage_ratio": 0.99, "running": 5}, {"kv_usage_ratio": 0.4, "running": 5}
    first = first_cause(asked(full, servers=engines(now, usual)), "kv_cache_exhausted", 0.8)
    assert first.where == AT_ENGINE_1
    assert evidence(first, "KV cache in use") == pytest.approx((0.4, 0.99))


def test_a_slow_machine_under_one_engine_is_named() -> None:
    """The other engine of the replica keeps its speed."""
    requests = on_engines(quiet())
    times = np.where(at_engine_1(requests), 1.6, 1.0)
    slow = later(
        requests, prefill_own_s=lambda old: old * times, decode_own_s=lambda old: old * times
    )
    servers = engines({"host_cpu_steal_s_total": 0.5}, {"host_cpu_steal_s_total": 0.0})
    first = first_cause(asked(slow, Metric.TPOT, servers), "noisy_neighbour", 0.8)
    assert first.where == AT_ENGINE_1
    assert evidence(first, "slowdown")[1] == pytest.approx(1.6, abs=0.05)


def test_both_engines_slow_is_a_cause_of_the_replica() -> None:
    requests = on_engines(quiet())
    slow = later(requests, prefill_own_s=lambda s: s * 1.6, decode_own_s=lambda s: s * 1.6)
    stolen = {"host_cpu_steal_s_total": 0.5}
    table = sampled_each_second({"r0": stolen, "r1": stolen}, {"host_cpu_steal_s_total": 0.0})
    number = pa.array([int(name == "r1") for name in table["replica"].to_pylist()])
    same = pa.array(["r0"] * table.num_rows)
    at = table.column_names.index("replica")
    servers = servers_of(table.set_column(at, "replica", same).append_column("engine", number))
    first = first_cause(asked(slow, Metric.TPOT, servers), "noisy_neighbour", 0.8)
    assert first.where == {"replica": "r0"}


def test_a_hung_engine_is_named_while_another_works() -> None:
    """Requests to the working engine do not count as unfinished."""
    requests = on_engines(quiet())
    there = requests.received_unix_ns >= 1500 * S
    hung = there & at_engine_1(requests)
    numbers = {
        **requests.numbers,
        "e2e_s": np.where(hung, 200.0, requests.number("e2e_s")),
        "ttft_s": np.where(hung, np.nan, requests.number("ttft_s")),
    }
    outcome = labels(np.where(there, "abort", "stop").tolist())
    requests = replace(requests, numbers=numbers, labels={**requests.labels, "outcome": outcome})
    now = {"last_step_age_s": lambda s: max(0.0, s - 1500.0) or None, "in_flight": 9}
    usual = {"last_step_age_s": 0.1, "in_flight": 3}
    first = first_cause(asked(requests, servers=engines(now, usual)), "engine_hang", 0.9)
    assert first.where == AT_ENGINE_1
    assert evidence(first, "longest time without an engine step") == (0.1, 295.0)


def test_a_replica_without_engine_numbers_is_one_server() -> None:
    """Native spans have no engine number, although the server's `/metrics` has several engines."""
    unnumbered = quiet()
    servers = engines({"waiting": 30}, {"waiting": 0})
    alone = replace(unnumbered, labels={**unnumbered.labels, "replica": labels(["r0"] * 6_000)})
    same, unchanged = with_server_labels(alone, servers)
    assert same is alone
    assert unchanged is servers


def test_replicas_with_one_engine_each_keep_their_name() -> None:
    """With external load balancing, each engine is a replica with its own engine number."""
    requests = quiet()
    number = np.where(at_replica(requests, "r1"), 1.0, 0.0)
    external = replace(requests, numbers={**requests.numbers, "engine": number})
    same, _ = with_server_labels(external, Servers())
    assert same.server.values == ("r0", "r1")
    skewed = later(external, queue_seats_s=np.where(number == 1, 1.0, 0.0))
    assert all("engine" not in cause.where for cause in asked(skewed).causes)


def test_a_request_without_an_engine_has_no_server_of_a_divided_replica() -> None:
    requests = on_engines(quiet())
    number = requests.number("engine").copy()
    number[:10] = np.nan
    numbers = {**requests.numbers, "engine": number}
    divided, _ = with_server_labels(replace(requests, numbers=numbers), Servers())
    assert (divided.server.codes[:10] == -1).all()
    assert {divided.server.values[code] for code in divided.server.codes[10:]} == {
        "r0 engine 0",
        "r0 engine 1",
    }


def test_engines_and_api_servers_of_one_host_are_no_foreign_processes() -> None:
    """Two API servers report both engines; all four processes belong to the replica."""
    rows = []
    for at in range(0, 1800, 5):
        for process in (7, 8):
            for engine in (0, 1):
                busy = {"process_cpu_s_total": 0.3, "core_cpu_s_total": 1.0}
                rows.append(
                    {
                        "at_unix_ns": at * S,
                        "replica": "r0",
                        "engine": engine,
                        "process": process,
                        **{name: per_s * at for name, per_s in busy.items()},
                        "host_cpu_busy_s_total": (2 * 0.3 + 2 * 1.0 + 0.1) * at,
                    }
                )
    requests, servers = with_server_labels(
        on_engines(quiet()), servers_of(pa.Table.from_pylist(rows))
    )
    question = Question(Metric.E2E, WINDOW, BASELINE)
    before, now = (
        requests.within(span.from_unix_ns, span.to_unix_ns) for span in (BASELINE, WINDOW)
    )
    tails = [
        sort_latencies(each.number("e2e_s"), each.received_unix_ns, span.from_unix_ns, 900.0)
        for each, span in ((now, WINDOW), (before, BASELINE))
    ]
    case = case_of(question, servers, now, before, (tails[0], tails[1]), 0.05, fit_own_work(before))
    assert foreign_cpus(case) == pytest.approx((0.1, 0.1), abs=1e-6)
    assert foreign_cpus(case.at("r0 engine 1")) == pytest.approx((0.1, 0.1), abs=1e-6)


def test_the_order_of_causes_is_the_same_for_engines_and_replicas() -> None:
    requests = quiet()
    late = later(requests, queue_kv_s=np.where(at_replica(requests, "r1"), 2.0, 0.0))
    as_replicas = asked(late)
    as_engines = asked(on_engines(late))
    assert shares(as_engines) == pytest.approx(shares(as_replicas))
