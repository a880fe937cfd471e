from dataclasses import dataclass

from prometheus_client.registry import CollectorRegistry

from exporters.self_metrics.clocks import ClockMetrics


@dataclass
class Sender:
    name: str
    lead_s: float
    ahead_s: float
    rows: int


@dataclass
class Own:
    ahead_ns: int = 0
    deletable_unix_ns: int = 1_790_000_000 * 10**9

    def __call__(self) -> int:
        return 1_790_000_000 * 10**9


def test_each_sender_has_its_lead_and_its_correction() -> None:
    """A measured clock that is correct is reported as 0 s ahead."""
    senders = [Sender("a", 42.5, 42.0, 7), Sender("b", -0.5, 0.0, 0)]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ClockMetrics(lambda: senders, Own(), lambda: 3))
    read = registry.get_sample_value
    assert read("tailspan_clock_lead_seconds", {"source": "a"}) == 42.5
    assert read("tailspan_clock_lead_seconds", {"source": "b"}) == -0.5
    assert read("tailspan_clock_ahead_seconds", {"source": "b"}) == 0
    assert read("tailspan_clock_corrected_rows_total", {"source": "a"}) == 7
    assert read("tailspan_clock_untracked_messages_total") == 3


def test_metrics_report_our_clocks_jump_and_the_lag_of_deletion() -> None:
    own = Own(ahead_ns=8 * 86_400 * 10**9, deletable_unix_ns=(1_790_000_000 - 60) * 10**9)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ClockMetrics(list, own))
    read = registry.get_sample_value
    assert read("tailspan_clock_jump_seconds") == 8 * 86_400
    assert read("tailspan_retention_behind_seconds") == 60
    assert read("tailspan_clock_lead_seconds", {"source": "a"}) is None
