import numpy as np
import pytest

from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric
from tests.diagnosis.making import (
    STEP_S,
    asked,
    busier,
    evidence,
    first_cause,
    flags,
    fleet,
    later,
    quiet,
    shares,
    working,
)


def together(requests: Requests) -> Requests:
    return later(requests, decode_others_decode_s=lambda old: old * 6)


def fuller() -> Servers:
    usual = {"running": 20, "kv_usage_ratio": 0.2}
    now = {"running": 60, "kv_usage_ratio": 0.6}
    return fleet(now, usual, scheduler__max_num_seqs=256)


def test_three_times_the_requests_make_each_token_slower() -> None:
    first = first_cause(
        asked(together(busier(quiet(), 3)), Metric.TPOT, fuller()), "decode_batch_growth", 0.9
    )
    assert evidence(first, "requests running") == (20, 60)
    assert evidence(first, "KV cache in use") == pytest.approx((0.2, 0.6))
    assert flags(first)["--max-num-seqs"] == "cap the batch (256 → 128)"


def test_prefills_that_stretch_the_steps_are_no_batch_growth() -> None:
    """Longer prompts cause these prefills."""
    stretched = later(working(quiet(), prompts=4.0), decode_others_prefill_s=lambda old: old * 12)
    found = shares(asked(stretched, Metric.TPOT, fuller()))
    assert "decode_batch_growth" not in found


def test_more_requests_whose_tokens_are_as_quick_are_no_batch_growth() -> None:
    assert not asked(busier(quiet(), 3), Metric.TPOT, fuller()).causes


def test_more_requests_also_add_their_prefills() -> None:
    requests = busier(quiet(), 3)
    gaps = requests.numbers["output_tokens"] - 1
    slower = later(
        requests,
        decode_others_decode_s=lambda old: old + 0.02 * gaps,
        decode_others_prefill_s=lambda old: old + 0.025 * gaps,
    )
    found = shares(asked(slower, Metric.TPOT, fuller()))
    assert found["decode_batch_growth"] > 0.9
    assert "prefill_interference" not in found


@pytest.mark.parametrize("metric", [Metric.QUEUE, Metric.E2E])
def test_added_requests_with_long_outputs_are_no_longer_outputs(metric: Metric) -> None:
    """One tenant sends twice as many requests, and half of them have long outputs."""
    requests = busier(quiet(), 2, tenant="acme")
    acme = requests.label("tenant").is_value("acme")
    long = acme & (np.random.default_rng(3).random(len(requests)) < 0.5)
    longer = later(
        requests,
        output_tokens=lambda old: np.where(long, 1_500.0, old),
        decode_own_s=lambda old: np.where(long, 1_499 * STEP_S, old),
        queue_seats_s=2.0,
    )
    first = first_cause(asked(longer, metric, fuller()), "decode_batch_growth", 0.5)
    assert first.where == {"tenant": "acme"}
