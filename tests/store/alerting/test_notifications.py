from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from store.alerting.incidents import store_evaluation
from store.alerting.notifications import (
    FIRING,
    RESOLVED,
    delete_old_notifications,
    due_notifications,
    oldest_pending_unix_s,
    read_notifications,
    store_notifications,
)
from store.database import open_database
from telemetry.incidents import IncidentRow
from telemetry.notifications import Delivery, Notification
from telemetry.store_errors import StoreUnavailable

BEGUN = Notification("chat", "page", 100, FIRING, "team", "{}", 100, next_unix_s=100)
OVER = replace(BEGUN, transition=RESOLVED, created_unix_s=200, next_unix_s=200)


def test_a_row_is_stored_in_its_current_form(engine: Engine) -> None:
    store_notifications(engine, [])
    store_notifications(engine, [BEGUN])
    later = replace(BEGUN, message="later", problem="busy")
    store_notifications(engine, [later, OVER])
    assert read_notifications(engine, "chat") == [OVER, later]
    assert read_notifications(engine, "other") == []


def test_due_notifications_are_returned_in_order(engine: Engine) -> None:
    older = replace(BEGUN, fired_unix_s=90, created_unix_s=90)
    store_notifications(engine, [OVER, BEGUN, older])
    assert due_notifications(engine, "team", 99) == []
    assert due_notifications(engine, "other", 300) == []
    assert due_notifications(engine, "team", 300) == [older, BEGUN]
    repeated = replace(BEGUN, state=Delivery.DELIVERED, next_unix_s=160)
    store_notifications(engine, [repeated])
    assert due_notifications(engine, "team", 300) == [older, OVER]


def test_a_delivered_start_is_no_longer_due_after_the_end(engine: Engine) -> None:
    """Otherwise each poll would read it, and its incident would never be deleted."""
    repeated = replace(BEGUN, state=Delivery.DELIVERED, next_unix_s=160)
    over = replace(OVER, state=Delivery.DELIVERED, next_unix_s=None)
    store_notifications(engine, [repeated, over])
    assert due_notifications(engine, "team", 300) == []
    assert read_notifications(engine, "chat") == [over, replace(repeated, next_unix_s=None)]
    ended = IncidentRow("chat", "page", 100, 0, 150, 150, 100, "6", None)
    store_evaluation(engine, "chat", 300, [ended])
    assert delete_old_notifications(engine, 900) == 1


def test_notifications_from_a_clock_that_was_ahead_are_due_at_once(engine: Engine) -> None:
    waits = replace(BEGUN, created_unix_s=2_000, failures=3, next_unix_s=2_100)
    repeated = replace(waits, fired_unix_s=101, state=Delivery.DELIVERED)
    store_notifications(engine, [waits, repeated])
    assert due_notifications(engine, "team", 300) == [waits]


def test_the_oldest_waiting_notification_of_a_channel_has_its_time(engine: Engine) -> None:
    sent = replace(BEGUN, fired_unix_s=90, created_unix_s=90, state=Delivery.DELIVERED)
    dropped = replace(sent, fired_unix_s=91, state=Delivery.DEAD, next_unix_s=None)
    store_notifications(engine, [OVER, BEGUN, sent, dropped])
    assert oldest_pending_unix_s(engine, "team") == 100
    assert oldest_pending_unix_s(engine, "other") is None


def test_an_end_is_dropped_if_its_start_was_dropped(engine: Engine) -> None:
    elsewhere = [replace(BEGUN, channel="other"), replace(OVER, channel="other")]
    dead = replace(BEGUN, state=Delivery.DEAD, next_unix_s=None)
    store_notifications(engine, [dead, OVER, *elsewhere])
    assert due_notifications(engine, "team", 300) == []
    rows = read_notifications(engine, "chat")
    states = {(row.transition, row.channel): row.state for row in rows}
    assert states[RESOLVED, "team"] == Delivery.DEAD
    assert states[RESOLVED, "other"] == Delivery.PENDING


def test_a_locked_database_is_an_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tailspan.db"
    engine, hasty = open_database(url), open_database(url, busy_timeout_s=0.01)
    with engine.connect() as holding:
        holding.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="cannot be written"):
            store_notifications(hasty, [BEGUN])
    hasty.dispose()
    engine.dispose()


def test_notifications_of_an_old_incident_are_deleted_together(engine: Engine) -> None:
    ended = {1: 150, 2: 150, 3: None, 4: 950}
    incidents = [
        IncidentRow("chat", "page", fired, 0, 150, over, 100, "6", None)
        for fired, over in ended.items()
    ]
    store_evaluation(engine, "chat", 1_000, incidents)
    rows = [
        replace(each, fired_unix_s=fired, next_unix_s=None, state=Delivery.DELIVERED)
        for fired in ended
        for each in ([BEGUN, OVER] if ended[fired] else [BEGUN])
    ]
    rows[3] = replace(rows[3], state=Delivery.PENDING, next_unix_s=900)
    store_notifications(engine, rows)
    assert delete_old_notifications(engine, 900) == 1
    assert {row.fired_unix_s for row in read_notifications(engine, "chat")} == {2, 3, 4}
    assert len(read_notifications(engine, "chat")) == 5
