import threading
from collections import Counter
from dataclasses import asdict, replace

import pytest

from collector.normalise.spans import normalise_spans
from simulator import live
from simulator.dataset import Dataset, run
from simulator.faults import CAUSES, SimulatedFault
from simulator.fleet_config import DISAGGREGATED_FAULTS, FleetConfig
from simulator.workload import Workload
from store.joined.joining import Outside, joined_requests
from store.joined.roles import stated_roles
from telemetry.application_operations import ApplicationOperation
from telemetry.joined_request import EngineRole, JoinedBasis, JoinedRequest
from tests.simulator.conftest import TinyCollector

START_S = 1_790_000_000
FLEET = FleetConfig(
    replicas=3,
    prefill_replicas=1,
    workload=Workload(rate_per_s=10.0, abort_share=0.05, malformed_share=0.02),
    duration_s=40.0,
    started_unix_ns=START_S * 10**9,
)


def joined(dataset: Dataset) -> list[JoinedRequest]:
    routed = {each.trace_id: each for each in dataset.operations}
    columns = [*dataset.request_table().to_pylist()]

    def outside(chain):  # type: ignore[no-untyped-def]
        found = routed[chain.links[-1].row["trace_id"]]
        return [Outside(found.at_unix_ns, found.length_s, found.ttft_s, JoinedBasis.ROUTER)]

    return joined_requests(columns, stated_roles(dataset.starts), outside)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return run(FLEET)


def test_each_request_has_a_prefill_and_a_decode_and_its_phases_sum(dataset: Dataset) -> None:
    found = joined(dataset)
    assert (
        len(found) == len(dataset.operations) == len({each.trace_id for each in dataset.requests})
    )
    hops = Counter(tuple(hop.role for hop in each.hops) for each in found)
    assert hops[EngineRole.PREFILL, EngineRole.DECODE] > 0.9 * len(found)
    refused = [each for each in found if len(each.hops) == 1]
    assert {each.last["outcome"] for each in refused} == {"rejected"}, "malformed requests"
    for each in found:
        assert sum(filter(None, each.phases.values())) == pytest.approx(each.e2e_s, abs=1e-6)
        assert all(hop.clock_shift_s == 0.0 for hop in each.hops)
        assert each.basis is JoinedBasis.ROUTER
    served = [each for each in found if len(each.hops) == 2]
    assert min(each.phases["kv_transfer_s"] or 0.0 for each in served) > 0.002
    assert {each.outcome for each in served} == {"stop", "length", "abort"}
    assert all(each.hops[0].row["output_tokens"] == 1 for each in served)


def test_the_servers_report_their_roles(dataset: Dataset) -> None:
    assert stated_roles(dataset.starts) == {
        **{("sim-prefill-0", number): EngineRole.PREFILL for number in (0, None)},
        **{
            (f"sim-decode-{at}", number): EngineRole.DECODE for at in (0, 1) for number in (0, None)
        },
    }


def test_the_same_seed_makes_the_same_case() -> None:
    one, again = (run(replace(FLEET, duration_s=10.0)) for _ in range(2))
    assert (again.requests, again.operations) == (one.requests, one.operations)


def test_the_routers_reports_arrive_as_in_the_dataset(
    dataset: Dataset, collector: TinyCollector
) -> None:
    plan = live.SimulationPlan(endpoint=collector.url, fleet=FLEET, backfill_s=40.0, duration_s=0.0)
    now_ns = (START_S + 40) * 10**9
    sent = live.run(
        plan, threading.Event(), lambda _: None, clock_ns=lambda: now_ns, wait=lambda _: None
    )
    assert sent.all_delivered
    assert sent.requests == len(dataset.requests)
    batches = [normalise_spans(each.SerializeToString(), now_ns) for each in collector.traces]
    assert [each.refused for each in batches if each.refused] == []

    def known(found: list[ApplicationOperation]) -> list[str]:
        return sorted(str({**asdict(each), "process": ""}) for each in found)

    received = [each for batch in batches for each in batch.operations]
    assert known(received) == known(dataset.operations)


SHORT = replace(FLEET, workload=Workload(rate_per_s=10.0))


@pytest.fixture(scope="module")
def usual() -> list[JoinedRequest]:
    return joined(run(SHORT))


@pytest.mark.parametrize("cause", DISAGGREGATED_FAULTS)
def test_a_fault_makes_the_phases_of_its_pool_longer(
    usual: list[JoinedRequest], cause: str
) -> None:
    fault = SimulatedFault(cause=cause, start_s=0.0, end_s=40.0)

    def mean_s(found: list[JoinedRequest], *phases: str) -> float:
        served = [each for each in found if len(each.hops) == 2]
        return sum(each.phases[phase] or 0.0 for each in served for phase in phases) / len(served)

    faulty = joined(run(replace(SHORT, faults=(fault,))))
    grown = {
        "prefill": mean_s(faulty, "prefill_queue_s", "prefill_s")
        - mean_s(usual, "prefill_queue_s", "prefill_s"),
        "decode": mean_s(faulty, "kv_transfer_s", "decode_queue_s")
        - mean_s(usual, "kv_transfer_s", "decode_queue_s"),
    }
    pool = "decode" if cause == "kv_transfer" else "prefill"
    other = "prefill" if pool == "decode" else "decode"
    assert grown[pool] > 0.03
    assert grown[pool] > 10 * abs(grown[other])


def test_a_fleet_needs_servers_of_both_kinds() -> None:
    for number in (-1, 3):
        with pytest.raises(ValueError, match=f"prefill_replicas: {number}; allowed: 0 to 2"):
            replace(FLEET, prefill_replicas=number)


def test_a_fault_of_servers_that_do_both_is_refused() -> None:
    for cause in {*CAUSES} - {*DISAGGREGATED_FAULTS}:
        refused = f"fault {cause} with 1 prefill replicas; allowed: kv_tr"
        with pytest.raises(ValueError, match=refused):
            replace(FLEET, faults=(SimulatedFault(cause=cause, start_s=1.0),))
