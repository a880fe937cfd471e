import pytest
from tailspan_vllm.export.span_queue import QUEUE_FULL, SPAN_BYTES, Drops, SpanAllowance, SpanQueue
from tailspan_vllm.request.record import RequestRecord


def _build() -> RequestRecord:
    raise AssertionError


def test_requests_are_bounded_in_whatever_state() -> None:
    drops = Drops()
    backlog = SpanQueue(3, drops)
    backlog.add(b"span")
    backlog.records.append((0.0, None))  # type: ignore[arg-type]  # any record
    backlog.submit(_build)
    backlog.submit(_build)
    assert len(backlog) == 3
    assert drops.snapshot() == {QUEUE_FULL: 1}


def test_encoded_spans_are_bounded_in_bytes() -> None:
    drops = Drops()
    backlog = SpanQueue(100, drops, byte_limit=10)
    for _ in range(3):
        backlog.add(b"12345")
    assert len(backlog.spans) == 2
    backlog.taken([backlog.spans.popleft()])
    backlog.add(b"12345")
    backlog.add(b"x" * (SPAN_BYTES + 1))
    assert len(backlog.spans) == 2
    assert drops.snapshot() == {QUEUE_FULL: 1, "too_large": 1}


def test_an_allowance_is_a_rate_with_a_burst() -> None:
    now = 0.0
    allowance = SpanAllowance(2.0, 5, clock=lambda: now)
    assert sum(allowance.take() for _ in range(100)) == 5
    now = 1.0
    assert sum(allowance.take() for _ in range(100)) == 2
    now = 1000.0
    assert sum(allowance.take() for _ in range(100)) == 5


@pytest.mark.parametrize("count", [0, 1])
def test_the_reason_full_queue_is_reported_from_the_start(count: int) -> None:
    """Without the total, a reader could not distinguish 0 from "not measured"."""
    drops = Drops()
    drops.add(count, QUEUE_FULL)
    assert drops.snapshot() == {QUEUE_FULL: count}
