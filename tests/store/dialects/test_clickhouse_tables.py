from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event

from rig.clickhouse import ClickHouses
from store.alerting.slo_counts import COUNTS
from store.database import open_database
from store.dialects.clickhouse_tables import changing, creating, local, order, whole_parts
from store.migrations.all_tables import METADATA
from store.schema import REQUESTS, SAMPLES

WITHOUT_REVISION = "TRUNCATE TABLE tailspan_revision"
"""After this statement, the next writer checks the tables."""


def test_a_table_is_sorted_by_the_instant_of_its_questions_then_by_its_key() -> None:
    """A query of 15 min must not read a month; repeated rows must be neighbours."""
    assert order(REQUESTS) == ["received_unix_ns", "trace_id", "span_id"]
    assert order(SAMPLES) == ["at_unix_ns", "replica", "engine", "process"]
    assert order(COUNTS) == ["definition", "until_unix_s"]


def test_the_first_request_and_the_last_count_win() -> None:
    """The row with the largest `row_version` is kept."""
    assert "row_version UInt64 MATERIALIZED bitNot(" in creating(REQUESTS, None)[0]
    assert "row_version UInt64 MATERIALIZED toUInt64(" in creating(COUNTS, None)[0]


def test_every_column_is_compressed_and_the_time_as_differences() -> None:
    made = creating(REQUESTS, None)[0]
    assert "`received_unix_ns` Int64 CODEC(Delta(8), ZSTD(1))" in made
    assert "`tenant` Nullable(String) CODEC(ZSTD(1))" in made
    assert "Delta" not in creating(COUNTS, None)[0]


def test_days_expire_as_a_whole_if_a_day_is_at_most_a_seventh_of_the_retention() -> None:
    day_ns = 86_400 * 10**9
    assert whole_parts(7 * day_ns) == "ttl_only_drop_parts = 1"
    assert whole_parts(7 * day_ns - 1) == "ttl_only_drop_parts = 0"


def test_a_cluster_name_replicates_and_distributes_the_tables() -> None:
    made, over = creating(REQUESTS, "fleet")
    added, added_over, compressed = changing(REQUESTS, "fleet")
    assert made.startswith("CREATE TABLE IF NOT EXISTS requests_local ON CLUSTER fleet (")
    assert (
        "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/requests_local'"
        in (made)
    )
    assert over.endswith(
        "Distributed(fleet, currentDatabase(), requests_local, cityHash64(`trace_id`))"
    )
    assert added.startswith("ALTER TABLE requests_local ON CLUSTER fleet ADD COLUMN IF NOT EXISTS")
    assert added_over.startswith("ALTER TABLE requests ON CLUSTER fleet ADD COLUMN IF NOT EXISTS")
    assert "CODEC" not in over + added_over  # a distributed table stores no rows
    assert compressed.startswith("ALTER TABLE requests_local ON CLUSTER fleet MODIFY COLUMN")
    assert local(REQUESTS, "fleet") == "requests_local ON CLUSTER fleet"


@pytest.mark.real
@pytest.mark.parametrize("cluster", [None, "fleet"])
def test_clickhouse_reads_every_statement(clickhouses: ClickHouses, cluster: str | None) -> None:
    engine = create_engine(clickhouses.new())
    with engine.connect() as connection:
        for table in METADATA.sorted_tables:
            for statement in (*creating(table, cluster), *changing(table, cluster)):
                assert connection.exec_driver_sql(f"EXPLAIN AST {statement}").all()
    engine.dispose()


@pytest.mark.real
def test_a_present_table_is_changed_only_if_it_lacks_something(clickhouses: ClickHouses) -> None:
    url = clickhouses.new()
    assert _definitions(url) == {"CREATE TABLE"}
    assert _definitions(url) == set()
    _run(url, WITHOUT_REVISION)
    assert _definitions(url) == set()
    _run(
        url,
        WITHOUT_REVISION,
        "ALTER TABLE requests DROP COLUMN outcome",
        "ALTER TABLE requests MODIFY COLUMN tenant CODEC(NONE)",
    )
    assert _definitions(url) == {"ALTER TABLE"}
    _run(url, WITHOUT_REVISION)
    assert _definitions(url) == set()


def _run(url: str, *statements: str) -> None:
    engine = create_engine(url)
    with engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def _definitions(url: str) -> set[str]:
    """Return the kinds of statements with which opening a database changes its tables."""
    kinds = set()

    def note(_connection: Any, _cursor: Any, statement: str, *_others: Any) -> None:
        kinds.add(" ".join(statement.split()[:2]))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        open_database(url).dispose()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return kinds & {"CREATE TABLE", "ALTER TABLE"}
