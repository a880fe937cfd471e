"""Whose clocks are off is told by sender."""

from dataclasses import dataclass

from prometheus_client.registry import CollectorRegistry

from exporters.clocks import ClockMetrics


@dataclass
class Sender:
    """As a test says."""

    name: str
    lead_s: float
    ahead_s: float
    rows: int


def test_each_sender_has_its_lead_and_what_was_set_right() -> None:
    """0 is said where a clock is right: it was looked at."""
    senders = [Sender("a", 42.5, 42.0, 7), Sender("b", -0.5, 0.0, 0)]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ClockMetrics(lambda: senders))
    read = registry.get_sample_value
    assert read("tailspan_clock_lead_seconds", {"source": "a"}) == 42.5
    assert read("tailspan_clock_lead_seconds", {"source": "b"}) == -0.5
    assert read("tailspan_clock_ahead_seconds", {"source": "b"}) == 0
    assert read("tailspan_clock_corrected_rows_total", {"source": "a"}) == 7


def test_where_nobody_was_heard_nothing_is_said() -> None:
    """No data is not zero."""
    assert not list(ClockMetrics(list).families())
