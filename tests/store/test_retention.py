import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from rig.clickhouse import ClickHouses
from store import retention
from store.alerting.slo_counts import CountedRange, SloCount, read_counts, store_counts
from store.database import open_database
from store.queries import gpu_table, request_table, sample_table
from store.retention import delete_older, keep_rows_for_ever
from store.rollups.bucket_builder import BuildResult, Failed, build_some_marked
from store.rollups.request_rollups import RequestRollups
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import RequestTimeline
from telemetry.store_errors import StoreUnavailable
from telemetry.window import Window

S = 1_000_000_000
DAY_NS = 86_400 * S
START_NS = 1_763_634_000 * S
EVER = Window(0, 2**63 - 1)

BY_SQL = pytest.mark.parametrize(
    "new_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.real)], indirect=True
)
"""Every database but ClickHouse, which deletes old rows itself."""

Requests = Callable[..., RequestTimeline]
Samples = Callable[..., EngineSample]
Gpus = Callable[..., GpuSample]
Write = Callable[..., None]


def pauses() -> tuple[list[None], Callable[[], None]]:
    taken: list[None] = []
    return taken, lambda: taken.append(None)


def by_minute(request_row: Requests, number: int) -> list[RequestTimeline]:
    return [request_row(i, received_unix_ns=START_NS + 60 * i * S) for i in range(number)]


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
    assert delete_older(engine, S, START_NS, pause=pause) == len(taken) == 0
    gone = delete_older(engine, S, START_NS + 3600 * S, batch_rows=4, pause=pause)
    assert gone == 20
    assert len(taken) == 3  # 12, 4 and 4 rows: rows of one instant are never separated


@BY_SQL
def test_counts_outlive_requests(engine: Engine, write: Write, request_row: Requests) -> None:
    """An objective's period is a month; requests are kept for a week."""
    write(request_row(1))
    store_counts(engine, "a", [SloCount(60, 9, 1, 0, 0, 0)], CountedRange(0, 60))
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
        assert "ttl_only_drop_parts = 0" in str(made)
        connection.exec_driver_sql("OPTIMIZE TABLE requests FINAL")
    assert request_table(engine, EVER)["request_id"].to_pylist() == ["chatcmpl-2"]
    engine.dispose()


@pytest.mark.real
def test_clickhouse_keeps_rows_longer_after_the_retention_was_raised(
    clickhouses: ClickHouses, request_row: Requests
) -> None:
    """A part of the table stores the time at which its rows expire."""
    engine = open_database(clickhouses.new())
    received_s = time.time_ns() // S
    delete_older(engine, 7 * DAY_NS, START_NS)
    with Writer(engine) as writer:
        writer.submit([request_row(1, received_unix_ns=received_s * S)], []).result(10)
    delete_older(engine, 30 * DAY_NS, START_NS)
    expires_s = (
        "SELECT DISTINCT toUnixTimestamp(delete_ttl_info_min) FROM system.parts"
        " WHERE database = currentDatabase() AND table = 'requests' AND active"
    )
    with engine.connect() as connection:
        for _ in range(100):
            found = connection.exec_driver_sql(expires_s).scalars().all()
            if found == [received_s + 30 * 86_400]:
                break
            time.sleep(0.1)
        assert found == [received_s + 30 * 86_400]
    engine.dispose()


@pytest.mark.real
def test_clickhouse_deletes_nothing_if_rows_are_kept_for_ever(
    clickhouses: ClickHouses, request_row: Requests
) -> None:
    engine = open_database(clickhouses.new())
    delete_older(engine, 7 * DAY_NS, START_NS)
    with engine.connect() as connection:
        connection.exec_driver_sql("SYSTEM STOP TTL MERGES requests")
        with Writer(engine) as writer:
            writer.submit([request_row(1)], []).result(10)
        for _ in range(2):
            keep_rows_for_ever(engine)
        connection.exec_driver_sql("SYSTEM START TTL MERGES requests")
        assert "TTL" not in str(connection.exec_driver_sql("SHOW CREATE TABLE requests").scalar())
        connection.exec_driver_sql("OPTIMIZE TABLE requests FINAL")
    assert request_table(engine, EVER)["request_id"].to_pylist() == ["chatcmpl-1"]
    engine.dispose()


FAR_S = START_NS // S + 10_000
SOON_NS, LONG_AGO_NS = 9_700 * S, 1_400 * S
"""With both retentions all rows are too old at FAR_S; with LONG_AGO_NS since long before."""


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = RequestRollups.build

    def made(self: RequestRollups, width_s: int, start_unix_s: int) -> Any:
        if (width_s, start_unix_s) == (60, START_NS // S // 60 * 60 + 120):
            raise ValueError("a defect")
        return whole(self, width_s, start_unix_s)

    monkeypatch.setattr(RequestRollups, "build", made)


@BY_SQL
def test_a_missing_rollup_delays_the_deletion_of_later_requests_only(
    engine: Engine,
    write: Write,
    request_row: Requests,
    sample_row: Samples,
    broken: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write(
        *by_minute(request_row, 5),
        *(sample_row(i) for i in range(3)),
    )
    with pytest.raises(ValueError, match="a defect"):
        delete_older(engine, SOON_NS, FAR_S * S, pause=pauses()[1])
    assert request_table(engine, EVER).num_rows == 3
    assert sample_table(engine, EVER).num_rows == 0  # samples have rollups of their own
    assert not caplog.records
    with pytest.raises(ValueError, match="a defect"):
        delete_older(engine, SOON_NS, FAR_S * S, pause=pauses()[1])
    assert request_table(engine, EVER).num_rows == 3


@BY_SQL
def test_requests_without_a_rollup_are_deleted_after_a_seventh_of_the_retention_with_a_warning(
    engine: Engine,
    write: Write,
    request_row: Requests,
    broken: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write(*by_minute(request_row, 5))
    with pytest.raises(ValueError, match="a defect"):
        delete_older(engine, LONG_AGO_NS, FAR_S * S, pause=pauses()[1])
    assert request_table(engine, EVER).num_rows == 0
    (record,) = caplog.records
    assert "the rollups of 1 minutes of requests" in record.message
    # the failing minute is no longer built, because its rows are deleted
    delete_older(engine, LONG_AGO_NS, FAR_S * S, pause=pauses()[1])
    assert len(caplog.records) == 1


@BY_SQL
def test_a_backlog_of_rollups_does_not_delay_deletion_for_ever(
    engine: Engine, write: Write, request_row: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each deletion builds some of 842 minutes, and deletes their rows."""
    monkeypatch.setattr(retention, "ROLL_UP_S", 0.0)
    monkeypatch.setattr(retention, "_BUCKETS_AT_ONCE", 10)
    write(*by_minute(request_row, 45))
    left = []
    for _ in range(5):
        delete_older(engine, 24_500 * S, (FAR_S + 17_500) * S, pause=pauses()[1])
        left.append(request_table(engine, EVER).num_rows)
    assert left[0] == 35
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0


@BY_SQL
def test_rollups_that_cannot_be_built_do_not_delay_the_others(
    engine: Engine, write: Write, request_row: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of the oldest minutes fail; each attempt builds at most two."""
    write(*by_minute(request_row, 12))
    whole, tried = RequestRollups.build, Counter[int]()
    first_s = START_NS // S // 60 * 60

    def made(self: RequestRollups, width_s: int, start_unix_s: int) -> Any:
        if width_s == 60:
            tried[(start_unix_s - first_s) // 60] += 1
            if start_unix_s < first_s + 180:
                raise ValueError("a defect")
        return whole(self, width_s, start_unix_s)

    monkeypatch.setattr(RequestRollups, "build", made)
    monkeypatch.setattr(retention, "_BUCKETS_AT_ONCE", 2)
    with pytest.raises(ValueError, match="a defect"):
        delete_older(engine, SOON_NS, FAR_S * S, pause=pauses()[1])
    assert tried == Counter(range(6))  # the minutes that this deletion needs
    failed: Failed = set()
    first = build_some_marked(engine, FAR_S, 2, failed)
    assert (first.built, first.remaining > 0, len(failed)) == (2, True, 3)
    assert isinstance(first.defect, ValueError)
    while build_some_marked(engine, FAR_S, 2, failed).remaining:
        assert len(failed) == 3
    assert build_some_marked(engine, FAR_S, 2, failed) == BuildResult(0, 0)
    assert tried == Counter({**dict.fromkeys(range(12), 1), **dict.fromkeys(range(3), 2)})
