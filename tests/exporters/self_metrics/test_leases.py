from exporters.format.exposition import Exposition
from exporters.format.negotiation import Format
from exporters.self_metrics.leases import LeaseMetrics


def metrics_of(held: dict[str, bool]) -> str:
    return Exposition([LeaseMetrics(lambda: held)]).write(Format.PLAIN).decode()


def test_each_lease_is_1_or_0() -> None:
    text = metrics_of({"evaluation": True, "retention": False})
    assert 'tailspan_lease_held{lease="evaluation"} 1\n' in text
    assert 'tailspan_lease_held{lease="retention"} 0\n' in text


def test_without_leases_there_are_no_series() -> None:
    assert "tailspan_lease" not in metrics_of({})
