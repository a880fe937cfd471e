import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine

from store.database import DEFAULT_URL, default_url, open_database
from store.errors import DatabaseMissing, StoreError
from store.queries import newest_unix_ns
from store.schema import VERSION


def test_a_new_database_is_made_with_its_folder(tmp_path: Path) -> None:
    """`make run` on a fresh clone needs no preparation."""
    engine = open_database(f"sqlite:///{tmp_path}/var/deep/tailspan.db")
    assert newest_unix_ns(engine) is None
    engine.dispose()


def test_readers_are_let_in_while_one_writes(engine: Engine) -> None:
    """Write-ahead mode, and a commit that a power cut does not take back."""
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


def test_opening_again_keeps_what_is_there(url: str) -> None:
    """The schema is made once."""
    for _ in range(2):
        open_database(url).dispose()
    open_database(url, create=False).dispose()


def test_a_database_opens_while_another_process_writes(url: str, tmp_path: Path) -> None:
    """Only making the schema needs the write lock."""
    open_database(url).dispose()
    connection = sqlite3.connect(tmp_path / "tailspan.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    open_database(url, busy_timeout_s=0.05).dispose()
    connection.close()


def test_many_may_open_a_new_database_at_once(url: str) -> None:
    """The collector and the explorer start together; neither may fail."""
    with ThreadPoolExecutor(8) as pool:
        for engine in pool.map(lambda _: open_database(url), range(16)):
            engine.dispose()


def test_reading_does_not_make_a_database(tmp_path: Path) -> None:
    """A mistyped path is an error, not an empty answer."""
    with pytest.raises(DatabaseMissing, match=r"no database at .*/nope/tailspan.db"):
        open_database(f"sqlite:///{tmp_path}/nope/tailspan.db", create=False)
    assert not (tmp_path / "nope").exists()


@pytest.mark.parametrize("create", [True, False])
def test_a_newer_database_is_refused_and_left_alone(url: str, tmp_path: Path, create: bool) -> None:
    """An older Tailspan must not write what it does not know."""
    open_database(url).dispose()
    connection = sqlite3.connect(tmp_path / "tailspan.db")
    with connection:
        connection.execute("UPDATE tailspan_schema SET version = ?", (VERSION + 1,))
    with pytest.raises(StoreError, match=rf"newer Tailspan \(schema {VERSION + 1}"):
        open_database(url, create=create)
    assert connection.execute("SELECT version FROM tailspan_schema").fetchall() == [(VERSION + 1,)]
    connection.close()


@pytest.mark.parametrize("create", [True, False])
def test_another_programs_database_is_refused(url: str, tmp_path: Path, create: bool) -> None:
    """Our tables do not go into somebody's address book."""
    connection = sqlite3.connect(tmp_path / "tailspan.db")
    connection.execute("CREATE TABLE addresses (name TEXT)")
    with pytest.raises(StoreError, match="not a Tailspan database"):
        open_database(url, create=create)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("addresses",)]
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


@pytest.mark.parametrize("create", [True, False])
def test_a_file_that_is_no_database_is_refused(url: str, tmp_path: Path, create: bool) -> None:
    """Whatever lies there, it is named and kept."""
    (tmp_path / "tailspan.db").write_text("a letter, " * 1000)
    with pytest.raises(StoreError, match=r"tailspan\.db: file is not a database"):
        open_database(url, create=create)
    assert (tmp_path / "tailspan.db").read_text().startswith("a letter")


def test_a_folder_in_the_databases_place_is_refused(tmp_path: Path) -> None:
    """SQLite's own word for it, with the path."""
    with pytest.raises(StoreError, match="cannot open the database"):
        open_database(f"sqlite:///{tmp_path}")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """A file stands where the folder should."""
    (tmp_path / "var").write_text("")
    with pytest.raises(StoreError, match="cannot make the folder"):
        open_database(f"sqlite:///{tmp_path}/var/tailspan.db")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "is no database URL"),
        ("tailspan.db", "is no database URL"),
        ("postgresql://db/tailspan", "postgresql is not supported"),
        ("oracle://db", "oracle is not supported"),
        ("sqlite://", "must be a file"),
        ("sqlite:///:memory:", "must be a file"),
        ("sqlite:///file:x?mode=memory", "options are not supported"),
        ("sqlite:///file:x", "must be a file"),
        ("sqlite://host/x", "a host or options are not supported"),
        ("sqlite:///x\0y", "must be a file"),
    ],
)
def test_an_unsupported_url_is_refused_with_what_is_allowed(url: str, said: str) -> None:
    """The value given and the values allowed."""
    with pytest.raises(StoreError, match=rf"{said}.*allowed: sqlite:///PATH"):
        open_database(url)


@pytest.mark.parametrize(
    "url", ["postgresql://me:hunter2@db/x", "no url: //me:hunter2@db", "//a@b:hunter2@c"]
)
def test_a_password_is_never_shown(url: str) -> None:
    """An error message ends in logs."""
    with pytest.raises(StoreError) as caught:
        open_database(url)
    assert "hunter2" not in str(caught.value)


def test_the_environment_names_the_database() -> None:
    """Unset or empty, it is the working directory's own."""
    assert default_url({"TAILSPAN_DATABASE_URL": "sqlite:///x.db"}) == "sqlite:///x.db"
    assert default_url({"TAILSPAN_DATABASE_URL": ""}) == default_url({}) == DEFAULT_URL


def test_without_a_url_the_environments_is_opened(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`open_database()` is what `tailspan up` and the explorer both call."""
    monkeypatch.setenv("TAILSPAN_DATABASE_URL", url)
    open_database().dispose()
    assert (tmp_path / "tailspan.db").exists()
