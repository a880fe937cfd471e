"""One holder at a time, and no commit after a lost lease."""

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine, event

from store.alerting.incidents import evaluated_until, store_evaluation
from store.connections import reading, writing
from store.database import open_database
from store.errors import LeaseLost
from store.leases import EVALUATION, NOTIFICATION, RETENTION, Leases
from store.retention import deleted_until_unix_ns, store_deleted_until
from store.rollups import request_rollups, storage
from store.rollups.bucket_builder import build_marked
from store.rollups.storage import load_buckets
from store.writer import Writer
from telemetry.requests import RequestTimeline
from telemetry.store_errors import StoreUnavailable

POSTGRESQL = [
    pytest.mark.real,
    pytest.mark.parametrize("new_url", ["postgresql"], indirect=True),
]
EXPIRES_S = 0.5


def on_postgresql(test: Callable[..., None]) -> Callable[..., None]:
    for mark in POSTGRESQL:
        test = mark(test)
    return test


Make = Callable[..., Leases]


@pytest.fixture
def collector(new_url: Callable[[], str]) -> Iterator[Make]:
    """Makes the leases of one more collector on the same database."""
    url = new_url()
    with ExitStack() as opened:

        def make(*names: str, expires_s: float = EXPIRES_S, options: str = "") -> Leases:
            engine = open_database(url + options)
            opened.callback(engine.dispose)
            leases = Leases(engine, names or (EVALUATION,), expires_s=expires_s)
            opened.callback(leases.release)
            return leases

        yield make


def engine_of(leases: Leases) -> Engine:
    return leases.state


def test_with_sqlite_the_only_process_holds_every_lease(sqlite: Engine) -> None:
    leases = Leases(sqlite)
    leases.beat()
    assert leases.exclusive
    for name in (EVALUATION, NOTIFICATION, RETENTION):
        with leases.acting(name) as term:
            assert term is not None
            store_evaluation(sqlite, "chat", 60, [])
    leases.release()
    assert evaluated_until(sqlite, "chat") == 60


def test_a_process_that_stops_writes_nothing_more(new_sql_url: Callable[[], str]) -> None:
    """The process waits for its threads before it exits."""
    engine = open_database(new_sql_url())
    leases = Leases(engine)
    leases.beat()
    with leases.acting(EVALUATION) as term:
        assert term is not None
        leases.release()
        with pytest.raises(LeaseLost, match="given up the lease 'evaluation'"):
            store_evaluation(engine, "chat", 60, [])
    assert leases.term(EVALUATION) is None
    assert evaluated_until(engine, "chat") is None
    leases = Leases(engine)
    leases.beat()
    with leases.acting(NOTIFICATION):
        leases.release()
        with writing(engine):
            pass  # a message that was sent is recorded
    engine.dispose()


@on_postgresql
def test_one_of_many_collectors_holds_a_lease(collector: Make) -> None:
    several = [collector() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            list(pool.map(Leases.beat, several))
            held = [each.term(EVALUATION) for each in several]
            assert sum(term is not None for term in held) == 1


@on_postgresql
def test_a_lease_that_is_renewed_keeps_its_term(collector: Make) -> None:
    first, second = collector(), collector()
    for _ in range(4):
        first.beat()
        second.beat()
        time.sleep(EXPIRES_S / 3)
    term = first.term(EVALUATION)
    assert term is not None
    assert term.token == 1
    assert second.term(EVALUATION) is None


@on_postgresql
def test_an_expired_lease_is_taken_with_a_higher_token(collector: Make) -> None:
    first, second = collector(), collector()
    first.beat()
    time.sleep(EXPIRES_S * 1.2)
    assert first.term(EVALUATION) is None
    second.beat()
    term = second.term(EVALUATION)
    assert term is not None
    assert term.token == 2
    first.beat()
    assert first.term(EVALUATION) is None


@on_postgresql
def test_a_released_lease_is_taken_at_once(collector: Make) -> None:
    first, second = collector(expires_s=60), collector()
    first.beat()
    first.release()
    assert first.term(EVALUATION) is None
    second.beat()
    assert second.term(EVALUATION) is not None


@on_postgresql
def test_each_lease_is_taken_by_a_collector_that_wants_it(collector: Make) -> None:
    """Without --notify, it does not need the lease on notifications."""
    first, second = collector(EVALUATION, RETENTION), collector(EVALUATION, NOTIFICATION)
    first.beat()
    second.beat()
    assert first.term(NOTIFICATION) is None
    assert second.term(EVALUATION) is None
    assert second.term(NOTIFICATION) is not None


@on_postgresql
def test_a_collector_that_continues_after_its_lease_was_taken_commits_nothing(
    collector: Make,
) -> None:
    """SIGSTOP may stop it at any point. Here: between the check and the write."""
    first, second = collector(), collector()
    first.beat()
    with first.acting(EVALUATION) as term:
        assert term is not None
        store_evaluation(engine_of(first), "chat", 60, [])
        time.sleep(EXPIRES_S * 1.2)
        store_evaluation(engine_of(first), "chat", 75, [])  # no collector took the lease
        second.beat()
        with pytest.raises(LeaseLost, match="'evaluation'"):
            store_evaluation(engine_of(first), "chat", 90, [])
    assert evaluated_until(engine_of(second), "chat") == 75
    store_evaluation(engine_of(first), "chat", 105, [])  # outside `acting`, nothing is checked
    assert evaluated_until(engine_of(second), "chat") == 105


@on_postgresql
def test_a_lost_lease_that_is_taken_again_is_another_term(collector: Make) -> None:
    """Another collector may have changed the data since the earlier term."""
    first, second = collector(), collector()
    first.beat()
    with first.acting(EVALUATION):
        time.sleep(EXPIRES_S * 1.2)
        second.beat()
        time.sleep(EXPIRES_S * 1.2)
        first.beat()
        assert first.term(EVALUATION) is not None
        with pytest.raises(LeaseLost):
            store_evaluation(engine_of(first), "chat", 60, [])


@on_postgresql
def test_a_collector_that_stops_before_a_commit_is_replaced(collector: Make) -> None:
    """Its check holds a lock, until the server ends the transaction."""
    first = collector(options="%20-cidle_in_transaction_session_timeout%3D1s")
    second = collector()
    first.beat()

    def stop_before_the_commit() -> None:
        with first.acting(EVALUATION) as term, writing(engine_of(first)) as connection:
            assert term is not None
            first.check(connection, term)
            time.sleep(1.5)
            second.beat()

    with pytest.raises(StoreUnavailable, match="idle-in-transaction"):
        stop_before_the_commit()
    assert second.term(EVALUATION) is not None


@on_postgresql
def test_an_unreachable_database_ends_the_terms(collector: Make) -> None:
    first = collector()
    first.beat()
    first._held = {
        name: (term, until_s - EXPIRES_S) for name, (term, until_s) in first._held.items()
    }
    assert first.term(EVALUATION) is None
    with first.acting(EVALUATION) as term:
        assert term is None


class Collector(NamedTuple):
    leases: Leases
    engine: Engine


@pytest.fixture
def apart(separate_urls: tuple[str, str]) -> Iterator[Callable[[], Collector]]:
    """Makes one more collector on the same pair of databases."""
    with ExitStack() as opened:

        def make() -> Collector:
            engine = open_database(*separate_urls)
            opened.callback(engine.dispose)
            leases = Leases(engine, [RETENTION], expires_s=EXPIRES_S)
            opened.callback(leases.release)
            return Collector(leases, engine)

        yield make


on_separate_postgresql = pytest.mark.parametrize(
    "separate_urls",
    [
        pytest.param("postgresql/postgresql", marks=pytest.mark.real),
        pytest.param("clickhouse/postgresql", marks=pytest.mark.real),
    ],
    indirect=True,
)


@on_separate_postgresql
def test_leases_in_a_separate_database_protect_the_telemetry(
    apart: Callable[[], Collector],
) -> None:
    first, second = apart(), apart()
    first.leases.beat()
    assert first.leases.exclusive
    assert first.leases.shared
    with first.leases.acting(RETENTION) as term:
        assert term is not None
        store_deleted_until(first.engine, 60 * 10**9)
        time.sleep(EXPIRES_S * 1.2)
        store_deleted_until(first.engine, 75 * 10**9)  # no collector took the lease
        second.leases.beat()
        with pytest.raises(LeaseLost, match="'retention'"):
            store_deleted_until(first.engine, 90 * 10**9)
    assert deleted_until_unix_ns(second.engine) == 75 * 10**9


@on_separate_postgresql
def test_a_collector_that_stops_between_the_check_and_the_commit_is_waited_for(
    apart: Callable[[], Collector],
) -> None:
    """The check locks the lease until the telemetry is committed."""
    first, second = apart(), apart()
    first.leases.beat()

    def take_during_the_commit(*_: object) -> None:
        time.sleep(EXPIRES_S * 1.2)
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            second.leases.beat()

    event.listen(first.engine, "commit", take_during_the_commit, once=True)
    with first.leases.acting(RETENTION):
        store_deleted_until(first.engine, 60 * 10**9)
    assert second.leases.term(RETENTION) is None
    second.leases.beat()
    assert second.leases.term(RETENTION) is not None


@on_separate_postgresql
def test_a_rollup_of_a_collector_that_was_stopped_is_built_again(
    apart: Callable[[], Collector],
    request_row: Callable[..., RequestTimeline],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only ClickHouse stores the stopped collector's result, because it has no transactions."""
    first, second = apart(), apart()
    first.leases.beat()
    minute_s = 1_763_634_000 // 60 * 60
    number = itertools.count()

    def send() -> None:
        row = request_row(n := next(number), received_unix_ns=minute_s * 10**9 + n)
        with Writer(second.engine) as writer:
            writer.submit([row], []).result(10)

    def stopped(*arguments: Any) -> None:
        monkeypatch.undo()
        time.sleep(EXPIRES_S * 1.2)
        second.leases.beat()
        send()
        with second.leases.acting(RETENTION) as term:
            assert term is not None
            build_marked(second.engine, minute_s + 600)
        keep(*arguments)

    keep = storage.store_buckets
    monkeypatch.setattr(request_rollups, "store_buckets", stopped)
    send()
    with first.leases.acting(RETENTION), suppress(LeaseLost):
        build_marked(first.engine, minute_s + 600)
    with second.leases.acting(RETENTION):
        build_marked(second.engine, minute_s + 600)
    with reading(second.engine) as connection:
        (bucket,) = load_buckets(connection, 60, minute_s, minute_s + 60)[False]
    assert sum(bucket.sums[0].requests) == 2
