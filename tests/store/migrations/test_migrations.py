import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, text

from rig.clickhouse import ClickHouses
from rig.postgresql import PostgreSQL
from store import migrations
from store.alerting.slo_counts import read_counts
from store.alerting.slo_marks import read_marks
from store.database import folder, open_database
from store.migrations import STATE, TELEMETRY, Schema, alembic_config
from store.migrations.all_tables import METADATA, STATE_METADATA
from store.migrations.drift import drift
from store.queries import request_table
from store.state import state_of
from telemetry.requests import RequestTimeline
from telemetry.store_errors import DatabaseMissing, StoreError
from telemetry.window import Window
from tests.store.conftest import put

EVER = Window(0, 2**63 - 1)

ADDS_A_COLUMN = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "9999", "{head}", None, None

def upgrade():
    with op.batch_alter_table("requests") as batch:  # rewrites the table
        batch.add_column(sa.Column("colour", sa.Text()))
        batch.alter_column("tenant", new_column_name="renter")
    op.execute("UPDATE requests SET colour = 'blue'")
    {then}
"""


@pytest.fixture
def file(tmp_path: Path, request_row: Callable[..., RequestTimeline]) -> Path:
    path = tmp_path / "tailspan.db"
    engine = open_database(f"sqlite:///{path}")
    put(engine, request_row(1, tenant="acme"), request_row(2, tenant=None))
    engine.dispose()
    return path


def set_revision(path: Path, revision: str, oldest: str | None = None) -> None:
    """Record a revision, and the oldest revision whose code can use the database."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE tailspan_revision SET version_num = ?", [revision])
        if oldest is not None:
            connection.execute(
                "UPDATE tailspan_oldest_version SET oldest = ? WHERE revisions = ?",
                [oldest, "tailspan_revision"],
            )
    connection.close()


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes a newer Tailspan, whose last revision ends with the code `then`."""

    def make(then: str) -> Path:
        folder = tmp_path / "migrations"
        shutil.copytree(migrations.FOLDER, folder)
        revision = ADDS_A_COLUMN.format(head=migrations.head(), then=then)
        (folder / "versions" / "9999_more.py").write_text(revision)
        monkeypatch.setattr(migrations, "FOLDER", folder)
        return folder

    return make


def contents(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def test_new_databases_equal_migrated_ones(new_sql_url: Callable[[], str]) -> None:
    """If this test fails, run python -m store.migrations "What you changed"."""
    made = open_database(new_sql_url())
    grown = create_engine(new_sql_url())
    folder(grown).mkdir(parents=True, exist_ok=True)
    with grown.begin() as connection:
        command.upgrade(alembic_config.config(connection), "head")
    with grown.begin() as connection:
        command.upgrade(alembic_config.config(connection, STATE), "head")
    tables = {**METADATA.tables, **STATE_METADATA.tables}
    for each in (made, grown):
        with each.connect() as connection:
            assert drift(connection) == []
        for name, table in tables.items():  # Alembic does not compare keys
            key = inspect(each).get_pk_constraint(name)["constrained_columns"]
            assert key == [column.name for column in table.primary_key], name
        # otherwise new rows would be spread over all pages
        assert inspect(each).get_pk_constraint("requests")["constrained_columns"] == [
            *("received_unix_ns", "trace_id", "span_id")
        ]
        each.dispose()


def test_a_separate_state_database_equals_a_migrated_one(new_sql_url: Callable[[], str]) -> None:
    """If this test fails, run python -m store.migrations --state "What you changed"."""
    made = open_database(new_sql_url(), new_sql_url())
    grown = create_engine(new_sql_url())
    folder(grown).mkdir(parents=True, exist_ok=True)
    with grown.begin() as connection:
        command.upgrade(alembic_config.config(connection, STATE), "head")
    for each in (state_of(made), grown):
        with each.connect() as connection:
            assert drift(connection, STATE) == []
    with made.connect() as connection:
        assert drift(connection, TELEMETRY) == []
    made.dispose()
    grown.dispose()


@pytest.mark.parametrize("schema", [TELEMETRY, STATE])
def test_the_revisions_form_one_line_of_whole_numbers(schema: Schema) -> None:
    """Renumber one if two were written in parallel."""
    with create_engine("sqlite://").connect() as connection:
        script = ScriptDirectory.from_config(alembic_config.config(connection, schema))
        line = [each.revision for each in script.walk_revisions()]
    first = int(schema.first)
    assert line == [f"{number:04}" for number in range(first + len(line) - 1, first - 1, -1)]
    assert line[0] == schema.head()


def test_an_upgrade_keeps_the_data_and_is_reported_once(
    file: Path, newer: Callable[[str], Path]
) -> None:
    """Even if SQLite must rewrite a table. Without a message, a long migration looks like a
    hang."""
    messages: list[str] = []
    first = migrations.head()
    open_database(f"sqlite:///{file}", report=messages.append).dispose()
    newer("pass")
    for _ in range(2):
        open_database(f"sqlite:///{file}", report=messages.append).dispose()
    assert len(messages) == 2
    assert messages[0].startswith(f"Upgrading {file} from schema {first} to 9999.")
    assert messages[1].startswith("Upgraded in ")
    connection = sqlite3.connect(file)
    rows = connection.execute("SELECT request_id, renter, colour FROM requests").fetchall()
    connection.close()
    assert rows == [("chatcmpl-1", "acme", "blue"), ("chatcmpl-2", None, "blue")]


def test_a_reader_does_not_upgrade(file: Path, newer: Callable[[str], Path]) -> None:
    before = contents(file)
    newer("pass")
    with pytest.raises(
        StoreError, match=r"schema \d{4} of an older Tailspan.*`tailspan up` .*keeps all data"
    ):
        open_database(f"sqlite:///{file}", create=False)
    assert contents(file) == before


def test_an_empty_file_is_no_database_to_a_reader(tmp_path: Path) -> None:
    """A killed `tailspan up` may leave one."""
    (tmp_path / "tailspan.db").touch()
    with pytest.raises(DatabaseMissing, match="is empty; `tailspan up` creates a database"):
        open_database(f"sqlite:///{tmp_path}/tailspan.db", create=False)
    open_database(f"sqlite:///{tmp_path}/tailspan.db").dispose()


def test_a_newer_or_unreleased_database_is_refused_and_not_changed(file: Path) -> None:
    def refuse(text: str) -> None:
        before = contents(file)
        for create in (True, False):
            with pytest.raises(StoreError, match=text):
                open_database(f"sqlite:///{file}", create=create)
        assert contents(file) == before

    set_revision(file, "9999", "9999")
    refuse(r"newer Tailspan \(schema 9999; this version has")
    set_revision(file, "0034")
    refuse(r"schema 0034, .*0035 or newer.*--database.*move")


def test_an_upgrade_that_fails_is_undone_in_every_kind_of_database(
    new_sql_url: Callable[[], str],
    newer: Callable[[str], Path],
    request_row: Callable[..., RequestTimeline],
) -> None:
    url = new_sql_url()
    engine = open_database(url)
    put(engine, request_row(1))
    more = newer('op.execute("INSERT INTO nowhere VALUES (1)")') / "versions" / "9999_more.py"
    with pytest.raises(StoreError, match=r"it is unchanged: .*nowhere"):
        open_database(url)
    with engine.connect() as connection:
        assert drift(connection) == []
    more.write_text(more.read_text().replace("INSERT INTO nowhere VALUES (1)", "SELECT 1"))
    with ThreadPoolExecutor(4) as pool:
        for each in pool.map(lambda _: open_database(url), range(4)):
            with each.connect() as connection:
                found = connection.execute(text("SELECT request_id, colour FROM requests")).all()
            assert found == [("chatcmpl-1", "blue")]
            each.dispose()
    engine.dispose()


@pytest.mark.real
def test_an_upgrade_adds_the_first_partition_of_a_new_table(
    postgresql: PostgreSQL, newer: Callable[[str], Path]
) -> None:
    url = postgresql.new_url()
    open_database(url).dispose()
    newer('op.drop_table("gpu_samples_earlier")')
    engine = open_database(url)
    assert "gpu_samples_earlier" in inspect(engine).get_table_names()
    engine.dispose()


def test_a_failed_upgrade_is_undone(file: Path, newer: Callable[[str], Path]) -> None:
    before = contents(file)
    newer('op.drop_table("nowhere")')
    with pytest.raises(
        StoreError, match=r"could not be upgraded from schema \d{4} to 9999; it is unchanged: no"
    ):
        open_database(f"sqlite:///{file}")
    assert contents(file) == before


def test_a_killed_upgrade_is_undone(file: Path, newer: Callable[[str], Path]) -> None:
    before = contents(file)
    folder = newer("import os; os.kill(os.getpid(), 9)")
    program = (
        "import pathlib, sys; from store import database, migrations;"
        "migrations.FOLDER = pathlib.Path(sys.argv[1]); database.open_database(sys.argv[2])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(folder), f"sqlite:///{file}"],
        cwd=Path(__file__).parents[3],
        check=False,
        timeout=60,
    )
    assert ended.returncode == -9
    assert contents(file) == before


def test_many_may_upgrade_at_once(file: Path, newer: Callable[[str], Path]) -> None:
    newer("pass")

    def rows(_: int) -> int:
        engine = open_database(f"sqlite:///{file}")
        with engine.connect() as connection:
            count: int = connection.scalar(text("SELECT count(*) FROM requests WHERE colour > ''"))
        engine.dispose()
        return count

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(rows, range(8))) == [2] * 8


@pytest.mark.real
def test_clickhouse_gets_missing_columns_and_keeps_its_rows(
    clickhouses: ClickHouses,
    newer: Callable[[str], Path],
    request_row: Callable[..., RequestTimeline],
) -> None:
    """Without transactions, revisions only add columns, and can run twice."""
    url = clickhouses.new()
    engine = open_database(url)
    put(engine, request_row(1))
    with engine.connect() as connection:
        connection.exec_driver_sql("ALTER TABLE requests DROP COLUMN cost_usd")
        connection.exec_driver_sql("ALTER TABLE requests MODIFY COLUMN tenant REMOVE CODEC")
        connection.exec_driver_sql("DROP TABLE slo_marks")
    newer("pass")
    with pytest.raises(StoreError, match="older Tailspan"):
        open_database(url, create=False)
    for _ in range(2):
        open_database(url).dispose()
    assert request_table(engine, EVER, columns=["request_id", "cost_usd"]).to_pylist() == [
        {"request_id": "chatcmpl-1", "cost_usd": None}
    ]
    assert read_marks(engine, 1) == []
    with engine.connect() as connection:
        codec = connection.exec_driver_sql(
            "SELECT compression_codec FROM system.columns WHERE name = 'tenant'"
            " AND table = 'requests' AND database = currentDatabase()"
        )
        assert codec.scalar() == "CODEC(ZSTD(1))"
    engine.dispose()


@pytest.mark.real
@pytest.mark.parametrize(
    "revisions", [("tailspan_revision", "tailspan_state_revision"), ("tailspan_state_revision",)]
)
def test_an_interrupted_creation_in_clickhouse_is_completed(
    clickhouses: ClickHouses, revisions: tuple[str, ...]
) -> None:
    """Without transactions, the revision number is written last."""
    url = clickhouses.new()
    open_database(url).dispose()
    engine = create_engine(url)
    with engine.connect() as connection:
        connection.exec_driver_sql("DROP TABLE slo_counts")
        for each in revisions:
            connection.exec_driver_sql(f"TRUNCATE TABLE {each}")
    engine.dispose()
    with pytest.raises(DatabaseMissing):
        open_database(url, create=False)
    engine = open_database(url)
    assert read_counts(engine, "a", 0, 60) == []
    engine.dispose()
