import pytest

from diagnosis.inputs.requests import Requests
from diagnosis.question import Metric
from tests.diagnosis.making import (
    asked,
    evidence,
    first_cause,
    later,
    quiet,
    shares,
    slower_where,
    working,
)


def four_times() -> Requests:
    return working(quiet(), prompts=4.0)


def test_four_times_the_prompt_tokens_are_longer_prompts() -> None:
    first = first_cause(asked(four_times()), "longer_prompts", 0.9)
    for which in ("median", "99th percentile"):
        before, now = evidence(first, f"prompt tokens, {which}")
        assert now == pytest.approx(4 * (before or 0), rel=0.15)
    assert any("their own objective and servers" in lever.action for lever in first.levers)


def test_longer_prompts_that_delay_each_other_are_the_cause() -> None:
    found = shares(asked(later(four_times(), prefill_others_prefill_s=0.8)))
    assert found["longer_prompts"] > 0.9


def test_a_slower_machine_is_no_longer_prompt() -> None:
    assert "longer_prompts" not in shares(asked(slower_where(("r0", "r1"), 4.0)))


def test_longer_prompts_are_not_to_blame_for_longer_answers() -> None:
    found = shares(asked(working(quiet(), prompts=1.5, outputs=4.0), Metric.E2E))
    assert next(iter(found)) == "longer_outputs"
    assert found.get("longer_prompts", 0.0) < 0.1
