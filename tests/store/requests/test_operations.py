from dataclasses import replace

import pytest
from sqlalchemy import Engine

from store.requests.operations import MAX_IN_SQL, operations_of
from store.retention import delete_older
from store.simulation_removal import delete_simulation
from telemetry.application_operations import MAX_PER_TRACE, ApplicationOperation, Operation
from telemetry.window import Window
from tests.store.conftest import put

AT_NS = 1_763_634_000_000_000_000
WINDOW = Window(AT_NS, AT_NS + 10**9)
ROW = ApplicationOperation(
    trace_id="a" * 32,
    span_id="b" * 16,
    at_unix_ns=AT_NS,
    operation=Operation.RETRIEVAL,
    length_s=0.25,
    process="c" * 16,
)


def test_operations_are_stored_once_and_found_by_trace(engine: Engine) -> None:
    other = replace(ROW, trace_id="d" * 32, clock_ahead_s=1.5)
    put(engine, ROW, other)
    put(engine, ROW)
    assert operations_of(engine, WINDOW, {ROW.trace_id}) == {ROW.trace_id: [ROW]}
    assert operations_of(engine, WINDOW, {other.trace_id})[other.trace_id] == [other]
    assert operations_of(engine, WINDOW, set()) == {}
    far = Window(AT_NS + 10**13, AT_NS + 10**13 + 1)
    assert operations_of(engine, far, {ROW.trace_id}) == {}


def test_a_trace_that_is_too_long_is_read_only_up_to_the_limit(engine: Engine) -> None:
    put(engine, *(replace(ROW, span_id=f"{number:016x}") for number in range(1_000)))
    assert len(operations_of(engine, WINDOW, {ROW.trace_id})[ROW.trace_id]) == MAX_PER_TRACE


def test_simulated_and_old_operations_are_deleted(engine: Engine) -> None:
    put(engine, ROW, replace(ROW, span_id="e" * 16, simulated=True))
    assert delete_simulation(engine) == 1
    assert operations_of(engine, WINDOW, {ROW.trace_id}) == {ROW.trace_id: [ROW]}
    if engine.dialect.name.startswith("clickhouse"):
        pytest.skip("ClickHouse deletes old rows by its own clock")
    late = replace(ROW, at_unix_ns=AT_NS + 10**9)
    put(engine, late)
    delete_older(engine, 10**9, AT_NS + 3 * 10**9 // 2 + 5 * 10**8)
    assert operations_of(engine, WINDOW, {ROW.trace_id}) == {ROW.trace_id: [late]}


def test_the_operations_of_many_traces_are_those_of_each(engine: Engine) -> None:
    rows = [replace(ROW, trace_id=f"{number:032x}") for number in range(MAX_IN_SQL + 1)]
    put(engine, *rows, ROW)
    found = operations_of(engine, WINDOW, {row.trace_id for row in rows})
    assert found == {row.trace_id: [row] for row in rows}
