"""Fills the outbox from the incidents that are kept, and with hangs (`alerts.notify.hangs`): one
row for each channel that wants it.

What is missing is found by comparing incidents with the outbox, not by hearing of changes: a
crash anywhere loses nothing, and a new channel hears of what goes on. What began and ended
before anybody could be told is not told any more.

A message never waits for its likely cause. Once that is known, the beginning is sent again as an
update, to each channel that was told without it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from alerts.counting import read_tally
from alerts.notify.channels import Channel
from alerts.notify.composing import compose
from alerts.notify.hangs import Hangs, open_hangs
from alerts.notify.message import Transition, dumps, loads
from alerts.objectives import Goodput, Objective
from alerts.places import expanded
from alerts.status import status_at, status_edges
from store.alerting.incidents import IncidentRow, read_incidents
from store.alerting.notifications import (
    Delivery,
    Notification,
    abandon_others,
    keep_notifications,
    read_notifications,
)

REWORD_S: Final = 60
"""What waits, or is repeated, has figures no older than this."""

LikelyCause = Callable[[Objective, IncidentRow, int], str | None]

Told = dict[tuple[str, int, str, str], Notification]
"""By severity, when it fired, transition, and channel."""


class Notifier:
    """Compares incidents with the outbox.

    Args:
        engine: from `open_database`.
        objectives: those whose incidents are told.
        channels: who is told.
        explorer_url: tells where links lead; None for no link.
        simulated: whether the data are.
        likely_cause: says at once what is known to have brought an incident about, as of an
            instant; None while nothing is.
    """

    def __init__(
        self,
        engine: Engine,
        objectives: Sequence[Objective],
        channels: Sequence[Channel],
        *,
        explorer_url: Callable[[], str | None],
        simulated: Callable[[], bool] = lambda: False,
        likely_cause: LikelyCause = lambda _objective, _incident, _at_s: None,
    ) -> None:
        self._engine = engine
        self._objectives = objectives
        self._channels = channels
        self._explorer_url = explorer_url
        self._simulated = simulated
        self._likely_cause = likely_cause
        self._hangs = Hangs(engine, channels, explorer_url)
        self._newest: dict[tuple[str, str, int], str] = {}

    def begin(self) -> None:
        """Give up what nobody delivers any more; once, at the start.

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
        """Put in the outbox what is missing there, and refresh what waits.

        Raises:
            StoreUnavailable: the database cannot be used; the next call makes up for it.
        """
        self._hangs.enqueue(now_s)
        going_on = set()
        for objective in expanded(self._engine, self._objectives):
            if not isinstance(objective.indicator, Goodput):
                continue
            told: Told = {
                (row.severity, row.fired_unix_s, row.transition, row.channel): row
                for row in read_notifications(self._engine, objective.name)
            }
            for incident in read_incidents(self._engine, objective.name):
                if incident.ended_unix_s is None:
                    going_on.add((incident.slo, incident.severity, incident.fired_unix_s))
                    self._begun(objective, objective.indicator, incident, told, now_s)
                else:
                    self._ended(objective, objective.indicator, incident, told, now_s)

        for key in self._newest.keys() - going_on:
            del self._newest[key]

    def newest(self, row: Notification) -> str:
        """A row's message with figures of the last minute, where it is of what goes on.

        From any thread. They are kept here and not in the row, which is its sender's to write.
        """
        if row.transition != Transition.FIRING:
            return row.message
        return self._newest.get(row.incident, row.message)

    def _begun(
        self, objective: Objective, goodput: Goodput, incident: IncidentRow, told: Told, now_s: int
    ) -> None:
        of = (incident.severity, incident.fired_unix_s, Transition.FIRING)
        wanting = [each.name for each in self._channels if incident.severity in each.severities]
        new = [name for name in wanting if (*of, name) not in told]
        without = [row for name in wanting if (row := told.get((*of, name))) and _lacks_cause(row)]
        due = [row for name in wanting if (row := told.get((*of, name))) and row.next_unix_s]
        stale = any(
            loads(self.newest(row)).as_of_unix_s <= incident.last_unix_s - REWORD_S for row in due
        )
        cause = self._likely_cause(objective, incident, incident.last_unix_s)
        updates = without if cause is not None else []
        if not new and not stale and not updates:
            return
        message = self._message(objective, goodput, incident, incident.last_unix_s, cause)
        self._newest[incident.slo, incident.severity, incident.fired_unix_s] = message
        keep_notifications(
            self._engine,
            [
                *(_row(incident, Transition.FIRING, name, message, now_s) for name in new),
                *(replace(row, message=message, next_unix_s=now_s) for row in updates),
            ],
        )

    def _ended(
        self, objective: Objective, goodput: Goodput, incident: IncidentRow, told: Told, now_s: int
    ) -> None:
        of = (incident.severity, incident.fired_unix_s)
        new = [
            channel.name
            for channel in self._channels
            if (begun := told.get((*of, Transition.FIRING, channel.name)))
            and begun.state != Delivery.DEAD
            and (*of, Transition.RESOLVED, channel.name) not in told
        ]
        if new:
            cause = self._likely_cause(objective, incident, now_s)
            message = self._message(objective, goodput, incident, now_s, cause)
            rows = [_row(incident, Transition.RESOLVED, name, message, now_s) for name in new]
            keep_notifications(self._engine, rows)

    def _message(
        self,
        objective: Objective,
        goodput: Goodput,
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
                simulated=self._simulated(),
                likely_cause=likely_cause,
            )
        )


def _lacks_cause(row: Notification) -> bool:
    """Whether it was delivered without a cause, and nothing of it is under way."""
    if row.state != Delivery.DELIVERED or row.next_unix_s is not None:
        return False
    try:
        return loads(row.message).likely_cause is None
    except (ValueError, TypeError, KeyError):  # of another version
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
