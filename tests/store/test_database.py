import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which

import pytest

from store.database import open_database
from store.queries import newest_unix_ns, request_table
from store.writer import Writer
from telemetry.database_urls import DEFAULT_URL, default_url
from telemetry.requests import RequestTimeline
from telemetry.store_errors import DatabaseMissing, StoreError, StoreUnavailable
from telemetry.window import Window
from tests.store.conftest import SYNCHRONOUS, put


def test_a_new_database_is_made_with_its_folder(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/var/deep/tailspan.db")
    assert newest_unix_ns(engine) is None
    engine.dispose()


def test_readers_can_read_during_a_write(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In WAL mode, with commits that survive a power failure."""
    monkeypatch.setattr("store.dialects.sqlite.SYNCHRONOUS", SYNCHRONOUS)
    engine = open_database(url)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
    engine.dispose()


def test_a_database_opens_while_another_process_writes(url: str, tmp_path: Path) -> None:
    open_database(url).dispose()
    connection = sqlite3.connect(tmp_path / "tailspan.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    open_database(url, busy_timeout_s=0.05).dispose()
    connection.close()


def test_many_may_open_a_new_database_at_once(new_url: Callable[[], str]) -> None:
    url = new_url()
    with ThreadPoolExecutor(8) as pool:
        for engine in pool.map(lambda _: open_database(url), range(16)):
            engine.dispose()


def test_reading_does_not_make_a_database(tmp_path: Path) -> None:
    with pytest.raises(DatabaseMissing, match=r"no database at .*/nope/tailspan.db"):
        open_database(f"sqlite:///{tmp_path}/nope/tailspan.db", create=False)
    assert not (tmp_path / "nope").exists()


@pytest.fixture
def read_only_folder(url: str, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """A database in a read-only folder. Returns a function that runs code in a process that may not
    write there."""
    unprivileged: list[str] = []
    if os.geteuid() == 0:
        unprivileged = ["setpriv", f"--bounding-set={CAPABILITIES}", f"--inh-caps={CAPABILITIES}"]
        if which("setpriv") is None or subprocess.run([*unprivileged, "true"]).returncode:
            pytest.skip("root may write to every folder, and setpriv cannot change this")
    open_database(url).dispose()

    def run(code: str) -> str:
        (tmp_path / "tailspan.db").chmod(0o444)
        tmp_path.chmod(0o555)
        command = [*unprivileged, sys.executable, "-c", code]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return found.stdout + found.stderr

    yield run
    tmp_path.chmod(0o755)


CAPABILITIES = "-dac_override,-dac_read_search"
READ = """
import pyarrow as pa
from sqlalchemy import select
from store.columns.request_columns import request_columns
from store.connections import read_columns
from store.database import open_database
from store.schema import REQUESTS
from telemetry.window import Window
engine = open_database({url!r}, create=False)
print(request_columns(engine, Window(0, 2**63 - 1), ["replica"]).num_rows, "requests")
columns = pa.schema([("replica", pa.string())])
statement = select(REQUESTS.c.replica).where(REQUESTS.c.received_unix_ns > 0)
print(read_columns(engine, [statement], columns).num_rows, "by ADBC")
"""


def test_a_database_in_a_read_only_folder_can_be_read(
    url: str,
    tmp_path: Path,
    read_only_folder: Callable[[str], str],
    request_row: Callable[..., RequestTimeline],
) -> None:
    engine = open_database(url)
    put(engine, *(request_row(number) for number in range(3)))
    engine.dispose()
    assert read_only_folder(READ.format(url=url)) == "3 requests\n3 by ADBC\n"
    assert [each.name for each in tmp_path.iterdir()] == ["tailspan.db"]


def test_a_database_in_a_read_only_folder_whose_log_cannot_be_read_is_an_error(
    url: str, tmp_path: Path, read_only_folder: Callable[[str], str]
) -> None:
    (tmp_path / "tailspan.db-wal").write_bytes(b"committed rows")
    shown = read_only_folder(READ.format(url=url))
    assert "copy tailspan.db and tailspan.db-wal to a folder that you may write" in shown


def test_another_programs_database_is_refused(url: str, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "tailspan.db")
    connection.execute("CREATE TABLE addresses (name TEXT)")
    for create in (True, False):
        with pytest.raises(StoreError, match="not a Tailspan database"):
            open_database(url, create=create)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("addresses",)]
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


def test_a_file_that_is_no_database_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "tailspan.db").write_text("a letter, " * 1000)
    for create in (True, False):
        with pytest.raises(StoreError, match=r"tailspan\.db: file is not a database"):
            open_database(url, create=create)
    assert (tmp_path / "tailspan.db").read_text().startswith("a letter")


def test_a_damaged_database_is_an_error_and_unchanged(
    url: str, tmp_path: Path, request_row: Callable[..., RequestTimeline]
) -> None:
    path = tmp_path / "tailspan.db"
    engine = open_database(url)
    put(engine, *(request_row(i) for i in range(2000)))
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    whole = path.read_bytes()
    half = len(whole) // 2
    damaged = whole[:half] + b"\xde\xad" * 20_000 + whole[half + 40_000 :]
    path.write_bytes(damaged)
    engine = open_database(url)
    with pytest.raises(StoreUnavailable, match="cannot be read: database disk image is malformed"):
        request_table(engine, Window(0, 2**63 - 1))
    many = [request_row(i) for i in range(5000)]
    with Writer(engine) as writer, pytest.raises(StoreUnavailable, match="malformed"):
        writer.submit(many, []).result(10)
    engine.dispose()
    assert path.read_bytes() == damaged


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot open the database"):
        open_database(f"sqlite:///{tmp_path}")
    (tmp_path / "var").write_text("")
    with pytest.raises(StoreError, match="cannot create the folder"):
        open_database(f"sqlite:///{tmp_path}/var/tailspan.db")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "is not a database URL"),
        ("tailspan.db", "is not a database URL"),
        ("mysql://db/tailspan", "mysql is not supported"),
        ("postgresql+asyncpg://db/tailspan", r"postgresql\+asyncpg is not supported"),
        ("postgresql://db", "the URL has no database name"),
        ("postgresql://db/x?colour=blue", "unknown option 'colour'"),
        ("clickhousedb://db/", "the URL has no database name"),
        ("clickhousedb://db/x?password=y", "unknown option 'password'"),
        ("clickhousedb://db/x?cluster=a;b", "must consist of letters"),
        ("postgresql://db:port/x", "is not a database URL"),
        ("oracle://db", "oracle is not supported"),
        ("sqlite://", "must be a file"),
        ("sqlite:///:memory:", "must be a file"),
        ("sqlite:///file:x?mode=memory", "options are not supported"),
        ("sqlite:///file:x", "must be a file"),
        ("sqlite://host/x", "a host or options are not supported"),
        ("sqlite:///x\0y", "must be a file"),
    ],
)
def test_an_unsupported_url_is_refused_with_the_allowed_form(url: str, expected: str) -> None:
    with pytest.raises(StoreError, match=rf"{expected}.*allowed: sqlite:///PATH"):
        open_database(url)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:hunter2@db/x",
        "no url: //me:hunter2@db",
        "//a@b:hunter2@c",
        "postgresql://me:p@hunter2@db/x",
        "postgresql://me:p@ss/hunter2@db/x",
        "postgresql://me:hunter2@db:port/x",
        "postgresql://db/x?password=hunter2",
        "postgresql://me:hunter2@db",
        "postgresql://me:hunter2@127.0.0.1:1/x",
        "clickhousedb://me:hunter2@127.0.0.1:1/x",
        "clickhousedb://127.0.0.1:1/x?password=hunter2",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_database(url)
    assert "hunter2" not in str(caught.value)


def test_the_environment_names_the_database(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILSPAN_DATABASE_URL", url)
    open_database().dispose()
    assert (tmp_path / "tailspan.db").exists()
    assert default_url({"TAILSPAN_DATABASE_URL": "sqlite:///x.db"}) == "sqlite:///x.db"
    assert default_url({"TAILSPAN_DATABASE_URL": ""}) == default_url({}) == DEFAULT_URL
