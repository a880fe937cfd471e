"""Shares by replay on simulated fleets with known faults."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from analysis.counterfactual import shares
from analysis.counterfactual.effects import with_latest_arguments
from analysis.counterfactual.explain import with_shares_of
from analysis.counterfactual.factors import KIND_OF_CAUSE, Factor, FactorKind, factors_of
from analysis.counterfactual.mixed_window import MixedWindow, RangeTraffic, _repeated
from analysis.counterfactual.shares import (
    CauseShares,
    TailMeans,
    Tails,
    UndecidedError,
    _share,
    decide,
    replays,
    tail_mean_s,
    untested,
)
from analysis.recorded_traffic import LEAD_S, Recorded, recorded_of
from analysis.window_replay import ReplayTraffic, resampled, traffic_of
from diagnosis.causes.registry import DETECTORS
from diagnosis.explain import explain
from diagnosis.explanation import Cause
from diagnosis.inputs.arrow import requests_of, servers_of
from diagnosis.question import Metric, Question, Span
from replay.engine_config import EngineConfig
from simulator.dataset import Dataset, run
from simulator.fault import SimulatedFault
from simulator.faults import world_of
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from telemetry.window import Window

BEGAN_S = LEAD_S + 120
ENDED_S = BEGAN_S + 120
SHARE = 0.05

pytestmark = pytest.mark.usefixtures("few_resamples")


@cache
def simulated(*causes: str, severity: float = 1.0) -> Dataset:
    config = FleetConfig(
        duration_s=float(ENDED_S),
        seed=5,
        replicas=1,
        engine=EngineConfig(
            max_num_seqs=64,
            max_num_batched_tokens=2048,
            kv_connector="kv_transfer" in causes,
        ),
        workload=Workload(rate_per_s=6.0),
        faults=tuple(
            SimulatedFault(
                cause=each,
                start_s=float(BEGAN_S),
                severity=severity if each == causes[0] else 1.0,
            )
            for each in causes
        ),
    )
    return run(replace(world_of(config), faults=config.faults))


def recorded(
    data: Dataset,
    from_s: int,
    to_s: int,
    requests: pa.Table | None = None,
    in_parts: bool = True,
) -> Recorded:
    start_ns = data.config.started_unix_ns
    low_ns, high_ns = start_ns + (from_s - LEAD_S) * 10**9, start_ns + to_s * 10**9

    def within(table: pa.Table, column: str) -> pa.Table:
        at = table[column].to_numpy()
        return table.filter(pa.array((at >= low_ns) & (at < high_ns)))

    return recorded_of(
        within(data.request_table() if requests is None else requests, "received_unix_ns"),
        within(data.sample_table(), "at_unix_ns"),
        [start for start in data.starts if start.at_unix_ns < high_ns],
        Window(start_ns + from_s * 10**9, high_ns),
        in_parts=in_parts,
    )


@cache
def ranges(*causes: str, severity: float = 1.0) -> tuple[Recorded, Recorded]:
    data = simulated(*causes, severity=severity)
    return recorded(data, BEGAN_S, ENDED_S), recorded(data, LEAD_S, BEGAN_S)


def proposed(cause: str, share: float = 1.0, **where: str) -> Cause:
    return Cause(id=cause, share=share, evidence=(), levers=(), where=where)


def decided(
    injected: Sequence[str], causes: Sequence[Cause], metric: Metric, where: str | None = None
) -> CauseShares:
    equals = {} if where is None else {"tenant": where}
    return decide(*ranges(*injected), causes, Tails(metric, SHARE, equals))


def test_ranges_without_a_common_engine_are_not_compared() -> None:
    window, baseline = ranges("longer_outputs")
    renamed = [replace(each, replica=f"old-{each.replica}") for each in baseline.engines]
    with pytest.raises(UndecidedError, match="no engine served requests in both"):
        decide(
            window,
            replace(baseline, engines=renamed),
            [proposed("longer_outputs")],
            Tails(Metric.E2E, SHARE, {}),
        )


@cache
def redeployed() -> Dataset:
    """Return a replica that restarts with fewer slots in the middle of the window."""
    deploy = SimulatedFault(cause="config_change", start_s=BEGAN_S + 61.0, severity=2.0)
    return run(
        FleetConfig(
            duration_s=float(ENDED_S),
            seed=5,
            replicas=1,
            engine=EngineConfig(max_num_seqs=64),
            workload=Workload(rate_per_s=6.0),
            faults=(deploy,),
        )
    )


def unchanged_tail_s(window: Recorded) -> float:
    same = RangeTraffic(window, traffic_of(window))
    mixed = MixedWindow(same, same, (), np.random.default_rng(0))
    return tail_mean_s(mixed.replay_of((), "queue_s", "0")().latency_s, SHARE)


def test_a_deploy_in_the_window_divides_it_into_parts_with_their_own_arguments() -> None:
    data = redeployed()
    before, after = data.starts
    whole, window = (recorded(data, BEGAN_S, ENDED_S, in_parts=each) for each in (False, True))
    assert [each.start for each in whole.engines] == [after]
    assert [each.start for each in window.engines] == [before, after]
    rows = np.concatenate([each.rows for each in window.engines])
    assert rows.tolist() == [*range(window.requests.num_rows)]
    first, second = (each.arrivals.received_s for each in window.engines)
    assert first.max() < window.engines[1].from_s <= second.min()
    tails = Tails(Metric.QUEUE, SHARE, {})
    measured_s = tails.measured_s(window)
    assert unchanged_tail_s(window) == pytest.approx(measured_s, rel=0.1)
    assert unchanged_tail_s(whole) > 1.3 * measured_s
    baseline = recorded(data, LEAD_S, BEGAN_S)
    found = decide(window, baseline, [proposed("config_change")], tails)
    assert found.shares[0].value > 0.9


def test_requests_at_the_rate_of_the_baseline_run_in_the_part_of_their_time() -> None:
    data = redeployed()
    window, baseline = recorded(data, BEGAN_S, ENDED_S), recorded(data, LEAD_S, BEGAN_S)
    now, usual = (RangeTraffic(each, traffic_of(each)) for each in (window, baseline))
    rate = Factor(FactorKind.RATE)
    mixed = MixedWindow(now, usual, [rate], np.random.default_rng(0))._mixed([0])
    new = mixed.at_s >= 0
    starts_s = window.engines[1].from_s - window.lead_s
    assert (mixed.engine[new] == (mixed.at_s[new] >= starts_s)).all()
    assert {*mixed.engine[new].tolist()} == {0, 1}


def test_the_effects_of_levers_apply_to_the_latest_arguments() -> None:
    window = recorded(redeployed(), BEGAN_S, ENDED_S)
    latest = with_latest_arguments(window)
    (engine,) = latest.engines
    assert engine.start == redeployed().starts[-1]
    assert latest.window.from_unix_ns == pytest.approx(engine.start.at_unix_ns, abs=10)
    assert set(np.flatnonzero(latest.counted).tolist()) == set(engine.rows.tolist())
    before = recorded(redeployed(), LEAD_S, BEGAN_S)
    assert with_latest_arguments(before).window == before.window


def test_every_cause_that_a_replay_removes_is_known() -> None:
    assert set(KIND_OF_CAUSE) <= set(DETECTORS)


def test_a_cause_with_a_tenant_is_removed_for_this_tenant_only() -> None:
    assert factors_of(
        [
            proposed("tenant_flood", tenant="acme"),
            proposed("engine_stall", replica="sim-0"),
            proposed("config_change", config="1a2b"),
            proposed("cold_start"),
        ]
    ) == [
        Factor(FactorKind.RATE, tenant="acme"),
        Factor(FactorKind.STALLS),
        Factor(FactorKind.CONFIG),
        None,
    ]


def test_preemption_by_lost_blocks_alone_has_the_factor_of_the_exhausted_cache() -> None:
    preemption, exhausted = proposed("preemption"), proposed("kv_cache_exhausted")
    assert factors_of([preemption]) == [Factor(FactorKind.OUTGROWN_BLOCKS)]
    assert factors_of([preemption, exhausted]) == [Factor(FactorKind.BLOCKS)] * 2


@pytest.mark.parametrize(
    ("cause", "metric"),
    [
        ("longer_outputs", Metric.E2E),
        ("gpu_throttling", Metric.TPOT),
        ("engine_stall", Metric.ITL_MAX),
        ("frontend_cpu", Metric.TTFT),
        ("network_or_client", Metric.E2E),
        ("kv_transfer", Metric.QUEUE),
        ("grammar_compile", Metric.QUEUE),
        ("lora_swap", Metric.QUEUE),
    ],
)
def test_a_single_cause_gets_the_whole_growth(cause: str, metric: Metric) -> None:
    found = decided([cause], [proposed(cause)], metric)
    (share,) = found.shares
    assert share.low <= 1.0 <= share.high + 0.02
    assert share.value > 0.8
    assert share.value + found.unexplained.value == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("metric", [Metric.TTFT, Metric.E2E])
def test_the_replay_selects_the_requests_that_the_accounting_selects(metric: Metric) -> None:
    """Some responses are not streamed, so their first token arrives at their end. Others are
    incomplete, so their E2E is not defined."""
    data = simulated("longer_outputs", "frontend_cpu")
    table = data.request_table()
    every_tenth = np.arange(table.num_rows) % 10
    first_s = np.where(every_tenth == 0, table["e2e_s"].to_numpy(), table["ttft_s"].to_numpy())
    changed = {
        "streamed": pa.array(every_tenth != 0),
        "outcome": pa.array(np.where(every_tenth == 1, "abort", "stop")),
        "ttft_s": pa.array(first_s, from_pandas=True),
    }
    for name, column in changed.items():
        table = table.set_column(table.column_names.index(name), name, column)
    start_ns = data.config.started_unix_ns
    window, baseline = (
        Span(start_ns + from_s * 10**9, start_ns + to_s * 10**9)
        for from_s, to_s in ((BEGAN_S, ENDED_S), (LEAD_S, BEGAN_S))
    )
    accounted = explain(
        requests_of(table),
        servers_of(data.sample_table(), data.gpu_table(), data.starts),
        Question(metric, window, baseline),
    )
    replayed = decide(
        recorded(data, BEGAN_S, ENDED_S, table),
        recorded(data, LEAD_S, BEGAN_S, table),
        [proposed("longer_outputs"), proposed("frontend_cpu")],
        Tails(metric, accounted.tail_share or SHARE, {}),
    ).replay
    assert replayed.now_s == pytest.approx(accounted.now_s)
    assert replayed.replayed_now_s == pytest.approx(accounted.now_s, rel=0.15)


def test_the_window_and_the_baseline_are_reproduced_in_counted_steps() -> None:
    window, baseline = ranges("longer_outputs")
    steps: list[None] = []
    tails = Tails(Metric.E2E, SHARE, {})
    causes = [proposed("longer_outputs")]
    replay = decide(window, baseline, causes, tails, lambda: steps.append(None)).replay
    assert len(steps) == replays(1)
    assert replay.requests == window.counted.sum()
    assert replay.replayed_now_s == pytest.approx(replay.now_s, rel=0.05)
    assert replay.replayed_baseline_s == pytest.approx(replay.baseline_s, rel=0.05)
    assert replay.now_s > 1.5 * replay.baseline_s


def test_a_cause_that_was_not_injected_gets_nothing() -> None:
    """The mean output becomes longer, so the detectors propose both causes."""
    tenant = simulated().config.workload.tenants[-1].name
    causes = [
        proposed("longer_outputs", 0.6),
        proposed("decode_batch_growth", 0.4, tenant=tenant),
    ]
    outputs, batch = decided(["decode_batch_growth"], causes, Metric.TPOT).shares
    assert outputs.value < 0.1
    assert batch.value > 0.9


def test_two_causes_share_the_growth() -> None:
    causes = [proposed("gpu_throttling", 0.5), proposed("longer_outputs", 0.5)]
    found = decided(["gpu_throttling", "longer_outputs"], causes, Metric.E2E)
    pace, outputs = found.shares
    assert pace.value + outputs.value + found.unexplained.value == pytest.approx(1.0, abs=0.02)
    assert min(pace.value, outputs.value) > 0.2


def test_a_slow_replica_also_slows_the_replica_that_gets_its_requests() -> None:
    """The router sends most requests to the other replica. If the slow replica is reset, it gets
    its usual share again."""
    data = run(
        FleetConfig(
            duration_s=float(ENDED_S),
            seed=5,
            replicas=2,
            engine=EngineConfig(max_num_seqs=64, max_num_batched_tokens=2048),
            workload=Workload(rate_per_s=18.0),
            faults=(SimulatedFault(cause="noisy_neighbour", start_s=float(BEGAN_S), severity=1.5),),
        )
    )
    (share,) = decide(
        recorded(data, BEGAN_S, ENDED_S),
        recorded(data, LEAD_S, BEGAN_S),
        [proposed("noisy_neighbour", replica="sim-0")],
        Tails(Metric.TTFT, SHARE, {}),
    ).shares
    assert share.value > 0.9


def test_on_a_slower_server_requests_occupy_their_adapters_slots_longer() -> None:
    """A replay that repeats the recorded waits for adapters would give the throttling no share."""
    causes = [proposed("lora_swap", 0.9), proposed("gpu_throttling", 0.1)]
    swap, throttling = decided(["lora_swap", "gpu_throttling"], causes, Metric.QUEUE).shares
    assert swap.value + throttling.value > 0.9
    assert throttling.value > 0.2


@pytest.mark.parametrize("added", ["tenant_flood", "long_prompt_blocking"])
def test_a_flood_and_long_prompts_of_the_same_tenant_are_distinguished(added: str) -> None:
    tenant = simulated().config.workload.tenants[0].name
    causes = [
        proposed("tenant_flood", 0.5, tenant=tenant),
        proposed("long_prompt_blocking", 0.5, tenant=tenant),
    ]
    shares = decided([added], causes, Metric.TTFT).shares
    of = {cause.id: share.value for cause, share in zip(causes, shares, strict=True)}
    assert of.pop(added) > 0.8
    assert max(of.values()) < 0.2


def test_longer_outputs_are_not_added_outputs() -> None:
    causes = [proposed("longer_outputs", 0.5), proposed("decode_batch_growth", 0.5)]
    outputs, batch = decided(["longer_outputs"], causes, Metric.E2E).shares
    assert outputs.value > 0.9
    assert batch.value < 0.1


@pytest.mark.parametrize("other", ["load_exceeds_capacity", "tenant_flood"])
def test_prompts_that_became_longer_are_no_added_long_prompts(other: str) -> None:
    causes = [proposed("longer_prompts"), proposed(other), proposed("prefill_interference")]
    if other == "tenant_flood":
        causes[1:] = [proposed(each.id, tenant="acme") for each in causes[1:]]
    longer, more, added = decided(["longer_prompts", other], causes, Metric.QUEUE).shares
    assert added.value < 0.1
    assert longer.value > 0.15
    assert more.value > 0.15


def test_transfers_of_longer_prompts_take_longer() -> None:
    causes = [proposed("kv_transfer"), proposed("longer_prompts")]
    _, longer = decided(["kv_transfer", "longer_prompts"], causes, Metric.QUEUE).shares
    assert longer.value > 0.15


def test_waits_for_transfers_and_for_grammars_are_removed_separately() -> None:
    window, baseline = (
        RangeTraffic(each, traffic_of(each)) for each in ranges("kv_transfer", "grammar_compile")
    )
    factors = [Factor(FactorKind.TRANSFERS), Factor(FactorKind.GRAMMAR)]
    mixed = MixedWindow(window, baseline, factors, np.random.default_rng(0))
    now, without_transfers, without_both = (mixed._mixed(each) for each in ([], [0], [0, 1]))
    assert without_transfers.grammar_s.sum() == pytest.approx(now.grammar_s.sum())
    assert without_transfers.transfer_s.sum() < 0.8 * now.transfer_s.sum()
    usual = baseline.recorded.column("queue_held_s")[baseline.recorded.counted].mean()
    counted = without_both.at_s >= 0
    assert without_both.held_s[counted].mean() == pytest.approx(usual, rel=0.2)


def test_the_additional_tokens_of_longer_prompts_are_not_cached_without_a_miss() -> None:
    window, baseline = (
        RangeTraffic(each, traffic_of(each))
        for each in ranges("longer_prompts", "prefix_cache_miss")
    )
    factors = [Factor(FactorKind.PROMPTS), Factor(FactorKind.CACHE_HITS)]
    mixed = MixedWindow(window, baseline, factors, np.random.default_rng(0))
    without_misses = mixed._mixed([1])
    usual = baseline.recorded.column("cached_tokens")[baseline.recorded.counted].mean()
    counted = without_misses.at_s >= 0
    assert without_misses.cached_tokens[counted].mean() == pytest.approx(usual, rel=0.1)


def test_lost_kv_blocks_are_found() -> None:
    found = decided(["kv_cache_exhausted"], [proposed("kv_cache_exhausted")], Metric.TTFT)
    assert found.shares[0].value > 0.9
    assert found.replay.replayed_now_s == pytest.approx(found.replay.now_s, rel=0.15)
    with pytest.raises(UndecidedError, match="no blocks are lost"):
        decided(["longer_outputs"], [proposed("kv_cache_exhausted")], Metric.E2E)


def test_lost_kv_blocks_are_found_beside_a_larger_cause() -> None:
    """The slowest requests wait for grammars, nearly as long without lost blocks as with them."""
    causes = [proposed("grammar_compile", 0.9), proposed("kv_cache_exhausted", 0.1)]
    window, baseline = ranges("grammar_compile", "kv_cache_exhausted", severity=4.0)
    found = decide(window, baseline, causes, Tails(Metric.QUEUE, SHARE, {}))
    assert found.shares[1].value > 0.05


def test_a_full_cache_without_lost_blocks_has_no_share_beside_another_cause() -> None:
    causes = [proposed("longer_outputs", 0.6), proposed("kv_cache_exhausted", 0.4)]
    outputs, blocks = decided(["longer_outputs"], causes, Metric.E2E).shares
    assert outputs.value > 0.9
    assert (blocks.value, blocks.low, blocks.high) == (0.0, 0.0, 0.0)


def test_the_wait_in_a_slow_front_end_depends_on_the_load() -> None:
    """Each cause alone would have no effect. The recorded waits result from both causes
    together."""
    injected = ["load_exceeds_capacity", "frontend_cpu"]
    causes = [proposed("frontend_cpu", 0.9), proposed("load_exceeds_capacity", 0.1)]
    front_end, load = decided(injected, causes, Metric.TTFT).shares
    assert front_end.value + load.value > 0.9
    assert load.value > 0.2


def test_more_ordinary_requests_of_a_tenant_also_fill_the_steps() -> None:
    """No long prompts were added, so the cause's factor covers all requests that were added."""
    tenant = simulated().config.workload.tenants[0].name
    causes = [proposed("prefill_interference", tenant=tenant)]
    (share,) = decided(["tenant_flood"], causes, Metric.TPOT).shares
    assert share.value > 0.7


def test_only_causes_with_other_factors_are_tested_in_addition() -> None:
    tested = [proposed("longer_outputs"), proposed("gpu_throttling")]
    others = [
        proposed("noisy_neighbour"),  # the same factor as gpu_throttling
        proposed("cold_start"),  # a replay cannot remove this cause
        proposed("engine_stall"),
        proposed("frontend_cpu"),
        proposed("longer_prompts"),  # the fifth factor
    ]
    assert [each.id for each in untested(tested, others)] == ["engine_stall", "frontend_cpu"]


def test_a_cause_that_another_cause_contains_is_not_tested_in_addition() -> None:
    """Longer outputs are a part of the factor of `preemption`."""
    others = [proposed("longer_outputs"), proposed("kv_cache_exhausted"), proposed("engine_stall")]
    assert [each.id for each in untested([proposed("preemption")], others)] == ["engine_stall"]


def test_a_stall_that_no_slow_request_saw_is_found_beside_preemption() -> None:
    data = simulated("preemption", "engine_stall")
    start_ns = data.config.started_unix_ns
    window, baseline = (
        Span(start_ns + from_s * 10**9, start_ns + to_s * 10**9)
        for from_s, to_s in ((BEGAN_S, ENDED_S), (LEAD_S, BEGAN_S))
    )
    accounted = explain(
        requests_of(data.request_table()),
        servers_of(data.sample_table(), data.gpu_table(), data.starts),
        Question(Metric.QUEUE, window, baseline),
    )
    assert [cause.id for cause in accounted.causes] == ["preemption"]
    others = [*accounted.others, proposed("frontend_cpu", 0.0)]
    found, _ = with_shares_of(
        replace(accounted, others=others), lambda _: ranges("preemption", "engine_stall")
    )
    assert [cause.id for cause in found.causes] == ["preemption", "engine_stall"]
    assert found.causes[1].share < 0.2


def test_the_flood_is_the_cause_of_a_victims_wait() -> None:
    first, victim = (simulated().config.workload.tenants[place].name for place in (0, 1))
    found = decided(
        ["tenant_flood"], [proposed("tenant_flood", tenant=first)], Metric.TTFT, where=victim
    )
    assert found.shares[0].value > 0.9


def test_one_factor_is_divided_among_its_causes() -> None:
    """If a replay removes two causes together, their shares have the same ratio as in the
    accounting."""
    causes = [proposed("gpu_throttling", 0.6), proposed("noisy_neighbour", 0.2)]
    first, second = decided(["gpu_throttling"], causes, Metric.TPOT).shares
    assert first.value == pytest.approx(3 * second.value, rel=0.01)
    assert first.low == second.low == 0.0


def test_with_a_cause_that_no_replay_removes_shares_are_undecided() -> None:
    with pytest.raises(UndecidedError, match="cannot remove the cause cold_start"):
        decided(["longer_outputs"], [proposed("cold_start")], Metric.E2E)


def test_a_window_that_is_not_reproduced_is_not_decided() -> None:
    """The measured latencies are five times those of the replay's model."""
    window, baseline = ranges("longer_outputs")
    place = window.requests.column_names.index("e2e_s")
    slower = pa.chunked_array([np.asarray(window.column("e2e_s")) * 5])
    unlike = replace(window, requests=window.requests.set_column(place, "e2e_s", slower))
    tails = Tails(Metric.E2E, SHARE, {})
    with pytest.raises(UndecidedError, match="the error of the replayed growth is -"):
        decide(unlike, baseline, [proposed("longer_outputs")], tails)
    with pytest.raises(UndecidedError, match="did not become slower"):
        decide(baseline, window, [proposed("longer_outputs")], tails)


def test_an_engine_that_cannot_be_replayed_does_not_prevent_shares() -> None:
    data = simulated("longer_outputs")
    requests = data.request_table()
    names = requests["replica"].to_pylist()
    names[::40] = ["evil-0"] * len(names[::40])
    place = requests.column_names.index("replica")
    requests = requests.set_column(place, "replica", pa.array(names))
    window, baseline = (
        recorded(data, *each, requests) for each in ((BEGAN_S, ENDED_S), (LEAD_S, BEGAN_S))
    )
    causes = [proposed("longer_outputs")]
    found = decide(window, baseline, causes, Tails(Metric.E2E, SHARE, {}))
    assert found.shares[0].value > 0.5
    with pytest.raises(UndecidedError, match="no request of the replayed part"):
        decide(window, baseline, causes, Tails(Metric.E2E, SHARE, {"replica": "evil-0"}))


def test_a_reset_rate_has_the_baselines_times_and_the_windows_lengths() -> None:
    window, baseline = ranges("tenant_flood")
    tenant = simulated().config.workload.tenants[0].name
    mixed = MixedWindow(
        RangeTraffic(window, traffic_of(window)),
        RangeTraffic(baseline, traffic_of(baseline)),
        [Factor(FactorKind.RATE, tenant=tenant)],
        np.random.default_rng(1),
    )
    flooded = mixed.replay_of([], "ttft_s", "1")()
    usual = mixed.replay_of([0], "ttft_s", "1")()
    counted = int(window.counted.sum())
    assert len(flooded.latency_s) == counted
    assert len(usual.latency_s) < 0.7 * counted
    assert tail_mean_s(usual.latency_s, SHARE) < 0.5 * tail_mean_s(flooded.latency_s, SHARE)


def test_requests_at_the_usual_rate_are_not_mostly_the_requests_of_bursts() -> None:
    """The requests of a flood's bursts are cached, and the tenant's other requests are not. At the
    usual rate there is no flood, so most requests are not cached."""

    def cached_share(of: tuple[Recorded, Recorded], to_reset: Sequence[int]) -> float:
        window, baseline = (RangeTraffic(each, traffic_of(each)) for each in of)
        factors = [Factor(FactorKind.RATE, tenant=tenant)]
        mixed = MixedWindow(window, baseline, factors, np.random.default_rng(1))._mixed(to_reset)
        mine = mixed.take((mixed.tenant == tenant) & (mixed.at_s >= 0))
        return float((mine.cached_tokens > 0).mean())

    tenant = simulated().config.workload.tenants[0].name
    both = ranges("tenant_flood", "prefix_cache_miss")
    flooded, usual = cached_share(both, []), cached_share(both, [0])
    without_flood = cached_share(ranges("prefix_cache_miss"), [])
    assert without_flood < usual < (without_flood + flooded) / 2


def test_a_resampled_replay_without_growth_does_not_widen_the_interval() -> None:
    """One of twelve resampled baselines is as slow as the window. The part's ratio to the growth
    then has no meaning."""
    growths_s = [0.8, -1e-6, *[0.7, 0.9] * 5]
    found = _share(1.0, [growth_s + 0.01 for growth_s in growths_s], growths_s, 15.0, 0.0)
    assert found.low > 0.9
    assert found.high == 1.0


def test_a_share_that_depends_on_the_sample_has_a_wide_interval() -> None:
    found = _share(0.5, [0.1, 0.9] * 6, [1.0] * 12, 15.0, 0.0)
    assert (found.low, found.high) == (0.0, 1.0)


def test_short_blocks_widen_the_interval() -> None:
    """A queue at the end of a block does not continue in the next one."""
    short, long = (
        _share(0.5, [0.45, 0.55] * 6, [1.0] * 12, length_s, 0.0) for length_s in (5.0, 30.0)
    )
    assert short.low < long.low < 0.5 < long.high < short.high


def test_only_the_baseline_is_resampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resampled window may contain none of a few long stalls. But the question is about the
    recorded window, so its stalls stay."""
    window, baseline = ranges("engine_stall")
    drawn = []

    def resample(recorded: Recorded, chance: np.random.Generator) -> ReplayTraffic:
        drawn.append(recorded)
        return resampled(recorded, chance)

    monkeypatch.setattr(shares, "resampled", resample)
    decide(window, baseline, [proposed("engine_stall")], Tails(Metric.ITL_MAX, SHARE, {}))
    assert len(drawn) == shares.RESAMPLED
    assert all(each is baseline for each in drawn)


def test_two_causes_that_only_together_slow_requests_have_narrow_intervals() -> None:
    """Errors of the step times hardly change the latency with one of the causes, because requests
    then wait as briefly as in the baseline. So each share is one half, almost without an error."""
    usual_s, both_s, alone_s = 0.01, 50.0, 0.05
    chance = np.random.default_rng(0)
    redrawn = [
        TailMeans(
            {
                frozenset(): both_s,
                frozenset([0]): alone_s * (1.0 + 0.5 * chance.normal()),
                frozenset([1]): alone_s * (1.0 + 0.5 * chance.normal()),
                frozenset([0, 1]): usual_s,
            },
            usual_s,
            2,
        )
        for _ in range(12)
    ]
    parts_s, growths_s = [each.share_s(0) for each in redrawn], [each.growth_s for each in redrawn]
    found = _share(0.5, parts_s, growths_s, 15.0, 0.0)
    assert found.high - found.low < 0.16


def test_the_mean_of_no_latency_is_zero() -> None:
    assert tail_mean_s(np.array([np.nan]), SHARE) == 0.0
    assert tail_mean_s(np.array([1.0, 3.0]), 0.5) == 3.0


def test_a_longer_baseline_is_cut_to_its_end_and_a_shorter_one_is_repeated() -> None:
    window, baseline = ranges("tenant_flood")
    requests = MixedWindow(
        RangeTraffic(window, traffic_of(window)),
        RangeTraffic(baseline, traffic_of(baseline)),
        [],
        np.random.default_rng(1),
    )._baseline_requests
    end = _repeated(requests, 120.0, 30.0)
    expected = requests.at_s[requests.at_s >= 90.0] - 90.0
    assert end.at_s.tolist() == pytest.approx(expected.tolist())
    twice = _repeated(requests, 120.0, 180.0)
    assert len(twice.at_s) == len(requests.at_s) + (requests.at_s < 60.0).sum()
    assert (np.diff(twice.at_s) >= 0).all()


def test_rejected_drafts_are_a_cause_beside_added_requests_with_long_outputs() -> None:
    """Both factors apply to the same requests, because the added requests are those above a
    length."""
    window, baseline = (
        RangeTraffic(each, traffic_of(each))
        for each in ranges("spec_decode_rejection", "decode_batch_growth")
    )
    factors = [Factor(FactorKind.ACCEPTANCE), Factor(FactorKind.LONG_OUTPUTS)]
    mixed = MixedWindow(window, baseline, factors, np.random.default_rng(0))
    now, without = (mixed._mixed(each) for each in ([], [0]))
    long = (now.group == 1) & (now.at_s >= 0)
    usual = baseline.traffic.arrivals[0].acceptance
    assert long.any()
    assert usual is not None
    assert without.acceptance[long].mean() == pytest.approx(usual.mean(), rel=0.1)
    assert now.acceptance[long].mean() < 0.8 * usual.mean()
