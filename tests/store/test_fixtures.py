"""Tests of the fixtures: a test must not see what an earlier test left in a shared database."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, inspect, text

from store import dialects
from store.database import open_database
from store.migrations import STATE, TELEMETRY
from store.migrations.all_tables import METADATA, STATE_METADATA
from tests.store.conftest import ALL, Databases

TABLES = (*METADATA.sorted_tables, *STATE_METADATA.sorted_tables)
VALUES: dict[type, Any] = {str: "left", int: 1, float: 1.0, bool: True, bytes: b"left"}
LEFT = (
    "ALTER TABLE requests DROP COLUMN lora",
    "CREATE VIEW mine AS SELECT request_id FROM requests",
    f"INSERT INTO {TELEMETRY.revision.name} (version_num) VALUES ('9999')",
)
"""Changes that a test may leave beside rows."""


def contents(engine: Engine) -> dict[str, Any]:
    """The columns and the rows of each table."""
    found = {}
    with engine.connect() as connection:
        inspector = inspect(engine)
        for name in sorted({*inspector.get_table_names(), *inspector.get_view_names()}):
            result = connection.execute(text(f"SELECT * FROM {name}"))
            found[name] = list(result.keys()), [tuple(row) for row in result]
    return found


@pytest.mark.parametrize("kind", ALL)
def test_a_test_sees_nothing_that_an_earlier_test_left(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    databases = Databases(request, tmp_path, kind)

    def opened() -> Engine:
        return open_database(databases.with_schemas("whole", TELEMETRY, STATE))

    engine = opened()
    new = contents(engine)
    names = {table.name for table in TABLES}
    assert [name for name, (_, rows) in new.items() if rows and name in names] == []
    with engine.begin() as connection:
        for table in TABLES:
            row = tuple(VALUES[column.type.python_type] for column in table.columns)
            dialects.of(engine).inserting(engine, table)(connection, [row])
    left = contents(engine)
    assert [name for name in names if not left[name][1]] == []
    engine.dispose()
    for statement in LEFT:
        engine = opened()
        assert contents(engine) == new
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)
        assert contents(engine) != new
        engine.dispose()
    engine = opened()
    assert contents(engine) == new
    engine.dispose()
