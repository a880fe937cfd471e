import pytest

from rig.faults.catalogue import FAULTS, faults_of
from rig.faults.evaluation import NO_INCIDENT
from rig.faults.fault import undisturbed

METRICS = {"ttft", "tpot", "itl_max", "e2e", "queue"}


@pytest.mark.parametrize("cause", FAULTS)
def test_a_fault_changes_something_and_has_enough_requests_for_a_tail(cause: str) -> None:
    (fault,) = faults_of([cause], 0, 1.0)
    assert fault.cause == cause
    assert fault.metric in METRICS
    changed = (
        fault.during != fault.usual
        or fault.disturb is not undisturbed
        or fault.arguments_after is not None
    )
    assert changed is (cause != NO_INCIDENT)
    assert len(fault.usual.arrivals("0/before", 50.0)) >= 250
    assert len(fault.during.arrivals("0/under", 50.0)) >= 250


def test_the_same_seed_draws_the_same_faults() -> None:
    for cause in FAULTS:
        first, second = faults_of([cause], 3, 0.5), faults_of([cause], 3, 0.5)
        assert [fault.notes for fault in first] == [fault.notes for fault in second]
        assert [fault.during for fault in first] == [fault.during for fault in second]
