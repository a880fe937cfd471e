from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from alerts.notify.channel_sender import ChannelSender, DeliveryResult
from alerts.notify.channels import Channel, ChannelPost, ReceiverType
from alerts.notify.http_post import ChannelResponse
from alerts.notify.message import IncidentMessage, Transition, dumps
from alerts.notify.retry import GIVE_UP_S
from store.alerting.notification_claims import claim, update_message
from store.alerting.notifications import read_notifications, store_notifications
from telemetry.notifications import Notification

NOW_S = 1_790_000_030
OK, BUSY, WRONG = (
    ChannelResponse(200, ""),
    ChannelResponse(503, "busy"),
    ChannelResponse(400, "wrong"),
)


class Scene:
    """A sender with a fake clock and prepared answers, which records its attempts."""

    def __init__(
        self, engine: Engine, channel: Channel, message: Callable[..., IncidentMessage]
    ) -> None:
        self.now_s = NOW_S
        self.answers: list[ChannelResponse] = []
        self.sent: list[ChannelPost] = []
        self._engine = engine
        self._channel = channel
        self._message = message
        self.restart()

    def restart(self) -> None:
        self.sender = ChannelSender(
            self._engine, self._channel, self._send, clock_s=lambda: self.now_s, chance=lambda: 0.0
        )

    def _send(self, post: ChannelPost) -> ChannelResponse:
        self.sent.append(post)
        return self.answers.pop(0) if self.answers else OK

    def add(self, transition: Transition = Transition.FIRING, **about: Any) -> None:
        over = transition is Transition.RESOLVED
        message = self._message(
            transition=transition, ended_unix_s=NOW_S if over else None, **about
        )
        row = Notification(
            slo=message.slo,
            severity=message.severity,
            fired_unix_s=message.fired_unix_s,
            transition=transition,
            channel=self._channel.name,
            message=dumps(message),
            created_unix_s=self.now_s,
            next_unix_s=self.now_s,
        )
        store_notifications(self._engine, [row])

    def deliver(self, after_s: int = 0) -> list[tuple[str, DeliveryResult]]:
        """Advance the clock, run the sender, and return the deliveries as (transition, result)."""
        self.now_s += after_s
        return [(each.row.transition, each.result) for each in self.sender.deliver()]

    def oldest(self) -> int | None:
        return self.sender.oldest_pending_unix_s

    @property
    def rows(self) -> dict[str, Notification]:
        return {row.transition: row for row in read_notifications(self._engine, "chat")}


MakeScene = Callable[..., Scene]


@pytest.fixture
def scene(
    engine: Engine, channel: Callable[..., Channel], message: Callable[..., IncidentMessage]
) -> Callable[..., Scene]:
    return lambda kind=ReceiverType.WEBHOOK: Scene(engine, channel(kind), message)


def test_a_message_is_delivered_once(scene: MakeScene) -> None:
    on = scene()
    on.add()
    assert on.deliver() == [("firing", DeliveryResult.DELIVERED)]
    on.restart()
    assert on.deliver(after_s=3_600) == []
    assert on.rows["firing"].delivered_unix_s == NOW_S


def test_a_failure_is_tried_again_later_and_later(scene: MakeScene) -> None:
    on = scene()
    assert on.oldest() is None
    on.add()
    on.answers = [BUSY, BUSY, BUSY]
    assert on.deliver() == [("firing", DeliveryResult.FAILED)]
    assert on.oldest() == NOW_S
    assert on.deliver(after_s=4) == []
    assert on.deliver(after_s=1) == [("firing", DeliveryResult.FAILED)]
    on.restart()
    assert on.deliver(after_s=9) == []
    assert on.deliver(after_s=1) == [("firing", DeliveryResult.FAILED)]
    row = on.rows["firing"]
    assert (row.state, row.failures, row.problem) == ("pending", 3, "status 503: busy")
    assert on.deliver(after_s=20) == [("firing", DeliveryResult.DELIVERED)]
    assert on.rows["firing"].problem is None
    assert on.oldest() is None
    assert len({post.body for post in on.sent}) == 1


def test_retry_after_is_respected(scene: MakeScene) -> None:
    on = scene()
    on.add()
    on.answers = [ChannelResponse(429, "", 90.0)]
    on.deliver()
    assert on.deliver(after_s=89) == []
    assert on.deliver(after_s=1) == [("firing", DeliveryResult.DELIVERED)]


def test_a_refusal_is_final_and_its_reason_is_stored(scene: MakeScene) -> None:
    """The end of the incident is not sent, because the receiver never got the start."""
    on = scene()
    on.add()
    on.add(Transition.RESOLVED)
    on.answers = [WRONG]
    assert on.deliver() == [("firing", DeliveryResult.DEAD)]
    assert on.deliver(after_s=86_400) == []
    assert on.rows["firing"].problem == "status 400: wrong"
    assert on.rows["resolved"].problem == (
        "not sent, because the start of the incident could not be sent"
    )
    assert {row.state for row in on.rows.values()} == {"dead"}
    assert on.sender.counts[DeliveryResult.DEAD] == 1
    assert on.oldest() is None


def test_a_message_is_dropped_after_six_hours_of_failures(scene: MakeScene) -> None:
    on = scene()
    on.add()
    on.answers = [BUSY] * 1_000
    results = []
    while on.rows["firing"].state == "pending":
        results += on.deliver(after_s=300)
    assert results[-1] == ("firing", DeliveryResult.DEAD)
    assert GIVE_UP_S - 600 <= on.now_s - NOW_S <= GIVE_UP_S
    assert len(results) <= GIVE_UP_S / 300


def test_an_update_is_given_up_as_a_first_message_is(scene: MakeScene, engine: Engine) -> None:
    """The message itself was delivered, so the end of the incident is still sent."""
    on = scene(ReceiverType.SLACK)
    on.add()
    on.deliver()
    assert update_message(engine, on.rows["firing"], on.rows["firing"].message, on.now_s)
    on.answers = [BUSY, WRONG]
    assert on.deliver() == [("firing", DeliveryResult.FAILED)]
    assert on.deliver(after_s=5) == [("firing", DeliveryResult.DEAD)]
    row = on.rows["firing"]
    assert (row.state, row.next_unix_s, row.problem) == ("delivered", None, "status 400: wrong")
    assert update_message(engine, row, row.message, on.now_s)
    on.answers = [BUSY] * 1_000
    while on.rows["firing"].next_unix_s is not None:
        on.deliver(after_s=300)
    assert GIVE_UP_S - 600 <= on.now_s - NOW_S <= GIVE_UP_S
    on.answers = []
    on.add(Transition.RESOLVED)
    assert on.deliver() == [("resolved", DeliveryResult.DELIVERED)]


def test_the_end_waits_for_the_beginning(scene: MakeScene) -> None:
    on = scene()
    on.add()
    on.add(Transition.RESOLVED)
    on.answers = [BUSY]
    assert on.deliver() == [("firing", DeliveryResult.FAILED)]
    assert on.deliver(after_s=5) == [("firing", DeliveryResult.DELIVERED)]
    assert on.deliver() == [("resolved", DeliveryResult.DELIVERED)]
    assert on.deliver(after_s=3_600) == []


def test_alertmanager_gets_the_alert_each_minute_until_it_ends(scene: MakeScene) -> None:
    on = scene(ReceiverType.ALERTMANAGER)
    on.add()
    assert [(each.result, each.repeat) for each in on.sender.deliver()] == [
        (DeliveryResult.DELIVERED, False)
    ]
    assert on.deliver(after_s=59) == []
    on.answers = [WRONG]
    on.now_s += 1
    assert [(each.result, each.repeat) for each in on.sender.deliver()] == [
        (DeliveryResult.FAILED, True)
    ]
    assert on.rows["firing"].state == "delivered"
    assert on.deliver(after_s=5) == [("firing", DeliveryResult.DELIVERED)]
    assert on.deliver() == []
    on.add(Transition.RESOLVED)
    assert on.deliver(after_s=120) == [("resolved", DeliveryResult.DELIVERED)]
    assert on.deliver(after_s=120) == []
    assert on.rows["firing"].delivered_unix_s == NOW_S


def test_one_incident_does_not_wait_for_another(scene: MakeScene) -> None:
    on = scene()
    on.add()
    on.answers = [BUSY]
    on.deliver()
    on.add(fired_unix_s=NOW_S + 1)
    assert on.deliver() == [("firing", DeliveryResult.DELIVERED)]


def test_an_unreadable_row_blocks_nothing(engine: Engine, scene: MakeScene) -> None:
    """Another version of Tailspan may have stored the row."""
    on = scene()
    on.add()
    odd = replace(on.rows["firing"], message='{"of": "another version"}')
    store_notifications(engine, [odd])
    on.add(fired_unix_s=NOW_S + 1)
    assert [result for _, result in on.deliver()] == [DeliveryResult.DEAD, DeliveryResult.DELIVERED]
    assert len(on.sent) == 1


def test_stopping_leaves_the_rest_in_the_outbox(scene: MakeScene) -> None:
    on = scene()
    on.add()
    assert on.sender.deliver(lambda: True) == []
    assert on.deliver() == [("firing", DeliveryResult.DELIVERED)]


def test_a_delivery_that_was_not_recorded_is_repeated(
    scene: MakeScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repeated message has the same id, so a receiver can drop it."""
    on = scene()
    on.add()
    with monkeypatch.context() as crash:
        crash.setattr("alerts.notify.channel_sender.store_result", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            on.sender.deliver()
    assert on.deliver() == [("firing", DeliveryResult.DELIVERED)]
    assert len({post.headers["Idempotency-Key"] for post in on.sent}) == 1
    assert len(on.sent) == 2


def test_a_message_whose_sender_was_replaced_is_sent_again_with_the_same_key(
    scene: MakeScene, engine: Engine
) -> None:
    """The first sender stops during its attempt. Its late result changes nothing."""
    on = scene()
    on.add()
    on.answers = [BUSY, OK]
    successors: list[Any] = []

    def stopped(post: ChannelPost) -> ChannelResponse:
        successors.extend(on.sender.deliver(term=8))
        return on._send(post)

    first = ChannelSender(engine, on._channel, stopped, clock_s=lambda: NOW_S, chance=lambda: 0.0)
    on.answers = [OK, BUSY]
    assert [each.result for each in first.deliver(term=7)] == [DeliveryResult.FAILED]
    assert [each.result for each in successors] == [DeliveryResult.DELIVERED]
    assert len({post.headers["Idempotency-Key"] for post in on.sent}) == 1
    assert (on.rows["firing"].state, on.rows["firing"].claimed_term) == ("delivered", 8)
    assert on.sender.deliver(term=8) == []


def test_a_replaced_sender_sends_nothing_more(scene: MakeScene, engine: Engine) -> None:
    on = scene()
    on.add()
    (row,) = on.rows.values()
    assert claim(engine, row, 8)
    assert on.sender.deliver(term=7) == []
    assert on.sent == []
