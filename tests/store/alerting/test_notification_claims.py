"""Tests of claims: only the newest term sends a message, and an older result is not stored."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine

from store import dialects
from store.alerting.notification_claims import claim, store_result, update_message
from store.alerting.notifications import (
    FIRING,
    add_notifications,
    read_notifications,
    store_notifications,
)
from store.state import state_of
from telemetry.notifications import Delivery, Notification

ROW = Notification("chat", "page", 100, FIRING, "team", "{}", 100, next_unix_s=100)
SENT = replace(ROW, state=Delivery.DELIVERED, next_unix_s=None, delivered_unix_s=101)


@pytest.fixture
def engine(with_state: Engine) -> Engine:
    if dialects.of(state_of(with_state)).ADDITIVE:
        pytest.skip("ClickHouse has no conditional updates")
    store_notifications(with_state, [ROW])
    return with_state


def stored(engine: Engine) -> Notification:
    (row,) = read_notifications(engine, "chat")
    return row


def test_a_claimed_row_gets_its_result(engine: Engine) -> None:
    assert claim(engine, ROW, 3)
    assert stored(engine) == replace(ROW, claimed_term=3)
    assert store_result(engine, SENT, 3)
    assert stored(engine) == replace(SENT, claimed_term=3)


def test_a_later_term_takes_a_claim_and_the_earlier_result_is_not_stored(engine: Engine) -> None:
    assert claim(engine, ROW, 3)
    assert claim(engine, ROW, 4)
    failed = replace(ROW, failures=1, next_unix_s=200, problem="no response")
    assert not store_result(engine, failed, 3)
    assert store_result(engine, SENT, 4)
    assert stored(engine).state == Delivery.DELIVERED


def test_an_earlier_term_cannot_claim(engine: Engine) -> None:
    assert claim(engine, ROW, 4)
    assert not claim(engine, ROW, 3)
    assert stored(engine).claimed_term == 4


def test_a_row_that_was_sent_meanwhile_is_not_claimed(engine: Engine) -> None:
    """The new holder had read the row before the earlier term's result was stored."""
    assert claim(engine, ROW, 3)
    assert store_result(engine, SENT, 3)
    assert not claim(engine, ROW, 4)


def test_a_row_whose_attempt_was_interrupted_is_claimed_again(engine: Engine) -> None:
    assert claim(engine, ROW, 3)
    assert claim(engine, stored(engine), 3)


def test_a_removed_row_is_not_claimed(engine: Engine) -> None:
    assert not claim(engine, replace(ROW, slo="gone"), 3)
    assert not store_result(engine, replace(ROW, slo="gone"), 3)


def test_a_message_is_not_replaced_after_another_collector_claimed_it(engine: Engine) -> None:
    """The row was read before the claim, which its old values must not overwrite."""
    assert claim(engine, ROW, 4)
    assert not update_message(engine, ROW, '{"cause": 1}', 200)
    assert stored(engine) == replace(ROW, claimed_term=4)
    assert store_result(engine, SENT, 4)
    sent = stored(engine)
    assert update_message(engine, sent, '{"cause": 1}', 200)
    assert stored(engine) == replace(sent, message='{"cause": 1}', next_unix_s=200)


def test_an_added_row_does_not_replace_a_claimed_one(engine: Engine) -> None:
    assert claim(engine, ROW, 4)
    other = replace(ROW, channel="pager")
    add_notifications(engine, [replace(ROW, message="again"), other])
    add_notifications(engine, [])
    rows = read_notifications(engine, "chat")
    assert {row.channel: (row.message, row.claimed_term) for row in rows} == {
        "team": ("{}", 4),
        "pager": ("{}", None),
    }
