"""Tests of older versions of Tailspan that use a newer version's database."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.exc import OperationalError

from store import migrations
from store.database import folder, open_database
from store.migrations import STATE, TELEMETRY, Schema, alembic_config, upgrade_schema
from store.queries import request_table
from store.writer import Writer
from telemetry.requests import RequestTimeline
from telemetry.store_errors import StoreError, StoreUnavailable
from telemetry.window import Window

EVER = Window(0, 2**63 - 1)

ADDS = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "9999", "{head}", None, None

def upgrade():
    with op.batch_alter_table("requests") as batch:
        batch.add_column(sa.Column("colour", sa.Text()))
        batch.add_column(sa.Column("shade", sa.BigInteger(), server_default="7", nullable=False))
        {then}
    op.create_table("colours", sa.Column("name", sa.Text(), primary_key=True))
"""


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes a newer Tailspan, with a revision that only adds. `monkeypatch.undo` restores the older
    one."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrations.FOLDER, folder)
    (folder / "versions" / "9999_more.py").write_text(
        ADDS.format(head=migrations.head(), then="pass")
    )
    return lambda: monkeypatch.setattr(migrations, "FOLDER", folder)


@pytest.fixture
def opened() -> Iterator[Callable[..., Engine]]:
    """`open_database`, closing the databases after the test."""
    engines: list[Engine] = []

    def make(*words: Any, **options: Any) -> Engine:
        engines.append(open_database(*words, **options))
        return engines[-1]

    yield make
    for each in engines:
        each.dispose()


def ids(engine: Engine) -> list[str]:
    return sorted(request_table(engine, EVER, columns=["request_id"])["request_id"].to_pylist())


def test_an_older_version_writes_beside_and_after_a_newer_one(
    new_sql_url: Callable[[], str],
    newer: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    request_row: Callable[..., RequestTimeline],
    opened: Callable[..., Engine],
) -> None:
    url = new_sql_url()
    numbers = itertools.count(1)
    old = opened(url)
    with Writer(old) as writer:
        writer.submit([request_row(next(numbers))], []).result(10)
        newer()
        opened(url)
        writer.submit([request_row(next(numbers))], []).result(10)
        monkeypatch.undo()
        messages: list[str] = []
        restarted = opened(url, report=messages.append)
        with Writer(restarted) as again:
            again.submit([request_row(next(numbers))], []).result(10)
    assert len(messages) == 1
    assert "upgraded to schema 9999 by a newer Tailspan. This version" in messages[0]
    assert ids(opened(url, create=False)) == ["chatcmpl-1", "chatcmpl-2", "chatcmpl-3"]
    with restarted.connect() as connection:
        added = connection.execute(text("SELECT colour, shade FROM requests")).all()
    assert added == [(None, 7)] * 3
    newer()
    assert len(ids(opened(url))) == 3  # the newer version continues, too


@pytest.mark.parametrize("schema", [TELEMETRY, STATE])
def test_revisions_since_the_oldest_version_only_add(
    new_sql_url: Callable[[], str], schema: Schema
) -> None:
    """If this test fails, your revision needs a higher `oldest` in `store/migrations`."""
    check_that_revisions_only_add(new_sql_url(), schema)


def test_the_check_finds_a_revision_that_does_more_than_add(
    url: str, tmp_path: Path, newer: Callable[[], None]
) -> None:
    head = migrations.head()
    newer()
    check_that_revisions_only_add(url, TELEMETRY)
    changes = {
        "tenant": 'batch.drop_column("tenant")',
        "outcome": 'batch.alter_column("outcome", nullable=True)',
    }
    for column, then in changes.items():
        revision = ADDS.format(head=head, then=then)
        (tmp_path / "migrations" / "versions" / "9999_more.py").write_text(revision)
        with pytest.raises((AssertionError, KeyError), match=column):
            check_that_revisions_only_add(f"{url}-{column}", TELEMETRY)


def check_that_revisions_only_add(url: str, schema: Schema) -> None:
    engine = create_engine(url)
    folder(engine).mkdir(parents=True, exist_ok=True)

    def shape(revision: str) -> dict[str, Any]:
        with engine.begin() as connection:
            command.upgrade(alembic_config.config(connection, schema), revision)
        found = inspect(engine)
        return {
            table: (
                found.get_pk_constraint(table)["constrained_columns"],
                {each["name"]: each for each in found.get_columns(table)},
            )
            for table in found.get_table_names()
        }

    before, after = shape(schema.oldest), shape("head")
    engine.dispose()
    for table, (key, columns) in before.items():
        assert after[table][0] == key, table
        for name, column in columns.items():
            there = after[table][1][name]
            assert (str(there["type"]), there["nullable"]) == (
                *(str(column["type"]), column["nullable"]),
            ), (table, name)
        added = [each for name, each in after[table][1].items() if name not in columns]
        assert all(each["nullable"] or each["default"] for each in added), table


@pytest.mark.real
def test_no_upgrade_takes_the_schema_away_from_a_running_collector(
    new_sql_url: Callable[[], str],
    newer: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    request_row: Callable[..., RequestTimeline],
    opened: Callable[..., Engine],
) -> None:
    url = new_sql_url()
    if url.startswith("sqlite"):
        pytest.skip("only one process writes SQLite")
    head = migrations.head()
    other, old = opened(new_sql_url()), opened(url)
    upgrading = create_engine(url)
    removes = TELEMETRY._replace(oldest="9999")
    assert ids(opened(url, create=False)) == []  # an open reader does not delay an upgrade
    with Writer(old) as writer, Writer(other) as elsewhere:
        elsewhere.submit([request_row(1)], []).result(10)
        writer.submit([request_row(1)], []).result(10)
        newer()
        with pytest.raises(
            StoreError, match=rf"older Tailspan \(schema {head}\) use it .*unchanged. Stop all"
        ):
            upgrade_schema(upgrading, "it", print, removes)
        writer.submit([request_row(2)], []).result(10)
        old.dispose()  # as if the server had closed the connections
        upgrade_schema(upgrading, "it", print, removes)
        with pytest.raises(StoreUnavailable, match=r"9999 or newer can"):
            writer.submit([request_row(3)], []).result(10)
        elsewhere.submit([request_row(2)], []).result(10)  # another schema of the same database
    monkeypatch.undo()
    with pytest.raises(StoreError, match=r"9999 or newer can"):
        opened(url)
    newer()
    assert ids(opened(url, create=False)) == ["chatcmpl-1", "chatcmpl-2"]
    upgrading.dispose()


@pytest.mark.real
def test_a_connection_of_a_version_that_is_too_old_fails(
    new_sql_url: Callable[[], str], opened: Callable[..., Engine]
) -> None:
    url = new_sql_url()
    if url.startswith("sqlite"):
        pytest.skip("only one process writes SQLite")
    engine = opened(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE tailspan_oldest_version SET oldest = '9999'"))
    engine.dispose()
    for _ in range(2):
        with pytest.raises((OperationalError, engine.dialect.loaded_dbapi.OperationalError)):
            engine.connect()
