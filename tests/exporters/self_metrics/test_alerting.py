from exporters.format.exposition import Exposition
from exporters.format.negotiation import Format
from exporters.self_metrics.alerting import AlertingMetrics


def metrics_of(evaluated_unix_s: float | None, pending: dict[str, float]) -> str:
    metrics = AlertingMetrics(lambda: evaluated_unix_s, lambda: pending)
    return Exposition([metrics]).write(Format.PLAIN).decode()


def test_the_last_evaluation_and_the_oldest_message_are_exported() -> None:
    text = metrics_of(1_790_000_000.0, {"team": 0.0, "on-call": 7.5})
    assert "tailspan_evaluation_timestamp_seconds 1790000000.0\n" in text
    assert 'tailspan_notification_oldest_pending_seconds{channel="team"} 0.0\n' in text
    assert 'tailspan_notification_oldest_pending_seconds{channel="on-call"} 7.5\n' in text


def test_a_collector_that_does_neither_has_no_series() -> None:
    text = metrics_of(None, {})
    assert "tailspan_evaluation" not in text
    assert "tailspan_notification" not in text
