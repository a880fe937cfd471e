"""A separate state database: the place of each table, the copy, and wrong databases."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, inspect

from store import state_copy, state_link
from store.alerting.incident_answers import AnswerRow, read_answers, store_incident_answer
from store.alerting.incidents import evaluated_until, read_incidents, store_evaluation
from store.alerting.notifications import FIRING, store_notifications
from store.alerting.notifications import due_notifications as due
from store.alerting.slo_counts import (
    CountedRange,
    SloCount,
    mark_counts_incomplete,
    read_counted_range,
    read_counts,
    store_counts,
)
from store.alerting.slo_marks import read_marks
from store.database import open_database, urls
from store.leases import EVALUATION, Leases
from store.migrations.older_versions import OLDEST
from store.predictions import Prediction, predictions, store_prediction
from store.queries import newest_unix_ns
from store.schema import METADATA, STATE_METADATA
from store.state import separate_state, state_of
from telemetry.incidents import IncidentRow
from telemetry.notifications import Notification
from telemetry.requests import RequestTimeline
from telemetry.store_errors import DatabaseMissing, StoreError, StoreUnavailable
from tests.store.conftest import put

INCIDENT = IncidentRow("chat", "page", 100, 40, 160, None, 130, "20", None)
MESSAGE = Notification("chat", "page", 100, FIRING, "hook", "{}", 100, next_unix_s=100)
COUNTS = [SloCount(until, 5, 1, 0, 0, 0) for until in range(15, 45, 15)]
ANSWER = AnswerRow("chat", "page", 100, "open", 160, 1, "{}", "{}")
PREDICTION = Prediction(1_000, "replicas=2", 10, 20, "{}", simulated=False)
NOWHERE = "postgresql+psycopg://tailspan:hidden@127.0.0.1:1/state"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    return f"sqlite:///{tmp_path}/tailspan.db", f"sqlite:///{tmp_path}/state.db"


def fill(engine: Engine) -> None:
    """Store a row in each table of the state, with a claim under a term of a lease."""
    store_evaluation(engine, "chat", 165, [INCIDENT])
    store_counts(engine, "digest", COUNTS, CountedRange(0, 45))
    store_notifications(engine, [replace(MESSAGE, claimed_term=7)])
    store_incident_answer(engine, ANSWER)
    store_prediction(engine, PREDICTION)


def check(engine: Engine) -> None:
    assert evaluated_until(engine, "chat") == 165
    assert read_incidents(engine, "chat") == [INCIDENT]
    assert read_counts(engine, "digest", 0, 60) == COUNTS
    assert read_counted_range(engine, "digest") == CountedRange(0, 45)
    assert read_answers(engine, "chat") == [ANSWER]
    assert predictions(engine) == [PREDICTION]


def test_each_database_has_only_its_own_tables(
    files: tuple[str, str], request_row: Callable[..., RequestTimeline]
) -> None:
    engine = open_database(*files)
    fill(engine)
    put(engine, request_row(1))
    tables = set(inspect(engine).get_table_names())
    assert tables == {*METADATA.tables, "tailspan_revision", OLDEST.name}
    tables = set(inspect(state_of(engine)).get_table_names())
    assert tables == {*STATE_METADATA.tables, "tailspan_state_revision", OLDEST.name}
    assert urls(engine) == files
    engine.dispose()
    reader = open_database(*files, create=False)
    check(reader)
    assert newest_unix_ns(reader) is not None
    reader.dispose()


def test_without_a_state_url_one_file_has_everything(files: tuple[str, str]) -> None:
    engine = open_database(files[0])
    assert separate_state(engine) is None
    assert state_of(engine) is engine
    assert urls(engine) == (files[0], None)
    fill(engine)
    check(engine)
    engine.dispose()


def test_the_state_is_copied_once_and_no_message_is_lost(separate_urls: tuple[str, str]) -> None:
    url, state_url = separate_urls
    messages: list[str] = []
    inside = open_database(url)
    fill(inside)
    inside.dispose()
    engine = open_database(url, state_url, report=messages.append)
    check(engine)
    # The claim's term belongs to a lease that no longer exists.
    assert due(engine, "hook", 200) == [MESSAGE]
    store_evaluation(engine, "chat", 180, [])
    engine.dispose()
    again = open_database(url, state_url, report=messages.append)
    assert evaluated_until(again, "chat") == 180
    again.dispose()
    assert len(messages) == 2
    assert messages[1].startswith("Copied 8 rows.")


@pytest.mark.parametrize("fails", ["store_identity", "_copy_table"])
def test_an_interrupted_copy_begins_again(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    inside = open_database(files[0])
    fill(inside)
    inside.dispose()

    def fail(*_: object) -> None:
        raise RuntimeError("the process ends here")

    with monkeypatch.context() as patched:
        patched.setattr(state_copy, fails, fail)
        with pytest.raises(RuntimeError):
            open_database(*files)
    # no other process may use the state while it is copied
    with pytest.raises(StoreError, match=r"the state of .* is in .*state\.db: set --state-url"):
        open_database(files[0])
    with pytest.raises(StoreError, match=r"has not been copied to .* yet; start `tailspan up`"):
        open_database(*files, create=False)
    engine = open_database(*files)
    check(engine)
    engine.dispose()


def test_a_copy_that_was_committed_is_not_repeated(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends before the link is marked as complete."""
    inside = open_database(files[0])
    fill(inside)
    inside.dispose()
    kept: list[state_link.StateLink] = []

    def once(engine: Engine, link: state_link.StateLink) -> None:
        if kept:
            raise RuntimeError("the process ends here")
        kept.append(link)
        state_link.store_link(engine, link)

    with monkeypatch.context() as patched:
        patched.setattr(state_copy, "store_link", once)
        with pytest.raises(RuntimeError):
            open_database(*files)
    messages: list[str] = []
    engine = open_database(*files, report=messages.append)
    check(engine)
    assert messages == []
    engine.dispose()


def test_databases_that_do_not_belong_together_are_refused(
    files: tuple[str, str], tmp_path: Path
) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    open_database(*files).dispose()
    open_database(other).dispose()
    open_database(f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/a-state.db").dispose()
    for url, state_url, problem in (
        (files[0], None, r"the state of .* is in .*/state\.db: set --state-url or TAILSPAN_STATE_"),
        (files[0], f"sqlite:///{tmp_path}/a-state.db", "belongs to another database; set"),
        (other, files[1], r"state\.db belongs to a different database, not to .*other"),
        (files[0], other, "contains telemetry, so it cannot be a separate state database"),
        (files[0], files[0], "contains telemetry, so it cannot be a separate state database"),
        (files[1], None, r"is a state database \(--state-url\); set .* with --database"),
    ):
        for create in (True, False):
            with pytest.raises(StoreError, match=problem):
                open_database(url, state_url, create=create)


def test_a_lost_state_database_is_not_replaced_by_an_empty_one(
    files: tuple[str, str], tmp_path: Path
) -> None:
    open_database(*files).dispose()
    (tmp_path / "state.db").unlink()
    with pytest.raises(StoreError, match=r"state\.db is empty; set .*empty the table state_link"):
        open_database(*files)
    connection = sqlite3.connect(tmp_path / "tailspan.db")
    with connection:
        connection.execute("DELETE FROM state_link")
    connection.close()
    open_database(*files).dispose()


def test_an_unsuitable_url_is_refused(url: str) -> None:
    open_database(url).dispose()
    for state_url, problem in (
        ("nonsense", "--state-url 'nonsense' is not a database URL; allowed: sqlite:///PATH or"),
        ("clickhousedb://u@h/d", "--state-url .* clickhousedb is not supported; allowed: sqlite"),
        ("mysql://u:hidden@h/d", "--state-url .* mysql is not supported; allowed: sqlite"),
        ("sqlite:///:memory:", "--state-url .* the database must be a file"),
        ("postgresql://u:hid@den@h/d", "the state database URL contains more than one @"),
        ("postgresql://u:hidden@h/d?password=hidden", "unknown option 'password'"),
    ):
        for create in (True, False):
            with pytest.raises(StoreError, match=problem) as refused:
                open_database(url, state_url, create=create)
            assert "hidden" not in str(refused.value)


def test_a_missing_state_database_is_not_created_by_a_reader(files: tuple[str, str]) -> None:
    open_database(files[0]).dispose()
    with pytest.raises(DatabaseMissing, match=r"no database at .*state\.db; .* set --state-url or"):
        open_database(*files, create=False)


def test_a_newer_state_database_is_refused(files: tuple[str, str], tmp_path: Path) -> None:
    open_database(*files).dispose()
    connection = sqlite3.connect(tmp_path / "state.db")
    with connection:
        connection.execute("UPDATE tailspan_state_revision SET version_num = '9999'")
        connection.execute("UPDATE tailspan_oldest_version SET oldest = '9999'")
    connection.close()
    for create in (True, False):
        with pytest.raises(
            StoreError, match=r"newer Tailspan \(state schema 9999; this version has"
        ):
            open_database(*files, create=create)


def test_a_writer_needs_the_state_database_at_its_start(url: str) -> None:
    with pytest.raises(StoreError, match=r"cannot open the state database .*refused") as refused:
        open_database(url, NOWHERE)
    assert "hidden" not in str(refused.value)


def test_a_reader_shows_telemetry_while_the_state_database_does_not_respond(
    url: str, request_row: Callable[..., RequestTimeline]
) -> None:
    engine = open_database(url)
    put(engine, request_row(1))
    engine.dispose()
    reader = open_database(url, NOWHERE, create=False)
    assert newest_unix_ns(reader) is not None
    with pytest.raises(StoreUnavailable, match=r"the state database cannot be read: .*refused"):
        read_incidents(reader, "chat")
    reader.dispose()


def test_marks_are_removed_after_the_counts_are_marked_as_incomplete(
    files: tuple[str, str], request_row: Callable[..., RequestTimeline]
) -> None:
    """A crash between the two writes only leads to a recount."""
    engine = open_database(*files)
    store_counts(engine, "digest", [], CountedRange(0, 60))
    put(engine, request_row(received_unix_ns=30 * 10**9, e2e_s=1.0))
    marks = read_marks(engine, 10)

    def fail(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("DELETE FROM slo_marks"):
            raise RuntimeError("the process ends here")

    event.listen(engine, "before_cursor_execute", fail)
    with pytest.raises(RuntimeError):
        mark_counts_incomplete(engine, 30, marks)
    event.remove(engine, "before_cursor_execute", fail)
    assert read_counted_range(engine, "digest") == CountedRange(0, 30)
    assert read_marks(engine, 10) == marks
    mark_counts_incomplete(engine, 30, marks)
    assert read_marks(engine, 10) == []
    engine.dispose()


@pytest.mark.real
@pytest.mark.parametrize("new_url", ["postgresql"], indirect=True)
def test_a_state_that_a_collector_uses_is_not_copied(
    new_url: Callable[[], str], tmp_path: Path
) -> None:
    url, state_url = new_url(), f"sqlite:///{tmp_path}/state.db"
    collector = open_database(url)
    leases = Leases(collector, [EVALUATION], expires_s=60)
    leases.beat()
    with pytest.raises(StoreError, match=r"the collector .* still uses the state in .*: stop all"):
        open_database(url, state_url)
    leases.release()
    collector.dispose()
    open_database(url, state_url).dispose()
