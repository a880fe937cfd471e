"""The notifications of incidents, for `tailspan slo status`."""

from collections.abc import Sequence
from typing import Any, Final

import click

from alerts.notify.message import Transition
from cli.render import text
from telemetry import time_text
from telemetry.notifications import Delivery, Notification

WIDEST_PROBLEM: Final = 100
_WHAT: Final = {Transition.FIRING: "the beginning", Transition.RESOLVED: "the end"}
_UPDATE: Final = "the update"
"""A message with the likely cause. It is sent after the message about the start of the incident."""


def as_json(row: Notification) -> dict[str, Any]:
    """A notification as JSON."""
    return {
        "severity": row.severity,
        "fired": row.fired_unix_s,
        "transition": row.transition,
        "channel": row.channel,
        "state": row.state,
        "failures": row.failures,
        "delivered": row.delivered_unix_s,
        "next": row.next_unix_s,
        "problem": row.problem,
    }


def print_undelivered(rows: Sequence[Notification]) -> None:
    """Print the notifications that were not delivered, and why."""
    untold = [
        row
        for row in rows
        if row.state != Delivery.DELIVERED or (row.problem and row.next_unix_s is None)
    ]
    if not untold:
        return
    header = ["not notified", "of", "incident of (UTC)", "state", "failed", "why"]
    cells = [
        [
            row.channel,
            _UPDATE if row.state == Delivery.DELIVERED else _WHAT[Transition(row.transition)],
            time_text.moment(row.fired_unix_s * 10**9),
            "to be tried" if row.state == Delivery.PENDING else "given up",
            f"{row.failures:,}",
            text.printable(row.problem or text.UNKNOWN, WIDEST_PROBLEM),
        ]
        for row in untold
    ]
    for line in text.table(header, cells, left=4, keep=len(header)):
        click.echo(f"  {line}")
    click.echo()
