from itertools import islice

import pytest

from simulator.faults import INJECTIONS, Fault
from simulator.workload import Workload

WORKLOAD = Workload(rate_per_s=10.0)


@pytest.mark.parametrize("cause", [c for c, i in INJECTIONS.items() if i.arrivals])
def test_added_requests_come_in_order_while_the_fault_lasts(cause: str) -> None:
    """And the same ones for the same seed."""
    fault = Fault(cause=cause, start_s=100.0, end_s=200.0)
    inject = INJECTIONS[cause].arrivals
    assert inject is not None
    requests = list(inject(fault, WORKLOAD, "seed"))
    instants = [request.at_s for request in requests]
    assert instants == sorted(instants)
    assert requests
    assert all(100.0 <= at < 200.0 for at in instants)
    assert requests == list(inject(fault, WORKLOAD, "seed"))


def test_a_harder_fault_sends_more() -> None:
    """Severity is what the operator turns."""
    inject = INJECTIONS["prefill_interference"].arrivals
    assert inject is not None
    counts = [
        len(
            list(
                inject(
                    Fault(
                        cause="prefill_interference", start_s=0.0, end_s=500.0, severity=severity
                    ),
                    WORKLOAD,
                    "seed",
                )
            )
        )
        for severity in (0.25, 1.0, 4.0)
    ]
    assert counts == sorted(set(counts))


def test_stalls_have_no_end_where_the_fault_has_none() -> None:
    """An incident under way stays under way."""
    inject = INJECTIONS["engine_stall"].stalls
    assert inject is not None
    stalls = list(islice(inject(Fault(cause="engine_stall", start_s=10.0), "seed"), 100))
    assert [stall.at_s for stall in stalls] == sorted(stall.at_s for stall in stalls)
    assert all(stall.at_s > 10.0 and stall.for_s > 0 for stall in stalls)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"cause": "gremlins"}, "cause: 'gremlins'; allowed: engine_stall, prefill"),
        ({"severity": 0.0}, "severity: 0.0; allowed: more than 0"),
        ({"severity": float("nan")}, "severity: nan; allowed: more than 0"),
        ({"start_s": -1.0}, "start_s: -1.0, end_s: inf; allowed: from 0"),
        ({"end_s": 0.0}, "allowed: from 0, start before end"),
    ],
)
def test_a_fault_that_is_none_is_refused(given: dict[str, object], told: str) -> None:
    """The error names the key, the value and the values allowed."""
    with pytest.raises(ValueError, match=told):
        Fault(**{"cause": "tenant_flood", "start_s": 0.0, **given})  # type: ignore[arg-type]
