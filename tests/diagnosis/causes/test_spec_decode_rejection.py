import pytest

from diagnosis.inputs.arrow import servers_of
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric
from tests.diagnosis.making import (
    REPLICAS,
    asked,
    evidence,
    flags,
    later,
    quiet,
    shares,
    slower_where,
    started,
    told_each_second,
)

DRAFTED, ACCEPTED = "draft_tokens_total", "accepted_tokens_total"


def accepting(now: float) -> Servers:
    """Of a thousand tokens drafted a second, eight hundred are accepted, and now so many."""
    engines = told_each_second(
        {each: {ACCEPTED: now} for each in REPLICAS}, {DRAFTED: 1e3, ACCEPTED: 800.0}
    )
    starts = [started(replica=each, speculative__num_speculative_tokens=4) for each in REPLICAS]
    return servers_of(engines, None, starts)


def test_fewer_accepted_drafts_make_tokens_slower() -> None:
    """Prefill keeps its pace; what is drafted can be halved."""
    slower = later(quiet(), decode_own_s=lambda old: old * 2)
    first = asked(slower, Metric.TPOT, accepting(300.0)).causes[0]
    assert first.id == "spec_decode_rejection"
    assert first.share > 0.9
    assert evidence(first, "drafted tokens accepted") == pytest.approx((0.8, 0.3))
    assert evidence(first, "times longer for a token") == pytest.approx((1.0, 2.0), rel=0.02)
    assert evidence(first, "times longer for a prompt") == pytest.approx((1.0, 1.0), rel=0.02)
    assert flags(first)["--speculative-config num_speculative_tokens"].endswith("(4 → 2)")


def test_as_many_accepted_drafts_make_no_token_slower() -> None:
    """Whatever it is, it is not drafts."""
    slower = later(quiet(), decode_own_s=lambda old: old * 2)
    assert "spec_decode_rejection" not in shares(asked(slower, Metric.TPOT, accepting(800.0)))


def test_a_slower_machine_does_not_reject_drafts() -> None:
    """Prefill is as much slower as the tokens, and drafts have no part in it."""
    slower = slower_where(REPLICAS, 2.0)
    assert "spec_decode_rejection" not in shares(asked(slower, Metric.TPOT, accepting(300.0)))
