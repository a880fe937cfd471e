import random
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest
from tailspan_vllm import names

from simulator.conditions import ConditionChange
from simulator.dataset import Dataset, run
from simulator.faults import CAUSES, INJECTIONS, SimulatedFault, world_of
from simulator.fleet import simulate
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from telemetry.engines import EngineSample
from telemetry.requests import HELD_PARTS, RequestTimeline

ENDS_S = 100.0
QUIET = FleetConfig(workload=Workload(rate_per_s=10.0), duration_s=ENDS_S, seed=3)
SINCE_S = 30.0
FRONT = ("frontend_s", "queue_s", "prefill_s")
LIES_IN = {
    "ttft_s": FRONT,
    "tpot_s": ("decode_s",),
    "e2e_s": (*FRONT, "decode_s", "delivery_s"),
}
"""The phases that each latency consists of."""


def _faulty(cause: str, severity: float = 1.0) -> FleetConfig:
    fault = SimulatedFault(cause=cause, start_s=SINCE_S, end_s=ENDS_S, severity=severity)
    return replace(QUIET, faults=(fault,))


@cache
def _run(config: FleetConfig) -> Dataset:
    return run(config)


def _answered(dataset: Dataset) -> list[RequestTimeline]:
    since = dataset.config.started_unix_ns + int(SINCE_S * 1e9)
    return [
        row for row in dataset.requests if row.received_unix_ns >= since and row.ttft_s is not None
    ]


def _tail(rows: list[RequestTimeline], metric: str) -> tuple[float, list[RequestTimeline]]:
    known = sorted(value for row in rows if (value := getattr(row, metric)) is not None)
    bound = known[int(0.95 * len(known))]
    return bound, [row for row in rows if (getattr(row, metric) or 0.0) >= bound]


def _mean(rows: list[RequestTimeline], columns: Iterable[str]) -> float:
    columns = tuple(columns)
    return sum(getattr(row, column) or 0.0 for row in rows for column in columns) / len(rows)


@pytest.mark.parametrize(
    ("cause", "seed"),
    [
        # test_hangs tests the hung engine, because its requests have no first token.
        *((cause, QUIET.seed) for cause in CAUSES if cause != "engine_hang"),
        ("config_change", 4),
    ],
)
def test_a_fault_raises_the_tail_in_the_expected_parts(cause: str, seed: int) -> None:
    injection = INJECTIONS[cause]
    faulty = replace(_faulty(cause), seed=seed)
    affects = injection.affected_latency(faulty.faults[0], faulty)
    quiet = _answered(_run(replace(world_of(faulty), faults=())))
    troubled = _answered(_run(faulty))
    usual, usual_tail = _tail(quiet, affects)
    now, tail = _tail(troubled, affects)
    assert now > 1.8 * usual
    # A response has many gaps, so the parts of a gap are compared with the gap itself.
    excess = now - usual
    if affects != "itl_max_s":
        phases = LIES_IN[affects]
        excess = _mean(tail, phases) - _mean(usual_tail, phases)
    shown = _mean(tail, injection.shows) - _mean(usual_tail, injection.shows)
    assert shown > 0.3 * excess > 0.0


@pytest.mark.parametrize("cause", CAUSES)
def test_no_fault_lets_the_queue_grow_without_end(cause: str) -> None:
    hard = SimulatedFault(cause=cause, start_s=10.0, severity=2.0)
    small = replace(QUIET, replicas=1, workload=Workload(rate_per_s=5.0), duration_s=100.0)
    for second in simulate(replace(small, faults=(hard,))):
        for report in second.replicas:
            assert not any(record.http_status == 503 for record in report.records)
            assert report.state is None or report.state.gauges[names.WAITING] < 300
    assert second.at_s < 200.0  # the queue is empty soon after the last request


def test_the_gpus_samples_distinguish_causes_of_slow_steps() -> None:
    """A low GPU clock, a foreign process and a slow rank make the steps equally slow."""

    def gpus(cause: str) -> tuple[set[str | None], set[int | None], float]:
        samples = [
            gpu
            for gpu in _run(_faulty(cause)).gpus
            if gpu.at_unix_ns > int(60e9) and gpu.replica == "sim-0"
        ]
        activity: dict[int, list[float]] = {}
        for gpu in samples:
            activity.setdefault(gpu.at_unix_ns, []).append(gpu.sm_active_ratio or 0.0)
        apart = sum(max(each) - min(each) for each in activity.values()) / len(activity)
        return (
            {gpu.throttle_reasons for gpu in samples},
            {gpu.foreign_processes for gpu in samples},
            apart,
        )

    assert gpus("gpu_throttling") == ({"sw_thermal_slowdown"}, {0}, 0.0)
    reasons, foreign, apart = gpus("noisy_neighbour")
    assert (reasons, foreign, apart) == ({""}, {0, 1}, 0.0)
    reasons, foreign, apart = gpus("slow_rank")
    assert (reasons, foreign) == ({""}, {0})
    assert apart > 0.1


def test_the_servers_totals_confirm_the_cause() -> None:
    def last(cause: str) -> dict[str, float]:
        totals: dict[str, float] = {}
        for sample in _run(_faulty(cause)).samples:
            if sample.at_unix_ns == int(95e9):
                for name in sample.__dataclass_fields__:
                    value = getattr(sample, name)
                    if name.endswith("_total") and value is not None:
                        totals[name] = totals.get(name, 0.0) + value
        return totals

    drafts = last("spec_decode_rejection")
    assert 0.1 < drafts["accepted_tokens_total"] / drafts["draft_tokens_total"] < 0.6
    fetched = last("kv_transfer")
    assert fetched["kv_transfer_s_total"] > 0
    assert fetched["external_cache_hits_tokens_total"] > 0
    assert last("preemption")["preemptions_total"] > 10
    assert last("engine_stall")["stall_s_total"] > 0.5
    deferred = [sample.deferred or 0 for sample in _run(_faulty("lora_swap")).samples]
    assert max(deferred) > 0


def test_the_front_ends_cpu_is_busy_if_it_is_the_cause() -> None:
    samples = [s for s in _run(_faulty("frontend_cpu")).samples if s.replica == "sim-0"]
    before, after = samples[40], samples[95]
    front_end_s = (after.process_cpu_s_total or 0.0) - (before.process_cpu_s_total or 0.0)
    assert 0.5 < front_end_s / 55.0 <= 1.1
    assert (after.busy_s_total or 0.0) - (before.busy_s_total or 0.0) < 55.0


def test_the_step_model_is_fitted_as_in_a_real_engine() -> None:
    quiet = [s for s in _run(QUIET).samples if s.replica == "sim-0"][-1]
    step = QUIET.engine.step
    assert quiet.step_model_base_s == pytest.approx(step.base_s, rel=0.05)
    assert quiet.step_model_per_prefill_token_s == pytest.approx(step.prefill_token_s, rel=0.1)
    throttled = [s for s in _run(_faulty("gpu_throttling")).samples if s.replica == "sim-0"]
    slow = throttled[98]  # the fault ends at 100 s

    def decodes_s(sample: EngineSample) -> float:
        """Return the fitted time of eight decodes with 1,000 tokens of context."""
        coefficients = (
            sample.step_model_base_s,
            sample.step_model_per_decode_s,
            sample.step_model_per_context_token_s,
        )
        return sum(
            (each or 0.0) * times for each, times in zip(coefficients, (1, 8, 8000), strict=True)
        )

    assert decodes_s(slow) > 1.1 * decodes_s(quiet)  # the fit forgets the fault slowly


def test_added_requests_come_in_order_while_the_fault_lasts() -> None:
    for cause, injection in INJECTIONS.items():
        if injection.arrivals is None:
            continue
        fault = SimulatedFault(cause=cause, start_s=100.0, end_s=200.0)
        requests = list(injection.arrivals(fault, QUIET, random.Random("seed")))
        instants = [request.at_s for request in requests]
        assert requests, cause
        assert instants == sorted(instants), cause
        assert all(100.0 <= at < 200.0 for at in instants), cause
        assert requests == list(injection.arrivals(fault, QUIET, random.Random("seed"))), cause


def test_conditions_change_in_order_and_are_as_before_at_the_end() -> None:
    usual = {"foreign": 0.0, "lost_blocks": 0.0, "pull": 0.0, "hung": 0.0}
    for cause, injection in INJECTIONS.items():
        if injection.events is None:
            continue
        fault = SimulatedFault(cause=cause, start_s=100.0, end_s=200.0)
        longer = replace(QUIET, duration_s=200.0, faults=(fault,))
        events = list(injection.events(fault, world_of(longer), random.Random("seed")))
        instants = [event.at_s for event in events]
        assert instants == sorted(instants), cause
        assert instants[0] == 100.0, cause
        last: dict[tuple[int, str], float] = {}
        for event in events:
            if isinstance(event, ConditionChange):
                last[event.replica, event.key] = event.value
        assert all(value == usual.get(key, 1.0) for (_, key), value in last.items()), cause


def test_stalls_have_no_end_if_the_fault_has_none() -> None:
    inject = INJECTIONS["engine_stall"].stalls
    assert inject is not None
    fault = SimulatedFault(cause="engine_stall", start_s=10.0)
    stalls = list(islice(inject(fault, random.Random("seed")), 100))
    assert [stall.at_s for stall in stalls] == sorted(stall.at_s for stall in stalls)
    assert all(stall.at_s > 10.0 and stall.for_s > 0 for stall in stalls)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cause": "gremlins"}, "cause: 'gremlins'; allowed: cold_start, config_change"),
        ({"severity": 0.0}, "severity: 0.0; allowed: more than 0"),
        ({"severity": float("nan")}, "severity: nan; allowed: more than 0"),
        ({"start_s": -1.0}, "start_s: -1.0, end_s: inf; allowed: from 0"),
        ({"end_s": 0.0}, "allowed: from 0, start before end"),
        ({"replica": -1}, "replica: -1; allowed: 0 or more"),
    ],
)
def test_an_unknown_fault_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SimulatedFault(**{"cause": "tenant_flood", "start_s": 0.0, **given})  # type: ignore[arg-type]


def test_a_held_request_has_its_reason() -> None:
    """The times of the reasons sum to at most the held time, and only a request with an adapter
    waits for an adapter."""
    for cause, reason in (
        ("kv_transfer", "kv_load_s"),
        ("lora_swap", "adapter_wait_s"),
        ("grammar_compile", "grammar_s"),
    ):
        rows = [row for row in _run(_faulty(cause)).requests if row.queue_held_s is not None]
        assert rows
        for row in rows:
            parts_s = [getattr(row, name) for name in HELD_PARTS]
            assert None not in parts_s
            assert sum(parts_s) <= (row.queue_held_s or 0.0) + 1e-9
            assert row.lora is not None or not row.adapter_wait_s
        assert sum(getattr(row, reason) > 0 for row in rows) > 10


def test_only_a_model_with_images_has_an_encoder() -> None:
    known = [
        (row.encoder_s, row.prefill_own_s)
        for row in _run(_faulty("encoder")).requests
        if row.encoder_s is not None and row.prefill_own_s is not None
    ]
    assert all(0 <= encoder_s <= own_s + 1e-9 for encoder_s, own_s in known)
    assert 0.01 < sum(encoder_s > 0 for encoder_s, _ in known) / len(known) < 0.1
    assert all(row.encoder_s is None for row in _run(_faulty("kv_transfer")).requests)
