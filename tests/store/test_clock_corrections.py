"""Rows that are sent again, after which another collector corrects them differently."""

from collections.abc import Callable, Sequence

import pytest
from sqlalchemy import Engine, func, select

from store.clock_corrections import CORRECTIONS
from store.queries import request_table
from store.retention import delete_older
from store.schema import OPERATIONS
from store.writer import Writer
from telemetry.application_operations import ApplicationOperation, Operation
from telemetry.requests import RequestTimeline
from telemetry.window import Window
from tests.store.conftest import put

SECOND_NS = 10**9
SENT_NS = 1_763_634_000 * SECOND_NS
NUMBER = 20


def corrected(
    make: Callable[..., RequestTimeline], ahead_s: float | None, number: int = NUMBER
) -> list[RequestTimeline]:
    """Requests whose timestamps a collector corrected by `ahead_s`."""
    at_ns = SENT_NS - round((ahead_s or 0.0) * 1e9)
    return [
        make(each, received_unix_ns=at_ns + each, clock_ahead_s=ahead_s) for each in range(number)
    ]


def stored(engine: Engine) -> list[tuple[float, float | None]]:
    table = request_table(
        engine, Window(0, 2**62), columns=["received_unix_ns", "clock_ahead_s", "trace_id"]
    )
    return [
        ((row["received_unix_ns"] - SENT_NS) // SECOND_NS, row["clock_ahead_s"])
        for row in table.to_pylist()
    ]


@pytest.mark.parametrize(
    ("ahead_s", "at_s"),
    # the timestamps differ in the last nanoseconds
    [((5.25, 5.5, None, 4.75), -6), ((None, 5.5, 5.25), 0)],
)
def test_the_first_correction_of_a_row_is_kept(
    engine: Engine,
    write: Callable[..., None],
    request_row: Callable[..., RequestTimeline],
    ahead_s: Sequence[float | None],
    at_s: int,
) -> None:
    for each in ahead_s:
        write(*corrected(request_row, each))
    assert stored(engine) == [(at_s, ahead_s[0])] * NUMBER


def test_rows_that_arrive_at_two_collectors_at_once_are_stored_once(
    engine: Engine, request_row: Callable[..., RequestTimeline]
) -> None:
    if engine.dialect.name == "clickhousedb":
        return  # ClickHouse has no transactions
    with Writer(engine) as one, Writer(engine) as other:
        for first in range(5):
            rows = [
                [
                    request_row(each, received_unix_ns=SENT_NS - ahead_ns, clock_ahead_s=ahead_s)
                    for each in range(first * NUMBER, (first + 1) * NUMBER)
                ]
                for ahead_s in (5.25, 5.5)
                for ahead_ns in [round(ahead_s * 1e9)]
            ]
            sent = [
                writer.submit(mine, []) for writer, mine in zip((one, other), rows, strict=True)
            ]
            for each in sent:
                each.result(30)
    assert len(stored(engine)) == 5 * NUMBER


def test_the_operation_of_a_request_gets_the_same_correction(
    engine: Engine, request_row: Callable[..., RequestTimeline]
) -> None:
    for ahead_s in (5.25, 5.5):
        (request,) = corrected(request_row, ahead_s, 1)
        operation = ApplicationOperation(
            operation=Operation.CALL,
            trace_id=request.trace_id,
            span_id=request.span_id,
            at_unix_ns=request.received_unix_ns,
            length_s=1.0,
            process="application",
            clock_ahead_s=ahead_s,
        )
        put(engine, request, operation)
    with engine.connect() as connection:
        found = connection.execute(select(OPERATIONS.c.at_unix_ns, OPERATIONS.c.clock_ahead_s))
        assert found.all() == [(SENT_NS - 5_250_000_000, 5.25)]


def test_corrections_are_deleted_with_the_rows(
    engine: Engine, request_row: Callable[..., RequestTimeline]
) -> None:
    if engine.dialect.name == "clickhousedb":
        return  # ClickHouse deletes old rows itself
    put(engine, *corrected(request_row, 5.5))
    delete_older(engine, 60 * SECOND_NS, SENT_NS + 120 * SECOND_NS)
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(CORRECTIONS)) == 0
