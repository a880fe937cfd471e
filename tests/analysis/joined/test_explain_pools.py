"""`explain_joined` finds the pool and the cause of a simulated fault."""

from typing import Any

import pytest
from sqlalchemy import Engine

from analysis.joined.explain import explain_joined, growth
from diagnosis.question import Metric, Question, Span
from simulator.dataset import run
from simulator.faults import SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from store.joined.joining import joined_requests
from store.writer import Writer
from tests.store.joined.rows import ROLES, decode, prefill

BEGAN_S = 1_790_000_000
HALF_S = 50


@pytest.mark.parametrize(
    ("cause", "pool"), [("kv_transfer", "decode"), ("load_exceeds_capacity", "prefill")]
)
def test_the_pool_with_the_fault_is_the_first_one(engine: Engine, cause: str, pool: str) -> None:
    found = run(
        FleetConfig(
            replicas=2,
            prefill_replicas=1,
            workload=Workload(rate_per_s=10.0),
            faults=(SimulatedFault(cause=cause, start_s=HALF_S, end_s=2 * HALF_S),),
            duration_s=2 * HALF_S,
            started_unix_ns=BEGAN_S * 10**9,
        )
    )
    with Writer(engine) as writer:
        writer.submit(
            found.requests,
            found.samples,
            gpus=found.gpus,
            starts=found.starts,
            operations=found.operations,
        ).result(60)
    middle_ns = (BEGAN_S + HALF_S) * 10**9
    window = Span(middle_ns, middle_ns + HALF_S * 10**9)
    before = Span(BEGAN_S * 10**9, middle_ns)
    answer = explain_joined(engine, Question(Metric.TTFT, window, before, {}))
    assert answer is not None
    assert answer.growth is not None
    phases = answer.growth.phases
    assert sum(each.now_s for each in phases) == pytest.approx(answer.growth.now_s)
    first, other = answer.pools
    assert first.role.value == pool
    assert first.explanation.causes[0].id == cause
    assert (first.excess_s or 0.0) > 5 * abs(other.excess_s or 0.0)
    metrics = {each.role.value: each.explanation.question.metric for each in answer.pools}
    assert metrics == {"prefill": Metric.E2E, "decode": Metric.TTFT}


@pytest.mark.parametrize(
    ("metric", "other"),
    [(Metric.TTFT, {"streamed": False}), (Metric.E2E, {"outcome": "abort"})],
)
def test_requests_without_the_latency_are_not_among_the_slowest(
    metric: Metric, other: dict[str, Any]
) -> None:
    """A response that was not streamed has its first byte at its end."""
    without = {"decode_s": 9.35, "e2e_s": 9.4, "ttft_s": 9.4, **other}
    rows = [
        row
        for number in range(40)
        for row in (
            prefill(2 * number, trace_id=f"{number + 1:032x}", request_id=f"cmpl-{number}-0"),
            decode(
                2 * number + 1,
                trace_id=f"{number + 1:032x}",
                request_id=f"cmpl-{number}-0",
                **(without if number % 4 == 0 else {}),
            ),
        )
    ]
    found = joined_requests(rows, ROLES)
    grown = growth(found, found, metric)
    assert grown is not None
    expected_s = {Metric.TTFT: 0.155, Metric.E2E: 0.520}
    assert grown.now_s == pytest.approx(expected_s[metric])
