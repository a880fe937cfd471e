import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from sqlalchemy import Engine

from alerts.notify import alertmanager, pagerduty, slack, webhook
from alerts.notify.channels import Channel, ReceiverType
from alerts.notify.hangs import MAX_OPEN, SILENT_S, Hangs, open_hangs
from alerts.notify.message import IncidentMessage, Transition, dumps, loads
from alerts.notify.message_text import text, title
from alerts.notify.notifier import Notifier
from alerts.secrets import Secret
from store.alerting.notifications import (
    delete_old_notifications,
    due_notifications,
    read_hangs,
    store_notifications,
)
from store.writer import Writer
from telemetry.engines import HUNG_S, EngineSample
from telemetry.notifications import Delivery, Notification

S = 10**9
NOW_S = 1_790_000_000
ROOT = Path(__file__).parents[3]


def channel(
    name: str = "pager",
    kind: ReceiverType = ReceiverType.WEBHOOK,
    severities: tuple[str, ...] = ("page", "ticket"),
) -> Channel:
    return Channel(name, kind, severities, Secret("https://example.org"))


class Scene:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.channels: Sequence[Channel] = [channel()]

    def sample(self, at_s: int, step_age_s: float | None, **about: Any) -> None:
        """Store a front end's sample; with `step_age_s=None`, no request is in flight."""
        plain: dict[str, Any] = {
            "replica": "chat-0",
            "engine": 0,
            "process": 1,
            "at_unix_ns": at_s * S,
            "started_unix_ns": 0,
            "model": "llama",
            "in_flight": 0 if step_age_s is None else 3,
            "oldest_request_age_s": step_age_s or 0.0,
            "last_step_age_s": step_age_s,
        }
        with Writer(self.engine) as writer:
            writer.submit([], [EngineSample(**{**plain, **about})]).result(10)

    def at(self, now_s: int) -> list[tuple[str, str, str]]:
        """Enqueue with a new notifier, as after a restart, and return the outbox."""
        Hangs(self.engine, self.channels, lambda: "https://example.org").enqueue(now_s)
        return sorted((row.slo, row.transition, row.channel) for row in self.rows)

    @property
    def rows(self) -> list[Notification]:
        return read_hangs(self.engine)

    def message(self, transition: str) -> IncidentMessage:
        (row,) = [each for each in self.rows if each.transition == transition]
        return loads(row.message)


@pytest.fixture
def scene(engine: Engine) -> Scene:
    return Scene(engine)


FIRING, RESOLVED = ("hang:chat-0", "firing", "pager"), ("hang:chat-0", "resolved", "pager")


def test_a_hang_and_its_end_are_sent_once(scene: Scene) -> None:
    scene.sample(NOW_S, HUNG_S)
    assert scene.at(NOW_S) == []
    scene.sample(NOW_S + 1, HUNG_S + 1)
    assert scene.at(NOW_S + 1) == [FIRING]
    scene.sample(NOW_S + 16, HUNG_S + 16)
    assert scene.at(NOW_S + 16) == [FIRING]
    scene.sample(NOW_S + 31, 0.1)
    assert scene.at(NOW_S + 31) == [FIRING, RESOLVED]
    assert scene.at(NOW_S + 46) == [FIRING, RESOLVED]
    ended = scene.message("resolved")
    assert (ended.began_unix_s, ended.ended_unix_s) == (NOW_S + 1 - HUNG_S - 1, NOW_S + 31)
    scene.sample(NOW_S + 200, HUNG_S + 1)
    assert scene.at(NOW_S + 200) == [FIRING, FIRING, RESOLVED]


def test_a_hang_ends_with_the_last_of_its_requests(scene: Scene) -> None:
    scene.sample(NOW_S, HUNG_S + 1)
    scene.at(NOW_S)
    scene.sample(NOW_S + 15, None)
    assert scene.at(NOW_S + 15) == [FIRING, RESOLVED]


def test_a_hang_of_a_silent_replica_ends_after_a_while(scene: Scene) -> None:
    """A missing sample does not end a hang, because Tailspan itself may have been stopped."""
    scene.sample(NOW_S, HUNG_S + 1)
    scene.at(NOW_S)
    assert scene.at(NOW_S + SILENT_S - 1) == [FIRING]
    scene.sample(NOW_S + SILENT_S - 1, HUNG_S + SILENT_S)
    assert scene.at(NOW_S + SILENT_S) == [FIRING]
    assert scene.at(NOW_S + 2 * SILENT_S) == [FIRING, RESOLVED]


def test_each_replica_has_a_separate_hang(scene: Scene) -> None:
    for replica in ("chat-0", "chat-1"):
        scene.sample(NOW_S, HUNG_S + 1, replica=replica)
    scene.sample(NOW_S, 0.1, replica="chat-2")
    scene.at(NOW_S)
    scene.sample(NOW_S + 15, HUNG_S + 16)
    scene.sample(NOW_S + 15, 0.1, replica="chat-1")
    scene.at(NOW_S + 15)
    assert set(open_hangs(scene.engine)) == {"hang:chat-0"}
    assert len(scene.rows) == 3


def test_only_channels_for_pages_get_a_hang_and_a_new_channel_gets_the_open_one(
    scene: Scene,
) -> None:
    tickets = channel("team", severities=("ticket",))
    scene.channels = [tickets]
    scene.sample(NOW_S, HUNG_S + 1)
    assert scene.at(NOW_S) == []
    scene.channels = [channel(), tickets]
    assert scene.at(NOW_S + 1) == [FIRING]
    scene.channels = [channel(), channel("new")]
    assert scene.at(NOW_S + 2) == [("hang:chat-0", "firing", "new"), FIRING]
    assert len({row.incident for row in scene.rows}) == 1


def test_a_fleet_that_hangs_sends_a_bounded_number_of_pages(scene: Scene) -> None:
    """A sender can invent any number of replica names."""
    for number in range(MAX_OPEN + 5):
        scene.sample(NOW_S, HUNG_S + 1, replica=f"r{number}")
    assert len(scene.at(NOW_S)) == MAX_OPEN
    assert len(scene.at(NOW_S + 1)) == MAX_OPEN
    scene.sample(NOW_S + 2, 0.1, replica="r0")
    assert len(scene.at(NOW_S + 2)) == MAX_OPEN + 1
    assert len(scene.at(NOW_S + 3)) == MAX_OPEN + 2


def test_a_hang_in_a_row_of_an_incompatible_version_ends(scene: Scene) -> None:
    scene.sample(NOW_S, HUNG_S + 1)
    scene.at(NOW_S)
    delivered = replace(scene.rows[0], message="{}", state=Delivery.DELIVERED, next_unix_s=None)
    store_notifications(scene.engine, [delivered])
    scene.sample(NOW_S + 15, 0.1)
    scene.at(NOW_S + 15)
    assert open_hangs(scene.engine) == {}
    end = scene.message("resolved")
    assert (end.incident, end.ended_unix_s) == (f"hang:chat-0/page/{NOW_S}", NOW_S + 15)


def test_an_end_is_not_sent_if_the_start_was_dropped(scene: Scene) -> None:
    scene.sample(NOW_S, HUNG_S + 1)
    scene.at(NOW_S)
    store_notifications(
        scene.engine, [replace(scene.rows[0], state=Delivery.DEAD, next_unix_s=None)]
    )
    scene.sample(NOW_S + 15, 0.1)
    scene.at(NOW_S + 15)
    assert due_notifications(scene.engine, "pager", NOW_S + 20) == []
    assert {row.state for row in scene.rows} == {Delivery.DEAD}
    scene.sample(NOW_S + 100, HUNG_S + 1)
    scene.at(NOW_S + 100)
    (due,) = due_notifications(scene.engine, "pager", NOW_S + 100)
    assert due.fired_unix_s == NOW_S + 100


def test_an_ended_hang_is_deleted_after_its_retention(scene: Scene) -> None:
    for replica in ("chat-0", "chat-1"):
        scene.sample(NOW_S, HUNG_S + 1, replica=replica)
    scene.at(NOW_S)
    scene.sample(NOW_S + 15, 0.1)
    scene.sample(NOW_S + 15, HUNG_S + 16, replica="chat-1")
    scene.at(NOW_S + 15)
    for row in scene.rows:
        delivered = replace(row, state=Delivery.DELIVERED, next_unix_s=None)
        store_notifications(scene.engine, [delivered])
    assert delete_old_notifications(scene.engine, NOW_S + 10**6) == 1
    assert set(open_hangs(scene.engine)) == {"hang:chat-1"}


def test_the_notifier_sends_hangs_and_continues_after_a_restart(scene: Scene) -> None:
    manager = channel("manager", ReceiverType.ALERTMANAGER)
    scene.sample(NOW_S, HUNG_S + 1)
    for _ in range(2):
        notifier = Notifier(scene.engine, [], [manager], explorer_url=lambda: None)
        notifier.begin()
        notifier.enqueue(NOW_S)
    (row,) = scene.rows
    store_notifications(
        scene.engine, [replace(row, state=Delivery.DELIVERED, next_unix_s=NOW_S + 60)]
    )
    Notifier(scene.engine, [], [manager], explorer_url=lambda: None).begin()
    assert scene.rows[0].next_unix_s == NOW_S + 60


def test_every_channel_names_the_replica_that_hangs(scene: Scene) -> None:
    scene.sample(NOW_S, 75.0, simulated=True)
    scene.at(NOW_S)
    message = scene.message("firing")
    assert title(message) == "[simulated] [page] chat-0: the engine hangs with 3 requests in flight"
    assert "3 requests in flight, and no engine step for 1 min. Users wait." in text(message)
    (alert,) = json.loads(alertmanager.render(channel(), message, NOW_S).body)
    assert alert["labels"] == {
        "alertname": "TailspanEngineHung",
        "replica": "chat-0",
        "model": "llama",
        "severity": "page",
        "simulated": "true",
    }
    document = json.loads(webhook.render(channel(), message, NOW_S).body)
    schema = json.loads((ROOT / "alerts/notify/webhook.schema.json").read_text())
    jsonschema.validate(document, schema)
    assert document["hang"]["in_flight"] == 3
    event = json.loads(pagerduty.render(channel(), message, NOW_S).body)
    assert event["payload"]["class"] == "engine hang"
    assert b"chat-0: the engine hangs" in slack.render(channel(), message, NOW_S).body
    over = replace(message, transition=Transition.RESOLVED, ended_unix_s=NOW_S + 45)
    assert title(over) == "[simulated] [over] chat-0: the engine no longer hangs, after 2 min"
    assert loads(dumps(over)) == over
    assert message.hang is not None
    one = replace(message, hang=replace(message.hang, engines=(1,)))
    assert title(one).endswith("chat-0: the engine 1 hangs with 3 requests in flight")
    assert loads(dumps(one)) == one
    old = json.loads(dumps(message))
    del old["hang"]["engines"]  # an earlier version wrote this outbox
    assert loads(json.dumps(old)) == message


@pytest.mark.parametrize(
    "name", ["<!channel> @here", "a\nb", "[x](https://evil.example)", "%", "hang:", "x" * 256]
)
def test_a_replica_may_have_any_name(scene: Scene, name: str) -> None:
    scene.sample(NOW_S, HUNG_S + 1, replica=name)
    scene.sample(NOW_S, HUNG_S + 1)
    scene.at(NOW_S)
    scene.sample(NOW_S + 15, HUNG_S + 16, replica=name)
    scene.sample(NOW_S + 15, 0.1)
    scene.at(NOW_S + 15)
    assert set(open_hangs(scene.engine)) == {f"hang:{name}"}
    (row,) = open_hangs(scene.engine)[f"hang:{name}"]
    shown = title(loads(row.message))
    assert len(shown.splitlines()) == 1
    assert not any(each in shown for each in ("<!", "@here", "](", "://"))
