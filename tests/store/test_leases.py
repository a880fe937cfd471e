"""Tests of leases: one holder at a time, and no commit after a lease was lost."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from sqlalchemy import Engine

from store.alerting.incidents import evaluated_until, keep_evaluation
from store.connections import writing
from store.database import open_database
from store.errors import LeaseLost, StoreUnavailable
from store.leases import EVALUATION, NOTIFICATION, RETENTION, Leases

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
    """Return a function that makes the leases of a further collector on the same database."""
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
    return leases._engine


def test_with_sqlite_the_only_process_holds_every_lease(sqlite: Engine) -> None:
    leases = Leases(sqlite)
    leases.beat()
    assert leases.exclusive
    for name in (EVALUATION, NOTIFICATION, RETENTION):
        with leases.acting(name) as term:
            assert term is not None
            keep_evaluation(sqlite, "chat", 60, [])
    leases.release()
    assert evaluated_until(sqlite, "chat") == 60


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
    """A collector without --notify does not want the lease on notifications."""
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
    """SIGSTOP may stop a process at any point, here between the check and the write."""
    first, second = collector(), collector()
    first.beat()
    with first.acting(EVALUATION) as term:
        assert term is not None
        keep_evaluation(engine_of(first), "chat", 60, [])
        time.sleep(EXPIRES_S * 1.2)
        keep_evaluation(engine_of(first), "chat", 75, [])  # nobody has taken the lease
        second.beat()
        with pytest.raises(LeaseLost, match="'evaluation'"):
            keep_evaluation(engine_of(first), "chat", 90, [])
    assert evaluated_until(engine_of(second), "chat") == 75
    keep_evaluation(engine_of(first), "chat", 105, [])  # outside `acting`, nothing is checked
    assert evaluated_until(engine_of(second), "chat") == 105


@on_postgresql
def test_a_lost_lease_that_is_taken_again_is_another_term(collector: Make) -> None:
    """The work of the earlier term is based on what another collector has changed since."""
    first, second = collector(), collector()
    first.beat()
    with first.acting(EVALUATION):
        time.sleep(EXPIRES_S * 1.2)
        second.beat()
        time.sleep(EXPIRES_S * 1.2)
        first.beat()
        assert first.term(EVALUATION) is not None
        with pytest.raises(LeaseLost):
            keep_evaluation(engine_of(first), "chat", 60, [])


@on_postgresql
def test_a_collector_that_stops_before_a_commit_is_replaced(collector: Make) -> None:
    """The check has locked the lease. The server ends the transaction, which frees the lock."""
    first = collector(options="%20-cidle_in_transaction_session_timeout%3D1s")
    second = collector()
    first.beat()

    def stop_before_the_commit() -> None:
        with first.acting(EVALUATION) as term, writing(engine_of(first)) as connection:
            assert term is not None
            first._check(connection, term)
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
