"""The incidents of an objective until an instant, and the notifications about them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Engine

from store.alerting.incidents import read_incidents
from store.alerting.notifications import read_notifications
from telemetry.incidents import IncidentRow
from telemetry.notifications import Notification


@dataclass(frozen=True, slots=True)
class SloIncidents:
    """The incidents of an objective, the newest first, and the notifications about them."""

    incidents: Sequence[IncidentRow]
    notifications: Sequence[Notification]


def slo_incidents(engine: Engine, slo: str, at_s: int, most: int) -> SloIncidents:
    """Return the newest `most` incidents that had alerted at `at_s`. An incident that ended after
    `at_s` is returned as if it were still open."""
    alerted = [
        row if (row.ended_unix_s or 0) <= at_s else replace(row, ended_unix_s=None)
        for row in read_incidents(engine, slo)
        if row.fired_unix_s <= at_s
    ][:most]
    shown = {(each.severity, each.fired_unix_s) for each in alerted}
    return SloIncidents(
        alerted,
        [
            row
            for row in read_notifications(engine, slo)
            if (row.severity, row.fired_unix_s) in shown
        ],
    )
