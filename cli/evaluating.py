"""Evaluating objectives while Tailspan runs: every 15 s, and a line when one burns."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import click

from alerts.counting import EVALUATION_S
from alerts.evaluator import Evaluator
from alerts.incidents import Incident
from cli import times
from store.errors import StoreError

_log = logging.getLogger(__name__)


async def evaluate_for_ever(
    evaluator: Evaluator,
    clock_unix_ns: Callable[[], int],
    evaluated: Callable[[], None] = lambda: None,
) -> None:
    """Evaluate until cancelled. A store that is away is asked again the next time.

    Args:
        evaluator: what does it.
        clock_unix_ns: the present.
        evaluated: called after each.
    """
    told: set[tuple[str, str, int, bool]] = set()
    while True:
        try:
            changed = await asyncio.to_thread(evaluator.evaluate, clock_unix_ns() // 10**9)
        except StoreError as error:
            _log.warning("objectives could not be evaluated: %s", error)
        else:
            for incident in changed:
                over = incident.ended_s is not None
                key = (incident.slo, incident.severity, incident.fired_s, over)
                if key not in told:
                    told.add(key)
                    with suppress(OSError):  # nobody reads; who is notified still hears of it
                        click.echo(sentence(incident))
            evaluated()
        await asyncio.sleep(EVALUATION_S)


def sentence(incident: Incident) -> str:
    """An incident in a line: what, how bad, since when."""
    began = times.moment(incident.began_s * 10**9)
    peak = f"{float(incident.peak_burn):.1f}"
    if incident.ended_s is None:
        return (
            f"{incident.severity}: objective {incident.slo} has burned its budget too fast since"
            f" {began} UTC, now {peak} times: tailspan slo status"
        )
    lasted = times.length((incident.ended_s - incident.began_s) * 10**9)
    return (
        f"over: the {incident.severity} of objective {incident.slo}, since {began} UTC, lasted"
        f" {lasted} and peaked at {peak} times too fast"
    )
