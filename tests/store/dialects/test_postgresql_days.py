import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine

from store.dialects.postgresql_days import DAY_NS
from store.queries import request_table
from store.retention import delete_older
from store.schema import REQUESTS
from store.writer import Writer
from telemetry.requests import RequestTimeline
from telemetry.store_errors import StoreUnavailable
from telemetry.window import Window

pytestmark = [pytest.mark.real, pytest.mark.parametrize("new_url", ["postgresql"], indirect=True)]

EVER = Window(-(2**63), 2**63 - 1)
TODAY = time.time_ns() // DAY_NS
Requests = Callable[..., RequestTimeline]


def store(engine: Engine, *rows: RequestTimeline) -> None:
    with Writer(engine) as writer:
        writer.submit(list(rows), []).result(30)


def at(day: int, number: int = 0) -> int:
    """An instant in the second half of a day."""
    return day * DAY_NS + DAY_NS // 2 + number


def partitions(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT inhrelid::regclass::text FROM pg_inherits"
            " WHERE inhparent = 'requests'::regclass ORDER BY 1"
        )
        return [name.removeprefix("requests_") for name in found.scalars()]


def keys(engine: Engine) -> list[Any]:
    return sorted(request_table(engine, EVER, columns=["request_id"])["request_id"].to_pylist())


def named(day: int) -> str:
    return time.strftime("%Y%m%d", time.gmtime(day * 86_400))


def test_a_day_gets_its_partition_with_its_first_row(engine: Engine, request_row: Requests) -> None:
    assert partitions(engine) == ["earlier"]
    rows = [request_row(i, received_unix_ns=at(TODAY - i)) for i in range(3)]
    store(engine, *rows, request_row(50, received_unix_ns=at(TODAY - 300)))
    store(engine, *rows)
    assert partitions(engine) == [*(named(TODAY - i) for i in (2, 1, 0)), "earlier"]
    assert len(keys(engine)) == 4


def test_a_repeated_row_is_stored_once_in_its_day(engine: Engine, request_row: Requests) -> None:
    rows = [request_row(i, received_unix_ns=at(TODAY, i)) for i in range(100)]
    store(engine, *rows[:60])
    store(engine, *rows[40:])
    assert len(keys(engine)) == 100


def test_several_collectors_may_add_the_same_day_at_once(
    engine: Engine, request_row: Requests
) -> None:
    def send(sender: int) -> None:
        rows = [
            request_row(100 * sender + i, received_unix_ns=at(TODAY - i % 5, i)) for i in range(100)
        ]
        for first in range(0, 100, 20):
            store(engine, *rows[first : first + 20])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(4)))
    assert len(keys(engine)) == 400
    assert len(partitions(engine)) == 6


def test_old_days_are_dropped_and_the_oldest_day_stays_whole(
    engine: Engine, request_row: Requests
) -> None:
    """A day is dropped when its last row is too old."""
    store(engine, *(request_row(i, received_unix_ns=at(TODAY - i)) for i in range(12)))
    paused: list[None] = []
    deleted = delete_older(
        engine, 7 * DAY_NS, at(TODAY, DAY_NS // 4), pause=lambda: paused.append(None)
    )
    assert deleted == 4
    assert not paused
    assert partitions(engine) == [*(named(TODAY - i) for i in range(7, -1, -1)), "earlier"]
    assert len(keys(engine)) == 8


def test_rows_before_all_days_are_deleted_singly_and_then_at_once(
    engine: Engine, request_row: Requests
) -> None:
    for old in (40, 32):
        store(engine, request_row(old, received_unix_ns=at(TODAY - old)))
    delete_older(engine, 35 * DAY_NS, at(TODAY), pause=lambda: None)
    assert keys(engine) == ["chatcmpl-32"]
    delete_older(engine, 7 * DAY_NS, at(TODAY), pause=lambda: None)
    assert keys(engine) == []
    assert partitions(engine) == ["earlier"]


def test_a_dropped_day_is_added_again(engine: Engine, request_row: Requests) -> None:
    """A row may arrive just before its day is dropped."""
    with Writer(engine) as writer:
        writer.submit([request_row(1, received_unix_ns=at(TODAY - 9))], []).result(30)
        delete_older(engine, 7 * DAY_NS, at(TODAY), pause=lambda: None)
        late = request_row(2, received_unix_ns=at(TODAY - 9))
        with pytest.raises(StoreUnavailable, match="a day is missing"):
            writer.submit([late], []).result(30)
        writer.submit([late], []).result(30)
    assert keys(engine) == ["chatcmpl-2"]


def test_a_day_in_use_is_dropped_later(engine: Engine, request_row: Requests) -> None:
    store(engine, request_row(1, received_unix_ns=at(TODAY - 9)))
    with engine.connect() as reader:
        reader.exec_driver_sql("SELECT count(*) FROM requests")
        delete_older(engine, 7 * DAY_NS, at(TODAY), pause=lambda: None)
        assert len(partitions(engine)) == 2
    delete_older(engine, 7 * DAY_NS, at(TODAY), pause=lambda: None)
    assert partitions(engine) == ["earlier"]


def test_a_query_reads_only_the_days_of_its_window(engine: Engine, request_row: Requests) -> None:
    store(engine, *(request_row(i, received_unix_ns=at(TODAY - i)) for i in range(5)))
    with engine.connect() as connection:
        plan = connection.exec_driver_sql(
            f"EXPLAIN SELECT count(*) FROM {REQUESTS.name}"
            f" WHERE received_unix_ns >= {at(TODAY - 1)} AND received_unix_ns < {at(TODAY)}"
        ).scalars()
        read = "\n".join(plan)
    assert named(TODAY) in read
    assert named(TODAY - 1) in read
    assert named(TODAY - 2) not in read
    assert "earlier" not in read
