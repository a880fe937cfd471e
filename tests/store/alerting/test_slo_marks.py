from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, event

from store.alerting.slo_counts import (
    CountedRange,
    mark_counts_incomplete,
    read_counted_range,
    store_counts,
)
from store.alerting.slo_marks import marks_of, read_marks
from store.writer import Writer
from telemetry.request_rows import RequestRows
from telemetry.requests import RequestTimeline, Source
from telemetry.store_errors import StoreError
from tests.store.conftest import put

S = 10**9
START_S = 1_790_000_010

Row = Callable[..., RequestTimeline]


@pytest.fixture
def writer(engine: Engine) -> Iterator[Writer]:
    with Writer(engine) as writer:
        yield writer


def test_a_step_is_marked_once_for_each_source(request_row: Row) -> None:
    rows = [
        request_row(received_unix_ns=(START_S + 1) * S, e2e_s=13.9),
        request_row(received_unix_ns=(START_S + 4) * S, e2e_s=11.0),
        request_row(received_unix_ns=(START_S + 4) * S, e2e_s=11.1),
        request_row(received_unix_ns=START_S * S, e2e_s=1.0, source=Source.NATIVE),
    ]
    marks = marks_of([RequestRows.of(rows), RequestRows.of([])])
    assert {(each.until_unix_s, each.source, each.received_unix_ns) for each in marks} == {
        (START_S + 15, "instrumentation", (START_S + 1) * S),
        (START_S + 30, "instrumentation", (START_S + 4) * S),
        (START_S + 15, "native", START_S * S),
    }
    assert len({each.token for each in marks}) == 1
    assert marks_of([RequestRows.of(rows[:3])])[0][1:] == marks[0][1:]


def test_marks_commit_with_their_rows(engine: Engine, writer: Writer, request_row: Row) -> None:
    row = request_row(received_unix_ns=START_S * S, e2e_s=1.0)
    writer.submit([row], []).result(10)
    writer.submit([row], []).result(10)
    assert [each.until_unix_s for each in read_marks(engine, 10)] == [START_S + 15] * 2
    bad = request_row(received_unix_ns=START_S * S, e2e_s=float("inf"))
    with pytest.raises(StoreError):
        writer.submit([bad], []).result(10)
    assert len(read_marks(engine, 10)) == 2
    assert len(read_marks(engine, 1)) == 1


def test_marks_are_removed_with_their_steps(
    engine: Engine, writer: Writer, request_row: Row
) -> None:
    store_counts(engine, "a", [], CountedRange(0, START_S + 60))
    writer.submit([request_row(received_unix_ns=START_S * S, e2e_s=1.0)], []).result(10)
    marks = read_marks(engine, 10)
    writer.submit([request_row(received_unix_ns=(START_S + 1) * S, e2e_s=1.0)], []).result(10)
    mark_counts_incomplete(engine, START_S, marks)
    assert read_counted_range(engine, "a") == CountedRange(0, START_S)
    left = read_marks(engine, 10)
    assert len(left) == 1
    assert left[0].token != marks[0].token


def test_a_recount_that_fails_keeps_the_marks(sqlite: Engine, request_row: Row) -> None:
    store_counts(sqlite, "a", [], CountedRange(0, START_S + 60))
    put(sqlite, request_row(received_unix_ns=START_S * S, e2e_s=1.0))
    marks = read_marks(sqlite, 10)

    def fail(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("DELETE FROM slo_marks"):
            raise RuntimeError("the process is stopped here")

    event.listen(sqlite, "before_cursor_execute", fail)
    with pytest.raises(RuntimeError):
        mark_counts_incomplete(sqlite, START_S, marks)
    event.remove(sqlite, "before_cursor_execute", fail)
    assert read_counted_range(sqlite, "a") == CountedRange(0, START_S + 60)
    assert read_marks(sqlite, 10) == marks
