import pytest
from sqlalchemy import create_engine

from rig.clickhouse import ClickHouses
from store.alerting.slo_counts import COUNTS
from store.dialects.clickhouse_tables import local, order, statements, whole_parts
from store.migrations.all_tables import METADATA
from store.schema import REQUESTS, SAMPLES


def test_a_table_is_sorted_by_the_instant_of_its_questions_then_by_its_key() -> None:
    """A query of 15 min must not read a month; repeated rows must be neighbours."""
    assert order(REQUESTS) == ["received_unix_ns", "trace_id", "span_id"]
    assert order(SAMPLES) == ["at_unix_ns", "replica", "engine", "process"]
    assert order(COUNTS) == ["definition", "until_unix_s"]


def test_the_first_request_and_the_last_count_win() -> None:
    """The row with the largest `row_version` is kept."""
    assert "row_version UInt64 MATERIALIZED bitNot(" in statements(REQUESTS, None)[0]
    assert "row_version UInt64 MATERIALIZED toUInt64(" in statements(COUNTS, None)[0]


def test_every_column_is_compressed_and_the_time_as_differences() -> None:
    made = statements(REQUESTS, None)[0]
    assert "`received_unix_ns` Int64 CODEC(Delta, ZSTD(1))" in made
    assert "`tenant` Nullable(String) CODEC(ZSTD(1))" in made
    assert "Delta" not in statements(COUNTS, None)[0]


def test_days_expire_as_a_whole_if_a_day_is_at_most_a_seventh_of_the_retention() -> None:
    day_ns = 86_400 * 10**9
    assert whole_parts(7 * day_ns) == "ttl_only_drop_parts = 1"
    assert whole_parts(7 * day_ns - 1) == "ttl_only_drop_parts = 0"


def test_a_cluster_name_replicates_and_distributes_the_tables() -> None:
    made, over, added, added_over, compressed = statements(REQUESTS, "fleet")
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
            for statement in statements(table, cluster):
                assert connection.exec_driver_sql(f"EXPLAIN AST {statement}").all()
    engine.dispose()
