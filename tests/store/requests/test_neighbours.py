from collections.abc import Callable

from sqlalchemy import Engine

from store.requests.lookup import find_requests
from store.requests.neighbours import AROUND_NS, neighbours, place_of
from telemetry.requests import RequestTimeline

START_NS = 1_763_634_000_000_000_000
Row = Callable[..., RequestTimeline]


def test_neighbours_share_replica_engine_and_time(
    engine: Engine, write: Callable[..., None], request_row: Row
) -> None:
    here = {"replica": "r1", "engine": 0, "e2e_s": 2.0}
    rows = [
        request_row(10, **here),
        request_row(9, **here),
        request_row(11, **here),
        request_row(7, **here),
        request_row(13, **here),
        request_row(14, **{**here, "engine": 1, "received_unix_ns": START_NS + 10 * 10**9}),
        request_row(15, **{**here, "replica": "r2", "received_unix_ns": START_NS + 10 * 10**9}),
        request_row(1, **{**here, "e2e_s": 60.0}),
    ]
    write(*rows)
    (row,) = find_requests(engine, f"{rows[0].trace_id}/{rows[0].span_id}").to_pylist()
    found = neighbours(engine, row, ["e2e_s", "of_a_later_version"])
    seconds = [(at - START_NS) // 10**9 for at in found["received_unix_ns"].to_pylist()]
    assert seconds == [1, 9, 10, 11]
    assert found.column_names == ["received_unix_ns", "trace_id", "span_id", "e2e_s"]
    assert place_of(found, row) == 2
    assert AROUND_NS >= 60 * 10**9


def test_without_a_replica_it_has_no_neighbours(
    engine: Engine, write: Callable[..., None], request_row: Row
) -> None:
    rows = [request_row(1), request_row(1, trace_id="f" * 32)]
    write(*rows)
    (row,) = find_requests(engine, f"{rows[0].trace_id}/{rows[0].span_id}").to_pylist()
    assert row["replica"] is None
    assert neighbours(engine, row, ["e2e_s"])["trace_id"].to_pylist() == [rows[0].trace_id]
