"""Evaluate objectives while Tailspan runs, and print the start and the end of each incident."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import click

from alerts.evaluation.counting import EVALUATION_S
from alerts.evaluation.evaluator import ARRIVAL_S, Evaluator
from alerts.evaluation.incidents import Incident
from telemetry import time_text
from telemetry.engines import EngineSample
from telemetry.request_rows import RequestRows
from telemetry.requests import RequestTimeline
from telemetry.tasks import Task


class Evaluating:
    """Evaluates the objectives every 15 s, and prints new incidents.

    A sender may deliver old requests when it starts. When the first request arrives that has just
    ended, all old requests have arrived. An evaluation then runs immediately, so that an incident
    among the old requests is found without a delay.

    Args:
        evaluator: evaluates the objectives.
        clock_unix_ns: returns the current time.
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
        self._printed: set[tuple[str, str, int, bool]] = set()
        self._present_seen = False
        self._due = asyncio.Event()

    def on_stored(
        self, requests: Sequence[RequestTimeline], samples: Sequence[EngineSample]
    ) -> None:
        """Trigger an evaluation when the first request arrives that has just ended.

        Called on the event loop.
        """
        if self._present_seen or not requests:
            return
        rows = RequestRows.of(requests)
        since_ns = self._clock_unix_ns() - ARRIVAL_S * 10**9
        times = zip(rows.column("received_unix_ns"), rows.column("e2e_s"), strict=True)
        if any(received_ns + (e2e_s or 0) * 10**9 >= since_ns for received_ns, e2e_s in times):
            self._present_seen = True
            self._due.set()

    async def run(self, task: Task) -> None:
        """Evaluate until cancelled.

        Args:
            task: records each successful evaluation.

        Raises:
            StoreError: the database does not respond. The next call continues where this call
                stopped.
        """
        while True:
            self._due.clear()
            await self.step()
            task.succeeded(time.time())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), EVALUATION_S)

    async def step(self) -> None:
        """Evaluate once.

        Raises:
            StoreError: the database does not respond. The next step continues where this step
                stopped.
        """
        now_s = self._clock_unix_ns() // 10**9
        for incident in await asyncio.to_thread(self._evaluator.evaluate, now_s):
            over = incident.ended_s is not None
            key = (incident.slo, incident.severity, incident.fired_s, over)
            if key not in self._printed:
                self._printed.add(key)
                with suppress(OSError):  # the terminal is gone; notifications are still sent
                    click.echo(sentence(incident))
        self._evaluated()


def sentence(incident: Incident) -> str:
    """Return a line about an incident: objective, severity and start."""
    began = time_text.moment(incident.began_s * 10**9)
    peak = f"{float(incident.peak_burn):.1f}"
    if incident.ended_s is None:
        return (
            f"{incident.severity}: objective {incident.slo} has been burning its budget too fast"
            f" since {began} UTC, now {peak} times too fast: tailspan slo status"
        )
    lasted = time_text.length((incident.ended_s - incident.began_s) * 10**9)
    return (
        f"resolved: the {incident.severity} of objective {incident.slo}, since {began} UTC, lasted"
        f" {lasted} and peaked at {peak} times too fast"
    )
