from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from store.requests.lookup import find_requests
from store.requests.neighbours import AROUND_NS, neighbours, place_of
from telemetry.probes import PROBE_TENANT
from telemetry.requests import Basis, RequestTimeline, Source

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


@pytest.mark.parametrize(
    ("number", "together"),
    [(1, [1, 2, 5]), (2, [1, 2, 5]), (3, [3]), (4, [4])],
    ids=["prober", "instrumentation", "native", "client"],
)
def test_every_stored_row_is_among_its_neighbours(
    engine: Engine,
    write: Callable[..., None],
    request_row: Row,
    number: int,
    together: list[int],
) -> None:
    at = {"received_unix_ns": START_NS, "e2e_s": 2.0}
    here = {"replica": "r1", "engine": 0, **at}
    native = {"source": Source.NATIVE, "basis": Basis.ENGINE}
    client = {"source": Source.CLIENT, "basis": Basis.CLIENT}
    rows = {
        1: request_row(1, request_id="probe", tenant=PROBE_TENANT, **here),
        2: request_row(2, request_id="same", **here),
        3: request_row(3, request_id="same", **native, **here),
        4: request_row(4, request_id="same", **client, **at),
        5: request_row(5, request_id="other", **here),
    }
    write(*rows.values())
    mine = rows[number]
    (row,) = find_requests(engine, f"{mine.trace_id}/{mine.span_id}").to_pylist()
    found = neighbours(engine, row, ["e2e_s"])
    assert sorted(found["trace_id"].to_pylist()) == [rows[each].trace_id for each in together]
    assert found["trace_id"][place_of(found, row)].as_py() == mine.trace_id
