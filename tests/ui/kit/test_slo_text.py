import pytest

from alerts.expression import parse
from alerts.fields import GOOD, WHERE
from ui.kit.slo_text import criterion, where


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("ttft_s <= 0.5 and tpot_s <= 0.05", "first token ≤ 500 ms, then ≤ 50 ms per token"),
        ("tpot_s < 0.05", "< 50 ms per token"),
        ("e2e_s <= 30 and queue_s <= 1", "whole answer ≤ 30 s, queue ≤ 1 s"),
        ("ttft_s <= 1 or e2e_s <= 2", "ttft_s <= 1 or e2e_s <= 2"),
        ('outcome == "stop"', 'outcome == "stop"'),
    ],
)
def test_limits_on_latencies_are_written_as_text(written: str, expected: str) -> None:
    assert criterion(parse(written, GOOD)) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("streamed == true", "streamed true"),
        ('model == "m" and tenant == "acme"', "model m and tenant acme"),
        ("prompt_tokens > 5", "prompt_tokens > 5"),
    ],
)
def test_which_requests_are_meant(written: str, expected: str) -> None:
    assert where(parse(written, WHERE)) == expected
