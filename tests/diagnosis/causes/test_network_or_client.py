from diagnosis.question import Metric
from tests.diagnosis.making import asked, evidence, first_cause, later, quiet, shares


def test_an_unread_response_is_attributed_to_the_client() -> None:
    first = first_cause(
        asked(later(quiet(), delivery_s=30.0), Metric.E2E), "network_or_client", 0.9
    )
    before, now = evidence(first, "seconds from last token to last byte")
    assert now == 30.0
    assert (before or 0) < 0.1
    assert any("proxies" in lever.action for lever in first.levers)


def test_a_busy_front_end_is_no_slow_client() -> None:
    """If reading a request takes longer, too, the server is slow."""
    found = shares(asked(later(quiet(), frontend_s=40.0, delivery_s=30.0), Metric.E2E))
    assert list(found) == ["frontend_cpu"]


def test_the_clients_time_is_not_part_of_the_first_byte() -> None:
    late = later(quiet(), delivery_s=30.0)
    late.numbers["ttft_s"][:] += late.numbers["delivery_s"]
    assert "network_or_client" not in shares(asked(late, Metric.TTFT))


def test_slower_tokens_are_no_slow_client() -> None:
    assert "network_or_client" not in shares(asked(later(quiet(), decode_stall_s=30.0), Metric.E2E))
