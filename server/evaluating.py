"""Evaluating objectives while Tailspan runs: a line when one burns, and another when it is over."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import click

from alerts.evaluation.evaluator import Evaluator
from alerts.evaluation.incidents import Incident
from telemetry import time_text


class Evaluating:
    """Evaluates, and prints what is new.

    Args:
        evaluator: what does it.
        clock_unix_ns: the present.
        evaluated: called after each evaluation.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        clock_unix_ns: Callable[[], int],
        evaluated: Callable[[], None] = lambda: None,
    ) -> None:
        self._evaluator = evaluator
        self._clock_unix_ns = clock_unix_ns
        self._evaluated = evaluated
        self._told: set[tuple[str, str, int, bool]] = set()

    async def step(self) -> None:
        """Evaluate once.

        Raises:
            StoreError: the database does not answer; the next step goes on.
        """
        now_s = self._clock_unix_ns() // 10**9
        for incident in await asyncio.to_thread(self._evaluator.evaluate, now_s):
            over = incident.ended_s is not None
            key = (incident.slo, incident.severity, incident.fired_s, over)
            if key not in self._told:
                self._told.add(key)
                with suppress(OSError):  # the terminal is gone; notifications are sent all the same
                    click.echo(sentence(incident))
        self._evaluated()


def sentence(incident: Incident) -> str:
    """An incident in a line: what, how bad, since when."""
    began = time_text.moment(incident.began_s * 10**9)
    peak = f"{float(incident.peak_burn):.1f}"
    if incident.ended_s is None:
        return (
            f"{incident.severity}: objective {incident.slo} has burned its budget too fast since"
            f" {began} UTC, now {peak} times: tailspan slo status"
        )
    lasted = time_text.length((incident.ended_s - incident.began_s) * 10**9)
    return (
        f"over: the {incident.severity} of objective {incident.slo}, since {began} UTC, lasted"
        f" {lasted} and peaked at {peak} times too fast"
    )
