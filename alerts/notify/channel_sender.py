"""Deliver a channel's messages from the outbox in order, and store the results.

Each message is delivered at least once. If the process crashes before it stores the result, the
message is sent again with the same key (docs/decisions/093). Each channel has its own sender, so
that a slow channel does not delay the others.
"""

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sqlalchemy import Engine

from alerts.notify import alertmanager, pagerduty, slack, webhook
from alerts.notify.channels import REPEAT_S, Channel, ChannelPost, ReceiverType
from alerts.notify.http_post import ChannelResponse, DeliveryVerdict
from alerts.notify.message import IncidentMessage, Transition, loads
from alerts.notify.retry import GIVE_UP_S, delay_s
from store.alerting.notification_claims import claim, store_result
from store.alerting.notifications import due_notifications, oldest_pending_unix_s
from telemetry.notifications import Delivery, Notification

RENDER: Final[Mapping[ReceiverType, Callable[[Channel, IncidentMessage, int], ChannelPost]]] = {
    ReceiverType.ALERTMANAGER: alertmanager.render,
    ReceiverType.WEBHOOK: webhook.render,
    ReceiverType.SLACK: slack.render,
    ReceiverType.PAGERDUTY: pagerduty.render,
}


class DeliveryResult(StrEnum):
    """Result of an attempt. A `dead` message is never retried."""

    DELIVERED = "delivered"
    FAILED = "failed"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to deliver. `repeat` means that the notification had been delivered before."""

    row: Notification
    result: DeliveryResult
    answer: ChannelResponse
    repeat: bool


class ChannelSender:
    """Delivers the messages of one channel.

    Args:
        newest: returns the message of a row with the current numbers.
        clock_s: returns the time in unix seconds.
        chance: returns a random number in [0, 1) for the jitter.
    """

    def __init__(
        self,
        engine: Engine,
        channel: Channel,
        send: Callable[[ChannelPost], ChannelResponse],
        *,
        newest: Callable[[Notification], str] = lambda row: row.message,
        clock_s: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.channel = channel
        self._engine = engine
        self._send = send
        self._newest = newest
        self._clock_s = clock_s
        self._chance = chance
        self._counts = Counter(dict.fromkeys(DeliveryResult, 0))
        self._lock = threading.Lock()
        self.oldest_pending_unix_s: int | None = None
        """The time of the oldest message that the last `deliver` did not deliver, or None."""

    @property
    def counts(self) -> dict[DeliveryResult, int]:
        """Number of attempts since the start, for each result."""
        with self._lock:
            return dict(self._counts)

    def deliver(self, stop: Callable[[], bool] = lambda: False, term: int = 0) -> list[Attempt]:
        """Try each due message once.

        Args:
            stop: called before each message. If it returns True, this call ends.
            term: the token of the lease on notifications (`store.leases`).

        Raises:
            LeaseLost: the remaining messages are not tried.
            StoreUnavailable: the last message may be sent again.
        """
        attempts = []
        for row in due_notifications(self._engine, self.channel.name, int(self._clock_s())):
            if stop():
                break
            if claim(self._engine, row, term):
                attempts.append(self._one(row, term))
        self.oldest_pending_unix_s = oldest_pending_unix_s(self._engine, self.channel.name)
        return attempts

    def _one(self, row: Notification, term: int) -> Attempt:
        now_s = int(self._clock_s())
        repeats = (
            self.channel.kind is ReceiverType.ALERTMANAGER and row.transition == Transition.FIRING
        )
        try:
            row = replace(row, message=self._newest(row))
            message = loads(row.message)
            if row.state == Delivery.DELIVERED and not repeats:
                message = replace(message, update=True)
            post = RENDER[self.channel.kind](self.channel, message, now_s)
        # a row that an incompatible version wrote must not block the other rows
        except (ValueError, TypeError, KeyError):
            answer = ChannelResponse(
                None, "this version cannot read the stored message of another version", final=True
            )
        else:
            answer = self._send(post)
        settled, result = _row_after_attempt(row, answer, self._clock_s(), self._chance(), repeats)
        store_result(self._engine, settled, term)
        with self._lock:
            self._counts[result] += 1
        return Attempt(settled, result, answer, row.state == Delivery.DELIVERED)


def _row_after_attempt(
    row: Notification, answer: ChannelResponse, now_s: float, chance: float, repeats: bool
) -> tuple[Notification, DeliveryResult]:
    """The row and the result after an attempt.

    If a repetition or an update fails, the row keeps the state "delivered". Only a repetition
    (`repeats`) is retried without limit.
    """
    before = row.state == Delivery.DELIVERED
    if answer.verdict is DeliveryVerdict.DELIVERED:
        delivered = replace(
            row,
            state=Delivery.DELIVERED,
            failures=0,
            next_unix_s=math.ceil(now_s) + REPEAT_S if repeats else None,
            delivered_unix_s=row.delivered_unix_s if before else int(now_s),
            problem=None,
        )
        return delivered, DeliveryResult.DELIVERED
    failures = row.failures + 1
    next_s = math.ceil(now_s + delay_s(failures, chance, answer.retry_after_s))
    failed = replace(row, failures=failures, next_unix_s=next_s, problem=str(answer))
    if (before and repeats) or (
        answer.verdict is DeliveryVerdict.LATER and next_s <= row.created_unix_s + GIVE_UP_S
    ):
        return failed, DeliveryResult.FAILED
    state = row.state if before else Delivery.DEAD
    return replace(failed, state=state, next_unix_s=None), DeliveryResult.DEAD
