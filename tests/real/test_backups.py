"""Tests that backups under load can be restored (docs/operating.md, "Back up and restore").

A simulated fleet with prices has sent five minutes of past traffic, and clients send requests all
the time. The restored database must contain each request that was acknowledged before the backup,
and must have the source's rollups and bills.
"""

import json
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM
from typing import Any, Final

import psycopg
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from sqlalchemy import select

from rig.install import ProgramUnavailableError
from rig.postgresql import PostgreSQL
from rig.program import Program, Tailspan, tailspan_command
from rig.sender import Senders
from store.database import open_database
from store.rollups.bucket_builder import build_marked
from store.rollups.buckets import nearest_ranks
from store.rollups.queries import rollups
from store.schema import REQUESTS
from telemetry.window import Window
from tests.real.conftest import SPANS_A_MESSAGE, Start

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

MINUTE_S: Final = 60
BACKFILL_S: Final = 300
Make = Callable[[], ExportTraceServiceRequest]


@dataclass
class Source:
    url: str
    senders: Senders
    from_s: int
    until_s: int
    """The fleet's past is in [from_s, until_s), and no longer changes."""

    def until_more_is_acknowledged(self) -> None:
        wanted = len(self.senders.acknowledged) + 20 * SPANS_A_MESSAGE
        deadline = time.monotonic() + MINUTE_S
        while len(self.senders.acknowledged) < wanted:
            assert time.monotonic() < deadline, self.senders.answers
            time.sleep(0.02)


@dataclass
class Expected:
    rollups: dict[str, Any]
    bill: list[Any]


@contextmanager
def under_load(url: str, folder: Path, start: Start, message: Make) -> Iterator[Source]:
    """Start a collector with a simulated past, and send requests until the `with` block ends."""
    collector = start()
    until_s = int(time.time()) // MINUTE_S * MINUTE_S
    endpoint = f"http://127.0.0.1:{collector.port('http')}"
    words = ("--backfill", f"{BACKFILL_S + MINUTE_S}s", "--rate", "5", "--duration", "2s")
    simulator = tailspan_command("simulate", "--incident", "none", "--endpoint", endpoint, *words)
    with Program(folder, *simulator) as simulated:
        assert simulated.ends() == 0, simulated.printed
    with Senders(message, collector.port("http"), collector.port("grpc")) as senders:
        source = Source(url, senders, until_s - BACKFILL_S, until_s)
        source.until_more_is_acknowledged()
        yield source
        source.until_more_is_acknowledged()
    assert collector.ends(SIGTERM) == 0, collector.printed


def traces(url: str) -> set[str]:
    engine = open_database(url, create=False)
    with engine.connect() as connection:
        found = set(connection.scalars(select(REQUESTS.c.trace_id)))
    engine.dispose()
    return found


def rolled_up(url: str, source: Source) -> dict[str, Any]:
    engine = open_database(url, create=False)
    build_marked(engine, int(time.time()) + 7_200)
    found = rollups(engine, Window(source.from_s * 10**9, source.until_s * 10**9))
    assert found is not None
    assert found.plan.requests == []
    ttft_s = found.quantiles("ttft_s", nearest_ranks((0.5, 0.99))).value_s
    answer = {"number": found.number(), "ttft_s": ttft_s.tolist()}
    engine.dispose()
    return answer


def bill(url: str, folder: Path, source: Source) -> list[Any]:
    words = ("cost", "--by", "tenant", "--from", f"{source.from_s}", "--to", f"{source.until_s}")
    done = subprocess.run(
        tailspan_command(*words, "--database", url, "--format", "json"),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=MINUTE_S,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def expected_of(source: Source, folder: Path) -> Expected:
    expected = Expected(rolled_up(source.url, source), bill(source.url, folder, source))
    assert expected.rollups["number"] > 1_000
    assert expected.bill
    return expected


def check_restored(
    url: str, source: Source, before: set[str], expected: Expected, folder: Path
) -> None:
    assert before
    assert before <= traces(url)
    assert rolled_up(url, source) == expected.rollups
    assert bill(url, folder, source) == expected.bill
    # `tailspan up` removes the simulated past, so it starts after the comparison.
    with Tailspan(folder, "up", "--no-explorer", "--database", url) as restored:
        restored.is_up()
        ports = [f"--{name}-port={restored.port(name)}" for name in ("grpc", "http", "metrics")]
        doctor = subprocess.run(
            tailspan_command("doctor", "--no-explorer", "--database", url, *ports),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=MINUTE_S,
        )
        # The example objectives select none of the senders' requests, so their check may fail.
        problems = [line for line in doctor.stdout.splitlines() if line.startswith("FAIL")]
        assert all(line.startswith("FAIL  objectives") for line in problems), doctor.stdout
        assert "opens, and this version can use its schema" in doctor.stdout
        assert restored.ends(SIGTERM) == 0, restored.printed


def test_sqlite_is_copied_while_it_is_written(
    tmp_path: Path, starting: Callable[[str], Start], message: Make
) -> None:
    url = f"sqlite:///{tmp_path}/tailspan.db"
    copy = tmp_path / "backup" / "tailspan.db"
    copy.parent.mkdir()
    with under_load(url, tmp_path, starting(url), message) as source:
        before = set(source.senders.acknowledged)
        with closing(sqlite3.connect(tmp_path / "tailspan.db")) as database:
            database.execute("VACUUM INTO ?", (str(copy),))
    expected = expected_of(source, tmp_path)
    check_restored(f"sqlite:///{copy}", source, before, expected, tmp_path)


def test_postgresql_is_dumped_while_it_is_written(
    tmp_path: Path, starting: Callable[[str], Start], message: Make, postgresql: PostgreSQL
) -> None:
    for name in ("source", "restored"):
        with psycopg.connect(postgresql.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
    url, target = postgresql.url(database="source"), postgresql.url(database="restored")
    dump = str(postgresql.folder / "tailspan.dump")
    with under_load(url, tmp_path, starting(url), message) as source:
        before = set(source.senders.acknowledged)
        plain = url.replace("+psycopg", "")
        postgresql.client("pg_dump", "--format=custom", f"--dbname={plain}", f"--file={dump}")
    postgresql.client("pg_restore", f"--dbname={target.replace('+psycopg', '')}", dump)
    check_restored(target, source, before, expected_of(source, tmp_path), tmp_path)


def test_postgresql_is_restored_to_the_moment_before_an_accident(
    tmp_path: Path, starting: Callable[[str], Start], message: Make
) -> None:
    """The restore uses a base backup and the archived log. The accident is the deletion of all
    requests."""
    with ExitStack() as servers:
        try:
            server = PostgreSQL()
        except ProgramUnavailableError as reason:
            pytest.skip(str(reason))
        archive = server.folder / "archive"
        archive.mkdir()
        archive.chmod(0o777)
        server.configure("archive_mode = on", f"archive_command = 'cp %p {archive}/%f'")
        servers.enter_context(server)
        url = server.url()
        with under_load(url, tmp_path, starting(url), message) as source:
            base = server.backup("base")
            source.until_more_is_acknowledged()
            before = set(source.senders.acknowledged)
            moment = asked(server, "SELECT clock_timestamp()::text")
        later = source.senders.acknowledged - before
        expected = expected_of(source, tmp_path)
        asked(server, "WITH gone AS (DELETE FROM requests RETURNING 1) SELECT count(*) FROM gone")
        assert traces(url) == set()
        newest = asked(server, "SELECT pg_walfile_name(pg_switch_wal())")
        deadline = time.monotonic() + MINUTE_S
        while asked(server, "SELECT last_archived_wal FROM pg_stat_archiver") < newest:
            assert time.monotonic() < deadline, "the log was not archived"
            time.sleep(0.2)
        restored = PostgreSQL(base=base)
        restored.configure(
            "archive_mode = off",
            f"restore_command = 'cp {archive}/%f %p'",
            f"recovery_target_time = '{moment}'",
            "recovery_target_action = promote",
        )
        servers.enter_context(restored)
        while asked(restored, "SELECT pg_is_in_recovery()::text") == "true":
            assert time.monotonic() < deadline + MINUTE_S, "the recovery did not end"
            time.sleep(0.2)
        check_restored(restored.url(), source, before, expected, tmp_path)
        assert not later <= traces(restored.url())


def asked(server: PostgreSQL, query: str) -> str:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return str(row[0])
