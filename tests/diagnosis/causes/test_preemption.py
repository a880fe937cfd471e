import pytest

from diagnosis.question import Metric
from tests.diagnosis.making import asked, evidence, first_cause, flags, fleet, later, quiet, shares


@pytest.mark.parametrize("metric", [Metric.TPOT, Metric.ITL_MAX, Metric.E2E])
def test_what_is_evicted_and_computed_again_is_preempted(metric: Metric) -> None:
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


def test_places_that_the_evicted_keep_are_waited_for_by_preemption() -> None:
    evicted = later(quiet(), decode_preempted_s=20.0, queue_seats_s=2.0)
    found = shares(asked(evicted))
    assert next(iter(found)) == "preemption"
    assert "load_exceeds_capacity" not in found
