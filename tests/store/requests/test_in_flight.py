from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from store.alerting.slo_marks import read_marks
from store.errors import RowRefused
from store.requests.in_flight import in_flight_tables, oldest_seen_unix_ns
from store.retention import delete_older
from store.simulation_removal import delete_simulation
from store.writer import Writer
from telemetry.in_flight import InFlightRequest
from telemetry.requests import RequestTimeline, Source
from tests.store.conftest import put

S = 10**9
START_S = 1_790_000_010

Row = Callable[..., RequestTimeline]


def report(number: int = 1, seen_s: int = 20, **about: Any) -> InFlightRequest:
    """A request that was received at the start, reported `seen_s` later."""
    plain: dict[str, Any] = {
        "span_id": f"{number:016x}",
        "trace_id": f"{number:032x}",
        "received_unix_ns": START_S * S,
        "seen_unix_ns": (START_S + seen_s) * S,
        "source": Source.INSTRUMENTATION,
    }
    return InFlightRequest(**{**plain, **about})


def row_of(request_row: Row, number: int = 1, e2e_s: float = 40.0) -> RequestTimeline:
    plain = request_row(number, received_unix_ns=START_S * S, e2e_s=e2e_s)
    return replace(plain, span_id=f"{number:016x}", trace_id=f"{number:032x}")


def seen(engine: Engine) -> list[int]:
    """When each request in flight was last reported, in seconds after the start."""
    tables = in_flight_tables(engine, ["seen_unix_ns"], 0, 2**62)
    found = [each for table in tables for each in table["seen_unix_ns"].to_pylist()]
    return sorted((each - START_S * S) // S for each in found)


def marked(engine: Engine) -> set[int]:
    """The marked steps, in seconds after the start."""
    return {each.until_unix_s - START_S for each in read_marks(engine, 100)}


def test_a_newer_report_replaces_an_older_one_and_marks_both_steps(engine: Engine) -> None:
    for seen_s in (20, 40, 30):
        put(engine, report(seen_s=seen_s))
    assert seen(engine) == [40]
    assert marked(engine) == {30, 45}
    assert oldest_seen_unix_ns(engine) == (START_S + 40) * S


@pytest.mark.parametrize("order", ["report first", "row first", "together"])
def test_a_row_ends_it_in_any_order(engine: Engine, request_row: Row, order: str) -> None:
    row, other = row_of(request_row), report(2)
    if order == "together":
        put(engine, row, report(), other)
    elif order == "report first":
        put(engine, report(), other)
        before = len(read_marks(engine, 100))
        put(engine, row)
        # of the row, and of the report that it replaces
        assert len(read_marks(engine, 100)) == before + 2
    else:
        put(engine, row)
        put(engine, report(), other)
    assert seen(engine) == [20]
    assert marked(engine) == {30, 45}


def test_a_row_ends_a_report_of_another_instant(engine: Engine, request_row: Row) -> None:
    put(engine, report(received_unix_ns=START_S * S - 7, seen_unix_ns=(START_S + 20) * S - 7))
    put(engine, row_of(request_row))
    assert seen(engine) == []


def test_many_reports_and_rows_in_one_transaction(
    engine: Engine, request_row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.requests.in_flight.ROWS", 30)
    put(engine, *(report(number) for number in range(1, 1301)))
    put(engine, *(row_of(request_row, number) for number in range(1, 1201)))
    assert len(seen(engine)) == 100


def test_an_unstorable_report_is_refused_without_the_others(engine: Engine) -> None:
    with Writer(engine) as writer:
        writer.submit([], [], in_flight=[report()]).result(10)
        with pytest.raises(RowRefused, match="ttft_s = nan: not a finite number"):
            writer.submit([], [], in_flight=[report(2, ttft_s=float("nan"))]).result(10)
    assert seen(engine) == [20]


def test_simulated_reports_are_deleted_with_the_simulation(engine: Engine) -> None:
    put(engine, report(), report(2, seen_s=30, source=Source.SIMULATOR))
    assert delete_simulation(engine) == 1
    assert seen(engine) == [20]


def test_reports_of_a_server_that_ended_are_kept_as_long_as_rows(sqlite: Engine) -> None:
    put(sqlite, report(), report(2, seen_s=600))
    delete_older(sqlite, 100 * S, (START_S + 650) * S, pause=lambda: None)
    assert seen(sqlite) == [600]
