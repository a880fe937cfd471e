from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.record import RequestRecord
from tailspan_vllm.spans import span_of

from simulator.engine import EngineConfig
from simulator.faults import Fault
from simulator.fleet import FleetConfig, Router, Second, simulate
from simulator.workload import Prefix, Tenant, Workload

PHASES = (names.FRONTEND, names.QUEUE, names.PREFILL, names.DECODE, names.DELIVERY)


def _config(duration_s: float = 120.0, seed: int = 1, *faults: Fault) -> FleetConfig:
    return FleetConfig(
        workload=Workload(rate_per_s=10.0), duration_s=duration_s, seed=seed, faults=faults
    )


def _records(seconds: list[Second]) -> list[RequestRecord]:
    return [record for second in seconds for told in second.replicas for record in told.records]


def _quantile(values: list[float], q: float) -> float:
    return sorted(values)[int(q * len(values))]


@settings(deadline=None, max_examples=10)
@given(
    seed=st.integers(0, 10_000),
    router=st.sampled_from(["least_outstanding", "round_robin"]),
    cause=st.sampled_from([None, "prefill_interference", "tenant_flood", "engine_stall"]),
)
def test_every_request_is_told_once_and_its_phases_sum_to_its_time(
    seed: int, router: Router, cause: str | None
) -> None:
    """Whatever the traffic, the routing and the fault."""
    faults = (Fault(cause=cause, start_s=5.0),) if cause else ()
    seconds = list(simulate(replace(_config(20.0, seed, *faults), router=router)))
    records = _records(seconds)
    ids = Counter(record.request_id for record in records)
    assert records
    assert max(ids.values()) == 1
    resource = Resource({})
    for record in records:
        attributes = span_of(record, resource).attributes or {}
        e2e_s = record.delivered - record.received
        phases = [float(attributes[name]) for name in PHASES if name in attributes]  # type: ignore[arg-type]
        assert sum(phases) == pytest.approx(e2e_s, abs=1e-9)
        assert min(phases) >= 0.0
        if record.outcome == "rejected":
            assert (record.http_status, record.queued, record.output_tokens) == (400, None, None)
        else:
            assert record.output_tokens is not None
            assert record.output_tokens >= 1
            assert (record.itl_max_s is None) == (record.output_tokens == 1)
            assert names.TTFT in attributes or not record.streamed
    last = seconds[-1].replicas
    prompts = sum(record.prompt_tokens or 0 for record in records)
    cached = sum(record.cached_tokens or 0 for record in records)
    answered = sum((record.output_tokens or 1) - 1 for record in records)
    totals = [told.state.totals for told in last]
    assert sum(total[names.PREFIX_CACHE_QUERIES] for total in totals) == prompts
    assert sum(total[names.PREFIX_CACHE_HITS] for total in totals) == cached
    assert sum(total[names.PREFILL_TOKENS] for total in totals) == prompts - cached
    assert sum(total[names.DECODE_TOKENS] for total in totals) == answered
    assert all(told.state.gauges[names.RUNNING] == 0 for told in last)
    assert all(told.state.gauges[names.KV_USAGE] == 0 for told in last)


def test_the_same_seed_tells_the_same_story() -> None:
    """To the last digit; another seed another one."""
    assert list(simulate(_config(60.0))) == list(simulate(_config(60.0)))
    assert list(simulate(_config(60.0))) != list(simulate(_config(60.0, 2)))


def test_seconds_are_told_in_order_each_with_what_was_delivered_in_it() -> None:
    """One sample per replica and second; totals never fall."""
    steps = {"sim-0": 0.0, "sim-1": 0.0}
    for number, second in enumerate(simulate(_config(60.0)), 1):
        assert second.at_s == number
        assert [told.replica for told in second.replicas] == ["sim-0", "sim-1"]
        assert [told.region for told in second.replicas] == ["eu-west-1", "us-east-1"]
        for told in second.replicas:
            delivered = [record.delivered for record in told.records]
            assert delivered == sorted(delivered)
            assert all(second.at_s - 1 < at <= second.at_s for at in delivered)
            assert told.state.totals[names.STEPS] >= steps[told.replica]
            steps[told.replica] = told.state.totals[names.STEPS]


def test_an_idle_second_has_no_longest_step() -> None:
    """No data is not zero."""
    workload = Workload(rate_per_s=0.05)
    for second in simulate(replace(_config(200.0), workload=workload, replicas=1)):
        (told,) = second.replicas
        longest_s = told.state.gauges.get(names.LONGEST_STEP)
        assert longest_s is None or longest_s > 0


def test_all_kinds_of_ending_occur() -> None:
    """Whole answers, cut ones, clients that leave, requests refused."""
    outcomes = Counter(record.outcome for record in _records(list(simulate(_config(300.0)))))
    assert set(outcomes) == {"stop", "length", "abort", "rejected"}
    assert outcomes["stop"] > 0.85 * outcomes.total()


@pytest.mark.parametrize("cause", ["prefill_interference", "tenant_flood", "engine_stall"])
def test_a_fault_raises_the_tail_of_those_who_did_nothing(cause: str) -> None:
    """Other tenants' p99 gap or first token at least half as long again."""

    def tail(*faults: Fault) -> tuple[float, float]:
        others = [
            record
            for record in _records(list(simulate(_config(300.0, 3, *faults))))
            if record.tenant != "acme" and record.first_token is not None
        ]
        return (
            _quantile([r.itl_max_s for r in others if r.itl_max_s is not None], 0.99),
            _quantile([(r.first_token or 0.0) - r.received for r in others], 0.99),
        )

    quiet, troubled = tail(), tail(Fault(cause=cause, start_s=0.0))
    assert max(troubled[0] / quiet[0], troubled[1] / quiet[1]) > 1.5


def test_a_fault_changes_nothing_before_it_begins() -> None:
    """With and without it, the first minute is the same."""
    quiet = simulate(_config(90.0))
    troubled = simulate(_config(90.0, 1, Fault(cause="prefill_interference", start_s=60.0)))
    for _ in range(60):
        assert next(quiet) == next(troubled)


def test_shared_prefixes_raise_cache_hits() -> None:
    """The more of a prompt is shared, the more of it is found computed."""

    def hit_ratio(prefix_tokens: int) -> float:
        prefixes = (Prefix("system", prefix_tokens),) if prefix_tokens else ()
        workload = Workload(rate_per_s=10.0, tenants=(Tenant("one", 1.0, prefixes),))
        records = _records(list(simulate(replace(_config(60.0), workload=workload))))
        return sum(r.cached_tokens or 0 for r in records) / sum(
            r.prompt_tokens or 0 for r in records
        )

    none, some, much = (hit_ratio(tokens) for tokens in (0, 256, 768))
    assert none == 0.0
    assert 0.0 < some < much < 1.0


def test_few_blocks_bring_preemptions_and_every_request_still_ends() -> None:
    """Evicted requests tell when, how often and for how long."""
    engine = EngineConfig(num_gpu_blocks=600, max_model_len=9216)
    records = _records(list(simulate(replace(_config(60.0), engine=engine))))
    evicted = [record for record in records if record.preemptions]
    assert evicted
    for record in evicted:
        assert len(record.preempted_at) == len(record.resumed_at) == record.preemptions
        parts = [split for split in (record.prefill_parts, record.decode_parts) if split]
        assert any(split.preempted > 0.0 for split in parts)


def test_a_prompt_longer_than_the_model_takes_is_refused_at_the_door() -> None:
    """A 400, as vLLM answers it; the engine never sees it."""
    engine = EngineConfig(max_model_len=256)
    records = _records(list(simulate(replace(_config(20.0), engine=engine))))
    assert {r.outcome for r in records if (r.output_tokens is None)} == {"rejected"}
    assert all((r.prompt_tokens or 0) + (r.output_tokens or 0) <= 256 for r in records)


def test_both_routers_use_every_replica_alike() -> None:
    """Even when most of the fleet is idle."""
    routers: tuple[Router, ...] = ("round_robin", "least_outstanding")
    for router in routers:
        config = replace(_config(120.0), router=router, replicas=3)
        counts = Counter(
            told.replica
            for second in simulate(config)
            for told in second.replicas
            for _ in told.records
        )
        assert min(counts.values()) > 0.8 * max(counts.values())


@pytest.mark.parametrize(
    ("key", "value"),
    [("replicas", 0), ("router", "random"), ("duration_s", 0.0), ("regions", ())],
)
def test_a_fleet_that_cannot_be_is_refused(key: str, value: object) -> None:
    """The error names the key, the value given and the values allowed."""
    with pytest.raises(ValueError, match=f"{key}: .*allowed: "):
        replace(_config(), **{key: value})  # type: ignore[arg-type]
