import asyncio
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import pytest
from sqlalchemy import Engine

from server import retention_task
from server.retention_task import RetentionPeriods, RetentionTask, begin, retain
from store.database import open_database
from store.leases import Leases
from store.queries import request_count
from store.retention import delete_older, deleted_until_unix_ns, newest_unix_ns
from store.rollups.bucket_builder import build_marked
from store.rollups.queries import rollups
from store.writer import Writer
from telemetry.corroborated_time import CorroboratedClock
from telemetry.engines import EngineSample
from telemetry.window import Window
from tests.conftest import a_request

S = 10**9
HOUR_NS = 3_600 * S
DAY_NS = 24 * HOUR_NS
START_NS = 1_790_000_000 * S
EVER = Window(0, 2**63 - 1)
AGES_H = (*range(1, 160, 12), *range(160, 168))
"""The ages of the rows in hours: one row per hour where the tests count rows one by one, and two
rows per day after it, because each row costs the rollups of a minute and of an hour."""
ROWS = len(AGES_H)


@dataclass
class Time:
    system_ns: int = START_NS
    boot_ns: int = 0

    def wait(self, ns: int) -> None:
        self.system_ns += ns
        self.boot_ns += ns


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database with rollups, and with requests from one week (the retention period)."""
    path = tmp_path_factory.mktemp("week") / "tailspan.db"
    engine = open_database(f"sqlite:///{path}")
    rows = [a_request(ago, received_unix_ns=START_NS - ago * HOUR_NS) for ago in AGES_H]
    with Writer(engine) as writer:
        writer.submit(rows, []).result(10)
    build_marked(engine, START_NS // S)
    engine.dispose()
    return path


@pytest.fixture
def engine(week: Path, tmp_path: Path) -> Iterator[Engine]:
    shutil.copy(week, tmp_path / "tailspan.db")
    engine = open_database(f"sqlite:///{tmp_path}/tailspan.db")
    yield engine
    engine.dispose()


def started(engine: Engine, time: Time) -> CorroboratedClock:
    clock = CorroboratedClock(lambda: time.system_ns, lambda: time.boot_ns)
    begin(engine, clock)
    return clock


def kept_after(engine: Engine, clock: CorroboratedClock) -> int:
    asyncio.run(retain(engine, RetentionPeriods(), clock))
    return request_count(engine, EVER)


def test_with_a_correct_clock_rows_are_deleted_by_age(engine: Engine) -> None:
    time = Time()
    clock = started(engine, time)
    assert kept_after(engine, clock) == ROWS
    for left in (ROWS, ROWS, ROWS - 1):
        assert kept_after(engine, clock) == left
        time.wait(HOUR_NS)
    assert deleted_until_unix_ns(engine) == START_NS + 2 * HOUR_NS


def test_a_long_deletion_ends_when_tailspan_stops(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tailspan exits within 10 s, but deleting many rows may take hours."""
    monkeypatch.setattr(retention_task, "EVERY_S", 0)
    clock = started(engine, Time())
    leases = Leases(engine)
    leases.beat()
    begun = threading.Event()

    def delete_slowly(engine: Engine, keep_ns: int, now_ns: int) -> int:
        def pause() -> None:
            begun.set()
            sleep(0.05)

        return delete_older(engine, keep_ns, now_ns, batch_rows=1, pause=pause)

    monkeypatch.setattr(retention_task, "delete_older", delete_slowly)

    async def run() -> None:
        keep = RetentionPeriods(S, None, None)
        step = asyncio.create_task(RetentionTask(engine, keep, clock, leases).step())
        await asyncio.to_thread(begun.wait, 10)
        step.cancel()
        leases.release()

    asyncio.run(run())  # waits for the thread of the deletion
    assert ROWS / 2 < request_count(engine, EVER) < ROWS


@pytest.mark.parametrize("rows_ns", [DAY_NS, None], ids=["a day", "forever"])
def test_an_earlier_retention_ends_if_rows_are_kept_for_ever(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, rows_ns: int | None
) -> None:
    """ClickHouse would continue to delete rows by the earlier retention."""
    ended: list[Engine] = []
    monkeypatch.setattr(retention_task, "keep_rows_for_ever", ended.append)
    clock = started(engine, Time())
    asyncio.run(retain(engine, RetentionPeriods(rows_ns, None, None), clock))
    assert ended == ([engine] if rows_ns is None else [])


def test_starts_are_limited_even_if_rows_are_kept_for_ever(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Senders may invent engines."""
    limited: list[int | None] = []
    monkeypatch.setattr(retention_task, "delete_starts", lambda _, rows, *__: limited.append(rows))
    asyncio.run(retain(engine, RetentionPeriods(None, None, None), started(engine, Time())))
    assert limited == [None]


@pytest.mark.parametrize("rows_ns", [30 * DAY_NS, None], ids=["30 days", "forever"])
def test_a_late_row_is_counted_with_the_rest_of_its_hour_while_rows_are_kept(
    engine: Engine, rows_ns: int | None
) -> None:
    """The rollups of its hour's minutes are older than their own retention."""
    keep = RetentionPeriods(rows_ns, minutes_ns=DAY_NS, hours_ns=2 * DAY_NS)
    clock = started(engine, Time())
    asyncio.run(retain(engine, keep, clock))
    hour_ns = (START_NS - 145 * HOUR_NS) // HOUR_NS * HOUR_NS
    late = a_request(1_000, received_unix_ns=hour_ns + 60 * S)
    with Writer(engine) as writer:
        writer.submit([late], []).result(10)
    asyncio.run(retain(engine, keep, clock))
    found = rollups(engine, Window(hour_ns, hour_ns + HOUR_NS))
    assert found is not None
    assert int(found.sums(()).requests.sum()) == 2


def test_a_clock_ahead_at_the_start_deletes_slowly(engine: Engine) -> None:
    """At most two hours of rows may be deleted per hour."""
    time = Time(START_NS + 3_650 * DAY_NS)
    for restart, left in enumerate((ROWS, ROWS, ROWS, ROWS - 2, ROWS - 4)):
        clock = started(engine, time)
        if restart > 1:
            time.wait(HOUR_NS)
        assert kept_after(engine, clock) == left


def test_after_a_downtime_old_rows_are_deleted_within_the_same_time(engine: Engine) -> None:
    time = Time(START_NS + 8 * DAY_NS)
    clock = started(engine, time)
    left = []
    for _ in range(9):
        left.append(kept_after(engine, clock))
        time.wait(DAY_NS)
    assert left == sorted(left, reverse=True)
    assert left[0] == ROWS
    assert left[3] > 0
    assert left[-1] == 0
    assert clock.deletable_unix_ns == time.system_ns


def test_a_jump_while_it_runs_deletes_nothing(engine: Engine) -> None:
    time = Time()
    clock = started(engine, time)
    time.system_ns += 8 * DAY_NS
    for _ in range(6):
        assert kept_after(engine, clock) == ROWS
        time.wait(60 * S)
    assert clock() == time.system_ns
    time.system_ns -= 8 * DAY_NS
    assert kept_after(engine, clock) == ROWS


def test_the_newest_instant_is_of_whichever_table(engine: Engine) -> None:
    assert newest_unix_ns(engine) == START_NS - HOUR_NS
    sample = EngineSample(
        replica="a", engine=0, process=1, at_unix_ns=START_NS, started_unix_ns=START_NS
    )
    with Writer(engine) as writer:
        writer.submit([], [sample]).result(10)
    assert newest_unix_ns(engine) == START_NS
    assert deleted_until_unix_ns(engine) is None


def test_a_rollup_that_cannot_be_built_delays_no_other_deletion(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect is raised after all deletions, so that it is reported."""
    done: list[str] = []

    def fails(*_: object) -> int:
        raise ValueError("a defect")

    monkeypatch.setattr(retention_task, "delete_older", fails)
    others = ["delete_starts", "delete_older_rollups", "delete_old_notifications"]
    others += ["delete_old_answers", "delete_old_predictions"]
    for name in others:
        monkeypatch.setattr(retention_task, name, lambda *_, name=name: done.append(name))
    clock = started(engine, Time())
    with pytest.raises(ValueError, match="a defect"):
        asyncio.run(retain(engine, RetentionPeriods(), clock))
    assert done == others
    assert deleted_until_unix_ns(engine) == clock.deletable_unix_ns
