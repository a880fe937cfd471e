"""Add notifications of incidents and hangs (`alerts.notify.hangs`) to the outbox, one per channel.

The notifier compares the stored incidents with the outbox. So a crash loses no notification, and a
new channel receives the open incidents.

A message is sent immediately, without waiting for the likely cause. When the cause is found, the
message is sent again as an update.
"""

from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Engine

from alerts.evaluation.counting import read_tally
from alerts.evaluation.group_slots import expanded
from alerts.evaluation.status import status_at, status_edges
from alerts.notify.channels import Channel
from alerts.notify.compose import compose
from alerts.notify.hangs import Hangs, open_hangs
from alerts.notify.message import Transition, UnreadableMessageError, dumps, loads
from alerts.objectives import GoodEvents, Objective
from store.alerting.incidents import read_incidents
from store.alerting.notification_claims import update_message
from store.alerting.notifications import abandon_others, add_notifications, read_notifications
from telemetry.incidents import IncidentRow
from telemetry.notifications import Delivery, Notification

REFRESH_S: Final = 60
"""Maximum age of the numbers in a message that is sent."""

LikelyCause = Callable[[Objective, IncidentRow, int], str | None]

Outbox = dict[tuple[str, int, str, str], Notification]
"""The rows of one objective. The key is the severity, the time of the first alert, the transition
and the channel."""


class Notifier:
    """Compares the stored incidents with the outbox.

    Args:
        explorer_url: returns None for no link.
        likely_cause: returns None if the cause is not known yet. Must not block.
    """

    def __init__(
        self,
        engine: Engine,
        objectives: Sequence[Objective],
        channels: Sequence[Channel],
        *,
        explorer_url: Callable[[], str | None],
        likely_cause: LikelyCause = lambda _objective, _incident, _at_s: None,
    ) -> None:
        self._engine = engine
        self._objectives = objectives
        self._channels = channels
        self._explorer_url = explorer_url
        self._likely_cause = likely_cause
        self._hangs = Hangs(engine, channels, explorer_url)
        self._newest: dict[tuple[str, str, int], str] = {}

    def begin(self) -> None:
        """Stop the notifications of removed channels and objectives. Call this once.

        Raises:
            StoreUnavailable: the database cannot be used.
        """
        abandon_others(
            self._engine,
            [channel.name for channel in self._channels],
            [
                *(each.name for each in expanded(self._engine, self._objectives)),
                *open_hangs(self._engine),
            ],
        )

    def enqueue(self, now_s: int) -> None:
        """Add new notifications, and update the numbers of unsent notifications.

        Raises:
            StoreUnavailable: the next call catches up.
        """
        self._hangs.enqueue(now_s)
        still_open = set()
        for objective in expanded(self._engine, self._objectives):
            if not isinstance(objective.indicator, GoodEvents):
                continue
            outbox: Outbox = {
                (row.severity, row.fired_unix_s, row.transition, row.channel): row
                for row in read_notifications(self._engine, objective.name)
            }
            for incident in read_incidents(self._engine, objective.name):
                if incident.ended_unix_s is None:
                    still_open.add((incident.slo, incident.severity, incident.fired_unix_s))
                    self._begun(objective, objective.indicator, incident, outbox, now_s)
                else:
                    self._ended(objective, objective.indicator, incident, outbox, now_s)

        for key in self._newest.keys() - still_open:
            del self._newest[key]

    def newest(self, row: Notification) -> str:
        """A row's message. While the incident is open, its numbers are at most a minute old.

        Callable from any thread. The numbers are not stored here, because only the channel's sender
        may write the row.
        """
        if row.transition != Transition.FIRING:
            return row.message
        return self._newest.get(row.incident, row.message)

    def _begun(
        self,
        objective: Objective,
        goodput: GoodEvents,
        incident: IncidentRow,
        outbox: Outbox,
        now_s: int,
    ) -> None:
        of = (incident.severity, incident.fired_unix_s, Transition.FIRING)
        wanting = [each.name for each in self._channels if incident.severity in each.severities]
        new = [name for name in wanting if (*of, name) not in outbox]
        without = [
            row for name in wanting if (row := outbox.get((*of, name))) and _lacks_cause(row)
        ]
        due = [row for name in wanting if (row := outbox.get((*of, name))) and row.next_unix_s]
        stale = any(_outdated(self.newest(row), incident.last_unix_s - REFRESH_S) for row in due)
        cause = self._likely_cause(objective, incident, incident.last_unix_s)
        updates = without if cause is not None else []
        if not new and not stale and not updates:
            return
        message = self._message(objective, goodput, incident, incident.last_unix_s, cause)
        self._newest[incident.slo, incident.severity, incident.fired_unix_s] = message
        add_notifications(
            self._engine,
            [_row(incident, Transition.FIRING, name, message, now_s) for name in new],
        )
        for row in updates:
            update_message(self._engine, row, message, now_s)

    def _ended(
        self,
        objective: Objective,
        goodput: GoodEvents,
        incident: IncidentRow,
        outbox: Outbox,
        now_s: int,
    ) -> None:
        of = (incident.severity, incident.fired_unix_s)
        new = [
            channel.name
            for channel in self._channels
            if (begun := outbox.get((*of, Transition.FIRING, channel.name)))
            and begun.state != Delivery.DEAD
            and (*of, Transition.RESOLVED, channel.name) not in outbox
        ]
        if new:
            cause = self._likely_cause(objective, incident, now_s)
            message = self._message(objective, goodput, incident, now_s, cause)
            rows = [_row(incident, Transition.RESOLVED, name, message, now_s) for name in new]
            add_notifications(self._engine, rows)

    def _message(
        self,
        objective: Objective,
        goodput: GoodEvents,
        incident: IncidentRow,
        at_s: int,
        likely_cause: str | None,
    ) -> str:
        from_s = min(status_edges(objective, at_s))
        tally = read_tally(self._engine, goodput, from_s, at_s)
        status = status_at(objective, tally.history, tally.since_s, tally.excluded(), at_s)
        return dumps(
            compose(
                incident,
                objective,
                status,
                tally.history,
                explorer_url=self._explorer_url(),
                likely_cause=likely_cause,
            )
        )


def _outdated(message: str, at_s: int) -> bool:
    try:
        return loads(message).as_of_unix_s <= at_s
    except UnreadableMessageError:
        return True


def _lacks_cause(row: Notification) -> bool:
    if row.state != Delivery.DELIVERED or row.next_unix_s is not None:
        return False
    try:
        return loads(row.message).likely_cause is None
    except UnreadableMessageError:
        return False


def _row(
    incident: IncidentRow, transition: Transition, channel: str, message: str, now_s: int
) -> Notification:
    return Notification(
        slo=incident.slo,
        severity=incident.severity,
        fired_unix_s=incident.fired_unix_s,
        transition=transition,
        channel=channel,
        message=message,
        created_unix_s=now_s,
        next_unix_s=now_s,
    )
