from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, event

from store.requests.lookup import MAX_MATCHES, find_requests
from telemetry.labels import MAX_ID_CHARS
from telemetry.requests import RequestTimeline, Source
from tests.store.conftest import put

START_NS = 1_763_634_000_000_000_000
Row = Callable[..., RequestTimeline]
Write = Callable[..., None]


def spans(engine: Engine, words: str) -> list[str]:
    found: list[str] = find_requests(engine, words)["span_id"].to_pylist()
    return found


def test_a_request_is_found_by_any_of_its_names(
    engine: Engine, write: Write, request_row: Row
) -> None:
    trace = "ab" * 16
    write(
        request_row(1, trace_id=trace, request_id="chatcmpl-mine"),
        request_row(2, trace_id="cd" * 16, request_id="cmpl-other-0"),
    )
    wanted = [f"{1:016x}"]
    for words in (f"{trace}/{1:016x}", "chatcmpl-mine", "mine", trace, f" {trace.upper()}\n"):
        assert spans(engine, words) == wanted, words
    assert spans(engine, "other") == spans(engine, "cmpl-other") == [f"{2:016x}"]


def test_a_clients_id_may_look_like_a_short_trace_and_span(
    engine: Engine, write: Write, request_row: Row
) -> None:
    write(request_row(1, request_id="cafe/babe"))
    assert spans(engine, "cafe/babe") == [f"{1:016x}"]


def test_a_trace_names_all_its_requests_in_order(
    engine: Engine, write: Write, request_row: Row
) -> None:
    trace = "ef" * 16
    write(*(request_row(number, trace_id=trace) for number in range(MAX_MATCHES + 3)))
    found = find_requests(engine, trace)
    assert found.num_rows == MAX_MATCHES
    received = found["received_unix_ns"].to_pylist()
    assert received == sorted(received)


@pytest.mark.parametrize("ago_h", [0.5, 600])
def test_old_requests_are_found(
    engine: Engine, write: Write, request_row: Row, ago_h: float
) -> None:
    trace, hour_ns = "ab" * 16, 3600 * 10**9
    at_unix_ns = START_NS - int(ago_h * hour_ns)
    write(
        request_row(1, received_unix_ns=START_NS),
        request_row(2, trace_id=trace, received_unix_ns=at_unix_ns),
        request_row(3, trace_id=trace, received_unix_ns=at_unix_ns - hour_ns // 2),
    )
    assert spans(engine, trace) == [f"{3:016x}", f"{2:016x}"]
    assert spans(engine, f"{trace}/{3:016x}") == [f"{3:016x}"]


def test_a_trace_is_searched_only_in_the_index(sqlite: Engine, request_row: Row) -> None:
    """Reading a million rows takes seconds; reading a million keys, 0.1 s."""
    put(sqlite, request_row(1, trace_id="ab" * 16))
    asked: list[tuple[str, Any]] = []

    @event.listens_for(sqlite, "before_cursor_execute")
    def _note(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        asked.append((statement, values))

    for words in ("ab" * 16, f"{'ab' * 16}/{1:016x}"):
        assert find_requests(sqlite, words).num_rows == 1
    plans = []
    with sqlite.connect() as connection:
        for statement, values in [each for each in asked if "request_id" in each[0]]:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
            plans.append(" ".join(row[3] for row in plan))
    assert len(plans) == 4
    assert all("COVERING INDEX sqlite_autoindex_requests_1" in plan for plan in plans)
    assert not any("SCAN" in plan for plan in plans)


def test_the_row_of_the_better_source_is_found(
    engine: Engine, write: Write, request_row: Row
) -> None:
    trace = "ab" * 16
    write(
        request_row(1, trace_id=trace, request_id="cmpl-x-0"),
        request_row(2, trace_id=trace, request_id="cmpl-x", source=Source.CLIENT),
        request_row(3, trace_id=trace, request_id=None, source=Source.NATIVE),
    )
    assert spans(engine, trace) == [f"{1:016x}"]
    assert spans(engine, "cmpl-x") == [f"{1:016x}"]
    assert spans(engine, f"{trace}/{2:016x}") == [f"{2:016x}"]


def test_unknown_words_find_no_request(engine: Engine, write: Write, request_row: Row) -> None:
    write(request_row(1))
    for words in ("", "  ", "nobody", "%", "_", "x" * (MAX_ID_CHARS + 1), "'; --", "\0"):
        assert find_requests(engine, words).num_rows == 0, words
