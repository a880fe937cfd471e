import pytest

from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric
from tests.diagnosis.making import (
    asked,
    evidence,
    first_cause,
    flags,
    fleet,
    later,
    quiet,
    shares,
    working,
)


@pytest.mark.parametrize("metric", [Metric.TPOT, Metric.ITL_MAX, Metric.E2E])
def test_evicted_and_recomputed_requests_are_preempted(metric: Metric) -> None:
    servers = fleet(
        {"preemptions_total": 0.5, "kv_usage_ratio": 1.0},
        {"preemptions_total": 0.0, "kv_usage_ratio": 0.7},
        scheduler__max_num_seqs=64,
    )
    evicted = later(quiet(), decode_preempted_s=20.0)
    first = first_cause(asked(evicted, metric, servers), "preemption", 0.8)
    assert evidence(first, "preemptions/s") == pytest.approx((0.0, 0.5))
    assert evidence(first, "KV cache in use") == pytest.approx((0.7, 1.0))
    assert flags(first)["--max-num-seqs"].endswith("(64 → 32)")


@pytest.mark.parametrize("part", ["decode_stall_s", "decode_others_decode_s"])
def test_a_gap_without_an_eviction_is_no_preemption(part: str) -> None:
    found = shares(asked(later(quiet(), **{part: 20.0}), Metric.E2E))
    assert found
    assert "preemption" not in found


def test_waits_for_slots_of_evicted_requests_are_attributed_to_preemption() -> None:
    evicted = later(quiet(), decode_preempted_s=20.0, queue_seats_s=2.0)
    found = shares(asked(evicted))
    assert next(iter(found)) == "preemption"
    assert "load_exceeds_capacity" not in found


def waiting_for_blocks(outputs: float) -> tuple[Requests, Servers]:
    """Return requests that queue for KV blocks after half of the blocks were lost."""
    servers = fleet(
        {"preemptions_total": 1.0, "kv_usage_ratio": 1.0, "running": 20},
        {"preemptions_total": 0.0, "kv_usage_ratio": 0.2, "running": 20},
    )
    return later(working(quiet(), outputs=outputs), queue_kv_s=5.0), servers


def test_outputs_that_outgrow_fewer_blocks_are_preempted() -> None:
    requests, servers = waiting_for_blocks(outputs=2.0)
    found = asked(requests, Metric.QUEUE, servers)
    first = first_cause(found, "preemption", 0.9)
    before, now = evidence(first, "output tokens, median")
    assert now == pytest.approx(2 * (before or 0.0), rel=0.1)
    assert "kv_cache_exhausted" not in shares(found)


def test_usual_outputs_do_not_outgrow_fewer_blocks() -> None:
    requests, servers = waiting_for_blocks(outputs=1.0)
    found = shares(asked(requests, Metric.QUEUE, servers))
    assert next(iter(found)) == "kv_cache_exhausted"
    assert "preemption" not in found
