from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from rig.clickhouse import ClickHouses
from store.alerting.slo_counts import Counted, SloCount, keep_counts, read_counts
from store.database import open_database
from store.errors import StoreUnavailable
from store.queries import Window, gpu_table, request_table, sample_table
from store.retention import delete_older
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import RequestTimeline

S = 1_000_000_000
START_NS = 1_763_634_000 * S
EVER = Window(0, 2**63 - 1)

BY_SQL = pytest.mark.parametrize(
    "new_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.real)], indirect=True
)
"""ClickHouse deletes old rows itself."""

Requests = Callable[..., RequestTimeline]
Samples = Callable[..., EngineSample]
Gpus = Callable[..., GpuSample]
Write = Callable[..., None]


def pauses() -> tuple[list[None], Callable[[], None]]:
    taken: list[None] = []
    return taken, lambda: taken.append(None)


@BY_SQL
def test_only_rows_beyond_the_retention_are_deleted(
    engine: Engine, write: Write, request_row: Requests, sample_row: Samples, gpu_row: Gpus
) -> None:
    write(
        *(request_row(i) for i in range(10)),
        *(sample_row(i) for i in range(10)),
        *(gpu_row(i) for i in range(10)),
    )
    _, pause = pauses()
    assert delete_older(engine, 3 * S, START_NS + 9 * S, pause=pause) == 18
    left = request_table(engine, EVER)["received_unix_ns"].to_pylist()
    assert left == [START_NS + i * S for i in range(6, 10)]
    assert sample_table(engine, EVER).num_rows == 4
    assert gpu_table(engine, EVER).num_rows == 4


@BY_SQL
def test_deletion_pauses_in_batches(engine: Engine, write: Write, request_row: Requests) -> None:
    same = START_NS + S
    write(
        *(request_row(i) for i in range(10)),
        *(request_row(i, received_unix_ns=same) for i in range(10, 20)),
    )
    taken, pause = pauses()
    gone = delete_older(engine, S, START_NS + 3600 * S, batch_rows=4, pause=pause)
    assert gone == 20
    assert len(taken) == 3  # batches of 12, 4 and 4 rows; an instant is not divided


@BY_SQL
def test_without_old_rows_nothing_is_deleted(
    engine: Engine, write: Write, request_row: Requests
) -> None:
    taken, pause = pauses()
    assert delete_older(engine, S, START_NS, pause=pause) == 0
    write(request_row(1))
    assert delete_older(engine, S, START_NS, pause=pause) == 0
    assert taken == []


@BY_SQL
def test_counts_outlive_requests(engine: Engine, write: Write, request_row: Requests) -> None:
    """The period of an objective, a month, is longer than the retention of requests, a week."""
    write(request_row(1))
    keep_counts(engine, "a", [SloCount(60, 9, 1, 0, 0, 0)], Counted(0, 60))
    delete_older(engine, S, START_NS + 3600 * S, pause=pauses()[1])
    assert read_counts(engine, "a", 0, 60) == [SloCount(60, 9, 1, 0, 0, 0)]


def test_an_absent_database_is_reported(sqlite: Engine) -> None:
    with sqlite.begin() as connection:
        connection.exec_driver_sql("DROP TABLE requests")
    with pytest.raises(StoreUnavailable):
        delete_older(sqlite, S, START_NS)


@pytest.mark.real
def test_clickhouse_uses_its_ttl(clickhouses: ClickHouses, request_row: Requests) -> None:
    engine = open_database(clickhouses.new())
    with Writer(engine) as writer:
        writer.submit(
            [request_row(1), request_row(2, received_unix_ns=4_000_000_000 * S)], []
        ).result(10)
    for keep_days in (7, 7, 3):
        assert delete_older(engine, keep_days * 86_400 * S, START_NS) == 0
    with engine.connect() as connection:
        made = connection.exec_driver_sql("SHOW CREATE TABLE requests").scalar()
        assert "toIntervalSecond(259200)" in str(made)
        connection.exec_driver_sql("OPTIMIZE TABLE requests FINAL")
    assert request_table(engine, EVER)["request_id"].to_pylist() == ["chatcmpl-2"]
    engine.dispose()
