from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.record import RequestRecord

from replay.engine_config import EngineConfig
from replay.trace_csv import TraceRow
from simulator.conversations import Conversations
from simulator.faults import CAUSES, SimulatedFault
from simulator.fleet import FleetConfig, ReplicaSecond, Router, Second, simulate
from simulator.fleet_config import ROUTERS
from simulator.workload import Prefix, Tenant, Workload

PHASES = (names.FRONTEND, names.QUEUE, names.PREFILL, names.DECODE, names.DELIVERY)


def _config(duration_s: float = 120.0, seed: int = 1, *faults: SimulatedFault) -> FleetConfig:
    return FleetConfig(
        workload=Workload(rate_per_s=10.0), duration_s=duration_s, seed=seed, faults=faults
    )


def _state(report: ReplicaSecond) -> EngineState:
    assert report.state is not None
    return report.state


def _records(seconds: list[Second]) -> list[RequestRecord]:
    return [record for second in seconds for report in second.replicas for record in report.records]


def _quantile(values: list[float], q: float) -> float:
    return sorted(values)[int(q * len(values))]


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 10_000),
    router=st.sampled_from(ROUTERS),
    causes=st.lists(st.sampled_from(CAUSES), max_size=2, unique=True),
)
def test_every_request_is_reported_once_and_its_phases_sum_to_its_time(
    seed: int, router: Router, causes: list[str]
) -> None:
    faults = tuple(
        SimulatedFault(cause=cause, start_s=5.0 + 3.0 * number, end_s=16.0)
        for number, cause in enumerate(causes)
    )
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
            assert record.http_status in (400, 503)
            assert (record.queued, record.output_tokens) == (None, None)
        elif record.outcome == "error":
            assert (record.error_type, record.output_tokens) == ("engine_silent", None)
        elif record.outcome == "abort" and record.output_tokens is None:
            assert "retry_storm" in causes  # the client disconnected before the first token
        else:
            assert record.output_tokens is not None
            assert record.output_tokens >= 1
            assert (record.itl_max_s is None) == (record.output_tokens == 1)
            assert names.TTFT in attributes or not record.streamed
    last = seconds[-1].replicas
    if "retry_storm" in causes:
        return  # some tokens were computed for clients that had disconnected
    if any(record.preemptions or record.outcome == "error" for record in records):
        return  # some tokens were computed twice, or never
    prompts = sum(record.prompt_tokens or 0 for record in records)
    spared = sum(record.cached_tokens or 0 for record in records)
    cached = spared - sum(record.external_cached_tokens or 0 for record in records)
    answered = sum((record.output_tokens or 1) - 1 for record in records)
    totals = [_state(report).totals for report in last]
    assert sum(total[names.PREFIX_CACHE_QUERIES] for total in totals) == prompts
    assert sum(total[names.PREFIX_CACHE_HITS] for total in totals) == cached
    assert sum(total[names.PREFILL_TOKENS] for total in totals) == prompts - spared
    assert sum(total[names.DECODE_TOKENS] for total in totals) == answered
    assert all(_state(report).gauges[names.RUNNING] == 0 for report in last)
    assert all(_state(report).gauges[names.KV_USAGE] == 0 for report in last)


@pytest.fixture(scope="module")
def seconds() -> list[Second]:
    workload = Workload(rate_per_s=10.0, abort_share=0.02, malformed_share=0.02)
    return list(simulate(replace(_config(60.0), workload=workload)))


def test_seconds_are_in_order_with_the_requests_that_ended_in_each(seconds: list[Second]) -> None:
    steps = {"sim-0": 0.0, "sim-1": 0.0}
    for number, second in enumerate(seconds, 1):
        assert second.at_s == number
        assert [report.replica for report in second.replicas] == ["sim-0", "sim-1"]
        assert [report.region for report in second.replicas] == ["eu-west-1", "us-east-1"]
        for report in second.replicas:
            delivered = [record.delivered for record in report.records]
            assert delivered == sorted(delivered)
            assert all(second.at_s - 1 < at <= second.at_s for at in delivered)
            assert _state(report).totals[names.STEPS] >= steps[report.replica]
            steps[report.replica] = _state(report).totals[names.STEPS]


def test_all_kinds_of_ending_occur(seconds: list[Second]) -> None:
    outcomes = Counter(record.outcome for record in _records(seconds))
    assert set(outcomes) == {"stop", "length", "abort", "rejected"}
    assert outcomes["stop"] > 0.85 * outcomes.total()


def test_an_idle_second_has_no_longest_step() -> None:
    workload = Workload(rate_per_s=0.05)
    for second in simulate(replace(_config(200.0), workload=workload, replicas=1)):
        (report,) = second.replicas
        longest_s = _state(report).gauges.get(names.LONGEST_STEP)
        assert longest_s is None or longest_s > 0


def test_a_fault_changes_nothing_before_it_begins() -> None:
    quiet = simulate(_config(60.0))
    fault = SimulatedFault(cause="prefill_interference", start_s=30.0)
    troubled = simulate(_config(60.0, 1, fault))
    for _ in range(30):
        assert next(quiet) == next(troubled)


def test_shared_prefixes_raise_cache_hits() -> None:
    def hit_ratio(prefix_tokens: int) -> float:
        prefixes = (Prefix("system", prefix_tokens),) if prefix_tokens else ()
        workload = Workload(rate_per_s=10.0, tenants=(Tenant("one", 1.0, prefixes),))
        records = _records(list(simulate(replace(_config(30.0), workload=workload))))
        return sum(r.cached_tokens or 0 for r in records) / sum(
            r.prompt_tokens or 0 for r in records
        )

    none, some, much = (hit_ratio(tokens) for tokens in (0, 256, 768))
    assert none == 0.0
    assert 0.0 < some < much < 1.0


def test_few_blocks_cause_preemptions_and_every_request_ends() -> None:
    engine = EngineConfig(num_gpu_blocks=600, max_model_len=9216)
    records = _records(list(simulate(replace(_config(60.0), engine=engine))))
    evicted = [record for record in records if record.preemptions]
    assert evicted
    for record in evicted:
        assert len(record.preempted_at) == len(record.resumed_at) == record.preemptions
        parts = [split for split in (record.prefill_parts, record.decode_parts) if split]
        assert any(split.preempted > 0.0 for split in parts)


def test_a_prompt_longer_than_the_models_limit_is_refused() -> None:
    engine = EngineConfig(max_model_len=256)
    records = _records(list(simulate(replace(_config(20.0), engine=engine))))
    assert {r.outcome for r in records if (r.output_tokens is None)} == {"rejected"}
    assert all((r.prompt_tokens or 0) + (r.output_tokens or 0) <= 256 for r in records)


def test_all_routers_use_every_replica() -> None:
    for router in ROUTERS:
        config = replace(_config(60.0), router=router, replicas=3)
        counts = Counter(
            report.replica
            for second in simulate(config)
            for report in second.replicas
            for _ in report.records
        )
        assert min(counts.values()) > (0.2 if router == "cache_aware" else 0.8) * max(
            counts.values()
        )


@pytest.mark.parametrize(
    ("key", "value"),
    [("replicas", 0), ("router", "random"), ("duration_s", 0.0), ("regions", ())],
)
def test_a_fleet_that_cannot_be_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{key}: .*allowed: "):
        replace(_config(), **{key: value})  # type: ignore[arg-type]


def test_a_prefix_aware_router_has_more_cache_hits() -> None:
    def hit_ratio(router: Router) -> float:
        workload = Workload(rate_per_s=10.0, conversations=Conversations())
        config = replace(_config(60.0), workload=workload, router=router, replicas=4)
        records = _records(list(simulate(config)))
        hits = sum(record.cached_tokens or 0 for record in records)
        return hits / sum(record.prompt_tokens or 0 for record in records)

    assert hit_ratio("cache_aware") > 1.3 * hit_ratio("round_robin") > 0.0


def test_a_restart_is_a_new_start_after_a_silence() -> None:
    fault = SimulatedFault(cause="cold_start", start_s=10.0, end_s=11.0, replica=1)
    states = [second.replicas[1].state for second in simulate(_config(40.0, 1, fault))]
    down = [state is None for state in states]
    assert 5 < sum(down) < 20
    before, after = states[8], states[-1]
    assert before is not None
    assert after is not None
    assert after.started_unix_ns > before.started_unix_ns == 0
    assert after.config == before.config


def test_a_deploy_changes_the_fingerprint_and_the_arguments_and_is_rolled_back() -> None:
    fault = SimulatedFault(cause="config_change", start_s=20.0, end_s=60.0)
    starts: list[tuple[str | None, object]] = []
    for second in simulate(_config(90.0, 1, fault)):
        state = second.replicas[0].state
        if state is not None:
            start = (state.config, tuple(sorted(state.arguments.items())))
            if not starts or starts[-1] != start:
                starts.append(start)
    assert len(starts) == 3
    assert starts[0] == starts[2] != starts[1]


def test_a_fleet_that_is_down_counts_lost_requests() -> None:
    fault = SimulatedFault(cause="config_change", start_s=20.0, end_s=25.0)
    config = replace(_config(60.0, 1, fault), replicas=1)
    seconds = list(simulate(config))
    assert 20 < seconds[-1].lost < 200
    assert seconds[-1].lost + len(_records(seconds)) == len(
        list(config.workload.arrivals("1:workload", to_s=60.0))
    )


def test_a_trace_is_replayed_row_by_row() -> None:
    trace = (TraceRow(0.0, 100, 5), TraceRow(2.5, 3000, 7), TraceRow(4.0, 50, 9))
    workload = replace(Workload.replay(trace), abort_share=0.0, malformed_share=0.0)
    records = _records(list(simulate(FleetConfig(workload=workload))))
    replayed = sorted((r.received, r.prompt_tokens, r.output_tokens) for r in records)
    assert replayed == [tuple(row) for row in trace]
