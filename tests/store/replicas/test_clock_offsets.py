from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from store.replicas.clock_offsets import _bounds_s, offsets
from store.requests.client_reports import ClientReport, Reports
from telemetry.requests import Basis, Outcome, RequestTimeline, Source
from telemetry.window import Window

SECOND_NS = 10**9
START_NS = 1_763_634_000 * SECOND_NS
EVER = Window(0, 2**63 - 1)
Requests = Callable[..., RequestTimeline]


@pytest.fixture
def store_both(write: Callable[..., None], request_row: Requests) -> Callable[..., None]:
    """Stores a request's client row and server row. At the client it takes 2 s; it reaches the
    server after 0.3 s, and takes 1.5 s there."""

    def store(number: int, ahead_s: float, **about: Any) -> None:
        start_ns = START_NS + number * SECOND_NS
        client = {"source": Source.CLIENT, "basis": Basis.CLIENT, "span_id": "c" * 16}
        server_ns = start_ns + int((0.3 + ahead_s) * 1e9)
        write(
            request_row(number, received_unix_ns=start_ns, e2e_s=2.0, **client),
            request_row(number, received_unix_ns=server_ns, **{"replica": "a", **about}),
        )

    return store


@pytest.mark.parametrize("ahead_s", [-600.0, -2.0, 0.0, 3.0])
def test_a_clock_has_two_bounds(
    engine: Engine, store_both: Callable[..., None], ahead_s: float
) -> None:
    for number in range(3):
        store_both(number, ahead_s)
    (found,) = offsets(engine, EVER)
    assert (found.replica, found.requests) == ("a", 3)
    assert found.low_s == pytest.approx(ahead_s - 0.2)
    assert found.high_s == pytest.approx(ahead_s + 0.3)


def test_too_few_requests_have_no_offset(engine: Engine, store_both: Callable[..., None]) -> None:
    for number in range(2):
        store_both(number, 5.0)
    store_both(3, 5.0, outcome=Outcome.ABORT)
    store_both(4, 5.0, clock_ahead_s=5.0)
    store_both(5, 5.0, replica=None)
    store_both(6, 5.0, e2e_s=2.5)
    assert offsets(engine, EVER) == []


def test_one_outlier_does_not_count(engine: Engine, store_both: Callable[..., None]) -> None:
    for number, ahead_s in enumerate((0.0, 3000.0, 0.0)):
        store_both(number, ahead_s)
    (found,) = offsets(engine, EVER)
    assert found.low_s == pytest.approx(-0.2)
    assert found.high_s == pytest.approx(0.3)


@given(
    ahead_s=st.floats(-1e6, 1e6),
    there_s=st.floats(0, 10),
    served_s=st.floats(0, 100),
    back_s=st.floats(0, 10),
)
def test_the_truth_lies_between_the_bounds(
    ahead_s: float, there_s: float, served_s: float, back_s: float
) -> None:
    report = ClientReport(None, None, there_s + served_s + back_s, START_NS, None)
    row = {
        "trace_id": "t",
        "request_id": None,
        "basis": "http",
        "replica": "a",
        "outcome": "stop",
        "received_unix_ns": START_NS + int((there_s + ahead_s) * 1e9),
        "e2e_s": served_s,
        "clock_ahead_s": None,
    }
    found = _bounds_s(Reports([("t", report)]), row)
    if found is None:
        return  # because of rounding, the server's time is longer
    low_s, high_s = found
    assert low_s - 1e-6 <= ahead_s <= high_s + 1e-6
