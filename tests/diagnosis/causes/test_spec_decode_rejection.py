import pytest

from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric
from tests.diagnosis.making import (
    REPLICAS,
    asked,
    evidence,
    first_cause,
    flags,
    fleet,
    later,
    quiet,
    shares,
    slower_where,
)

DRAFTED, ACCEPTED = "draft_tokens_total", "accepted_tokens_total"


def accepting(now: float) -> Servers:
    """Return samples with 1,000 drafted tokens per second.

    In the baseline, 800 of them are accepted. In the window, the number is `now`.
    """
    return fleet(
        {ACCEPTED: now}, {DRAFTED: 1e3, ACCEPTED: 800.0}, speculative__num_speculative_tokens=4
    )


def test_fewer_accepted_drafts_make_tokens_slower() -> None:
    slower = later(quiet(), decode_own_s=lambda old: old * 2)
    first = first_cause(asked(slower, Metric.TPOT, accepting(300.0)), "spec_decode_rejection", 0.9)
    assert evidence(first, "share of drafted tokens") == pytest.approx((0.8, 0.3))
    assert evidence(first, "slowdown of a token") == pytest.approx((1.0, 2.0), rel=0.02)
    assert evidence(first, "slowdown of a prompt") == pytest.approx((1.0, 1.0), rel=0.02)
    assert flags(first)["--speculative-config num_speculative_tokens"].endswith("(4 → 2)")


def test_as_many_accepted_drafts_make_no_token_slower() -> None:
    slower = later(quiet(), decode_own_s=lambda old: old * 2)
    assert "spec_decode_rejection" not in shares(asked(slower, Metric.TPOT, accepting(800.0)))


def test_a_slower_machine_does_not_reject_drafts() -> None:
    slower = slower_where(REPLICAS, 2.0)
    assert "spec_decode_rejection" not in shares(asked(slower, Metric.TPOT, accepting(300.0)))
