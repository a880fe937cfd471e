import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from store.database import (
    STATE_DATABASE,
    TELEMETRY_DATABASE,
    DatabasePurpose,
    open_database,
)
from store.writer_lock import lock_file, sole_writer
from telemetry.store_errors import StoreError

QUIET: list[str] = []


def refused(url: str) -> str:
    with pytest.raises(StoreError) as raised, sole_writer(url, QUIET.append):
        pass
    return str(raised.value)


def test_a_second_writer_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/var/t.db"
    for _ in range(2):
        with sole_writer(url, QUIET.append):
            text = refused(url)
            assert f"process {os.getpid()}, command" in text
            assert "--database" in text
            assert "since 2" in text
    assert lock_file(tmp_path / "var" / "t.db").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_not_a_database_is_not_changed(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database, and others read it")
    file.chmod(0o644)
    assert "is not a SQLite database" in refused(f"sqlite:///{file}")
    assert file.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("mode", [0o644, 0o444])
@pytest.mark.parametrize("purpose", [TELEMETRY_DATABASE, STATE_DATABASE])
def test_another_programs_database_is_not_changed(
    tmp_path: Path, mode: int, purpose: DatabasePurpose
) -> None:
    file = tmp_path / "old.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE addresses (name TEXT)")
    file.chmod(mode)
    reports: list[str] = []
    with (
        pytest.raises(StoreError, match="not a Tailspan database"),
        sole_writer(f"sqlite:///{file}", reports.append, purpose),
    ):
        pass
    assert file.stat().st_mode & 0o777 == mode
    assert list(tmp_path.iterdir()) == [file]
    assert not reports


def test_every_path_has_one_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_database("sqlite:///var/t.db").dispose()
    (tmp_path / "file.db").symlink_to("var/t.db")
    (tmp_path / "folder").symlink_to("var")
    with sole_writer("sqlite:///var/t.db", QUIET.append):
        for path in ("var/../var/t.db", "file.db", "folder/t.db", f"/{tmp_path}/var/t.db"):
            assert "another process writes" in refused(f"sqlite:///{path}"), path
        with sole_writer("sqlite:///var/u.db", QUIET.append):
            pass


def test_readers_need_no_lock(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    with sole_writer(url, QUIET.append):
        open_database(url).dispose()
        for _ in range(2):
            open_database(url, create=False).dispose()


def test_a_server_is_shared(tmp_path: Path) -> None:
    for url in ("postgresql+psycopg://u@h/d", "clickhousedb://u@h/d"):
        with sole_writer(url, QUIET.append), sole_writer(url, QUIET.append):
            pass


def test_older_files_become_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, file in (("var", "tailspan.db"), ("shared", "t.db")):
        open_database(f"sqlite:///{folder}/{file}").dispose()
        Path(folder).chmod(0o755)
        Path(folder, file).chmod(0o644)
        messages: list[str] = []
        with closing(sqlite3.connect(Path(folder, file))) as reader:
            reader.execute("SELECT * FROM sqlite_master").fetchall()  # creates -wal and -shm
            with sole_writer(f"sqlite:///{folder}/{file}", messages.append):
                pass
            for end in ("", "-wal", "-shm"):
                assert Path(folder, f"{file}{end}").stat().st_mode & 0o777 == 0o600
        assert len(messages) == 3 + (folder == "var")
    assert Path("var").stat().st_mode & 0o777 == 0o700
    assert Path("shared").stat().st_mode & 0o777 == 0o755


def test_a_malformed_lock_is_a_lock(tmp_path: Path) -> None:
    """The content is only shown to people."""
    url = f"sqlite:///{tmp_path}/t.db"
    with sole_writer(url, QUIET.append):
        for content in (b"", b"{", b"[]", b'{"pid": null}', b"\xff" * 10_000, b'{"pid": "x"}'):
            lock_file(tmp_path / "t.db").write_bytes(content)
            assert "its process id is not known yet" in refused(url)


def test_a_link_in_the_locks_place_is_refused(tmp_path: Path) -> None:
    """The link could lead to another user's file."""
    (tmp_path / "precious").write_text("kept")
    lock_file(tmp_path / "t.db").symlink_to(tmp_path / "precious")
    assert "cannot use the folder" in refused(f"sqlite:///{tmp_path}/t.db")
    assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.parametrize("path", ["notes/t.db", "notes/data/t.db"])
@pytest.mark.parametrize("purpose", [TELEMETRY_DATABASE, STATE_DATABASE])
def test_a_file_in_the_folders_place_is_named(
    tmp_path: Path, path: str, purpose: DatabasePurpose
) -> None:
    notes = tmp_path / "notes"
    notes.write_text("kept")
    url = f"sqlite:///{tmp_path}/{path}"
    with pytest.raises(StoreError) as raised, sole_writer(url, QUIET.append, purpose):
        pass
    assert str(raised.value) == (
        f"cannot use the folder of the database {tmp_path}/{path}: {notes} is a file, not a folder;"
        f" move it, or set another file with {purpose.options}"
    )
    with pytest.raises(StoreError, match=f"{notes} is a file, not a folder"):
        open_database(url)
    assert notes.read_text() == "kept"


def test_a_folder_in_the_databases_place_is_named_and_not_changed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    text = refused(f"sqlite:///{folder}")
    assert text == (f"{folder} is a folder; set a file with --database or TAILSPAN_DATABASE_URL")
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_folder_or_link_in_the_locks_place_is_named(tmp_path: Path) -> None:
    lock = lock_file(tmp_path / "t.db")
    lock.mkdir()
    assert f"{lock} is a folder, not a file; move it" in refused(f"sqlite:///{tmp_path}/t.db")
    lock.rmdir()
    lock.symlink_to(tmp_path / "precious")
    assert f"{lock} is a symbolic link, not a file" in refused(f"sqlite:///{tmp_path}/t.db")
    assert not (tmp_path / "precious").exists()
