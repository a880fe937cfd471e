"""Add notifications to the outbox when an engine hangs and when the hang ends.

The limit is the same as in the rule `TailspanEngineHung`. A hang is open while the outbox has its
`firing` row but not its `resolved` row. So after a restart of Tailspan, no message is repeated or
lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from alerts.notify.channels import Channel
from alerts.notify.message import (
    IncidentMessage,
    ReplicaHang,
    Transition,
    UnreadableMessageError,
    dumps,
    loads,
)
from store.alerting.notifications import HANG, read_hangs, store_notifications
from store.replicas.hung_replicas import progress, reported_since
from telemetry.hung_replicas import HungReplica
from telemetry.notifications import Notification

SEVERITY: Final = "page"
SILENT_S: Final = 300
"""A replica without samples for this long is gone. A running replica tries again within 300 s
(`tailspan_vllm.export.retry`)."""
MAX_OPEN: Final = 20
"""Maximum number of open hangs with notifications. All further hangs appear only on the Overview
page and in Prometheus."""


class Hangs:
    """Compares the hung replicas with the notifications in the outbox.

    Args:
        channels: channels without the severity `page` are ignored.
        explorer_url: returns None for no link.
    """

    def __init__(
        self,
        engine: Engine,
        channels: Sequence[Channel],
        explorer_url: Callable[[], str | None],
    ) -> None:
        self._engine = engine
        self._channels = [each.name for each in channels if SEVERITY in each.severities]
        self._explorer_url = explorer_url

    def enqueue(self, now_s: int) -> None:
        """Add the missing notifications to the outbox.

        Raises:
            StoreUnavailable: the next call catches up.
        """
        if not self._channels:
            return
        begun = open_hangs(self._engine)
        found = progress(self._engine, (now_s + 1) * 10**9 - 1)
        hung = {HANG + each.replica: each for each in found.hung}
        rows = []
        for name, open_rows in begun.items():
            if name not in hung and self._hang_ended(open_rows[0], found.reporting, now_s):
                rows += self._ended(open_rows, now_s)
        room = MAX_OPEN - len(begun)
        for name, each in hung.items():
            if name in begun:
                rows += self._missing_rows(begun[name], now_s)
            elif room > 0:
                room -= 1
                rows += self._begun(each, now_s)
        store_notifications(self._engine, rows)

    def _hang_ended(self, begun: Notification, reporting: frozenset[str], now_s: int) -> bool:
        replica = begun.slo.removeprefix(HANG)
        if replica in reporting:
            return True
        return not reported_since(self._engine, replica, (now_s - SILENT_S) * 10**9)

    def _begun(self, hung: HungReplica, now_s: int) -> list[Notification]:
        url = self._explorer_url()
        message = IncidentMessage(
            transition=Transition.FIRING,
            slo=HANG + hung.replica,
            display_name=hung.replica,
            service=hung.replica,
            severity=SEVERITY,
            statement="",
            began_unix_s=now_s - int(hung.last_step_age_s),
            fired_unix_s=now_s,
            as_of_unix_s=now_s,
            link=None if url is None else f"{url.rstrip('/')}/?last=1h",
            hang=ReplicaHang(
                hung.replica, hung.model, hung.in_flight, hung.last_step_age_s, hung.engines
            ),
            simulated=hung.simulated,
        )
        return [_row(HANG + hung.replica, message, name, now_s) for name in self._channels]

    def _missing_rows(self, begun: Sequence[Notification], now_s: int) -> list[Notification]:
        has = {row.channel for row in begun}
        return [
            _row(begun[0].slo, _message(begun[0]), name, now_s)
            for name in self._channels
            if name not in has
        ]

    def _ended(self, begun: Sequence[Notification], now_s: int) -> list[Notification]:
        rows = []
        for row in begun:
            message = replace(
                _message(row),
                transition=Transition.RESOLVED,
                ended_unix_s=now_s,
                as_of_unix_s=now_s,
            )
            rows.append(_row(row.slo, message, row.channel, now_s))
        return rows


def open_hangs(engine: Engine) -> dict[str, list[Notification]]:
    """Maps a hang's name to its `firing` rows. Hangs with a `resolved` row are left out."""
    rows = read_hangs(engine)
    over = {row.incident for row in rows if row.transition == Transition.RESOLVED}
    found: dict[str, list[Notification]] = {}
    for row in rows:
        if row.transition == Transition.FIRING and row.incident not in over:
            found.setdefault(row.slo, []).append(row)
    return found


def _message(row: Notification) -> IncidentMessage:
    """The message of a row. If an incompatible version of Tailspan wrote it, a message is built
    from the row's columns, so that the hang can end."""
    try:
        return loads(row.message)
    except UnreadableMessageError:
        replica = row.slo.removeprefix(HANG)
        return IncidentMessage(
            transition=Transition(row.transition),
            slo=row.slo,
            display_name=replica,
            service=replica,
            severity=row.severity,
            statement="",
            began_unix_s=row.fired_unix_s,
            fired_unix_s=row.fired_unix_s,
            as_of_unix_s=row.fired_unix_s,
            hang=ReplicaHang(replica, None, 0, 0.0),
        )


def _row(name: str, message: IncidentMessage, channel: str, now_s: int) -> Notification:
    return Notification(
        slo=name,
        severity=message.severity,
        fired_unix_s=message.fired_unix_s,
        transition=message.transition,
        channel=channel,
        message=dumps(message),
        created_unix_s=now_s,
        next_unix_s=now_s,
    )
