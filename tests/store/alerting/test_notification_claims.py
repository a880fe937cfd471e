"""Tests of claims: only the newest term sends a message, and an older result is not stored."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from store.alerting.notification_claims import claim, keep_result
from store.alerting.notifications import (
    FIRING,
    Delivery,
    Notification,
    keep_notifications,
    read_notifications,
)
from store.database import open_database

ROW = Notification("chat", "page", 100, FIRING, "team", "{}", 100, next_unix_s=100)
SENT = replace(ROW, state=Delivery.DELIVERED, next_unix_s=None, delivered_unix_s=101)


@pytest.fixture
def engine(new_sql_url: Callable[[], str]) -> Iterator[Engine]:
    engine = open_database(new_sql_url())
    keep_notifications(engine, [ROW])
    yield engine
    engine.dispose()


def stored(engine: Engine) -> Notification:
    (row,) = read_notifications(engine, "chat")
    return row


def test_a_claimed_row_gets_its_result(engine: Engine) -> None:
    assert claim(engine, ROW, 3)
    assert stored(engine) == replace(ROW, claimed_term=3)
    assert keep_result(engine, SENT, 3)
    assert stored(engine) == replace(SENT, claimed_term=3)


def test_a_later_term_takes_a_claim_and_the_earlier_result_is_not_stored(engine: Engine) -> None:
    assert claim(engine, ROW, 3)
    assert claim(engine, ROW, 4)
    failed = replace(ROW, failures=1, next_unix_s=200, problem="no response")
    assert not keep_result(engine, failed, 3)
    assert keep_result(engine, SENT, 4)
    assert stored(engine).state == Delivery.DELIVERED


def test_an_earlier_term_cannot_claim(engine: Engine) -> None:
    assert claim(engine, ROW, 4)
    assert not claim(engine, ROW, 3)
    assert stored(engine).claimed_term == 4


def test_a_row_that_was_sent_meanwhile_is_not_claimed(engine: Engine) -> None:
    """The holder of the earlier term stored its result after the new holder had read the row."""
    assert claim(engine, ROW, 3)
    assert keep_result(engine, SENT, 3)
    assert not claim(engine, ROW, 4)


def test_a_row_whose_attempt_was_interrupted_is_claimed_again(engine: Engine) -> None:
    assert claim(engine, ROW, 3)
    assert claim(engine, stored(engine), 3)


def test_a_removed_row_is_not_claimed(engine: Engine) -> None:
    assert not claim(engine, replace(ROW, slo="gone"), 3)
    assert not keep_result(engine, replace(ROW, slo="gone"), 3)
