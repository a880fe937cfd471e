import pytest

from diagnosis.explanation import ExplanationVerdict
from diagnosis.question import Metric
from tests.diagnosis.making import asked, evidence, first_cause, later, quiet, shares, working


def test_four_times_the_output_tokens_are_longer_outputs() -> None:
    first = first_cause(asked(working(quiet(), outputs=4.0), Metric.E2E), "longer_outputs", 0.9)
    for which in ("median", "99th percentile"):
        before, now = evidence(first, f"output tokens, {which}")
        assert now == pytest.approx(4 * (before or 0), rel=0.15)
    assert any("max_tokens" in lever.action for lever in first.levers)


def test_longer_answers_are_no_slower_tokens() -> None:
    assert (
        asked(working(quiet(), outputs=4.0), Metric.TPOT).verdict is ExplanationVerdict.NO_INCIDENT
    )


def test_slower_tokens_are_no_longer_answers() -> None:
    slower = later(quiet(), decode_others_decode_s=lambda old: old * 12)
    found = shares(asked(slower, Metric.E2E))
    assert next(iter(found)) == "decode_batch_growth"
    assert "longer_outputs" not in found


def test_a_wait_for_a_batch_slot_is_due_to_longer_answers() -> None:
    queued = later(working(quiet(), outputs=4.0), queue_seats_s=1.0)
    assert shares(asked(queued))["longer_outputs"] > 0.9


def test_more_reasoning_delays_the_first_content() -> None:
    found = asked(working(quiet(), outputs=4.0), Metric.FIRST_CONTENT)
    first = first_cause(found, "longer_outputs", 0.9)
    before, now = evidence(first, "reasoning tokens")
    assert now == pytest.approx(4 * (before or 0), rel=0.15)
    assert any("reasoning_effort" in lever.action for lever in first.levers)
    grown = {part.part: part.excess_s for part in found.parts}
    assert sum(grown.values()) == pytest.approx(found.excess_s)
    reasoning = sum(each for name, each in grown.items() if name.startswith("reasoning_"))
    assert reasoning == pytest.approx(found.excess_s, rel=0.01)
    assert not any(name.startswith("decode_") for name in grown)


def test_more_content_after_the_reasoning_does_not_delay_it() -> None:
    requests = quiet()
    longer = later(
        requests,
        output_tokens=lambda old: old * 4,
        decode_own_s=lambda old: old * 4,
    )
    assert asked(longer, Metric.E2E).verdict is ExplanationVerdict.INCIDENT
    found = asked(longer, Metric.FIRST_CONTENT)
    assert found.verdict is ExplanationVerdict.NO_INCIDENT
