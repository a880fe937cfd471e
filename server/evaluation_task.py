"""Evaluate objectives, and print the start and the end of each incident."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import click

from alerts.evaluation.counting import EVALUATION_S
from alerts.evaluation.evaluator import ARRIVAL_S, Evaluator
from alerts.evaluation.incidents import Incident
from store.errors import LeaseLost
from store.leases import EVALUATION, Leases, LeaseTerm
from telemetry import time_text
from telemetry.engines import EngineSample
from telemetry.request_rows import RequestRows
from telemetry.requests import RequestTimeline
from telemetry.tasks import Task

_log = logging.getLogger(__name__)


class EvaluationTask:
    """Evaluates the objectives every `EVALUATION_S` seconds.

    An evaluation starts immediately when the first recent request arrives, because a sender may
    send old requests first. If several collectors share a database, only the holder of the lease
    evaluates. The other collectors read its results.

    Args:
        evaluated: called after each evaluation. In the other collectors, it is called after the
            results were read.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        clock_unix_ns: Callable[[], int],
        leases: Leases,
        evaluated: Callable[[], None] = lambda: None,
    ) -> None:
        self._evaluator = evaluator
        self._clock_unix_ns = clock_unix_ns
        self._leases = leases
        self._term: LeaseTerm | None = None
        self._evaluated = evaluated
        self._printed: set[tuple[str, str, int, bool]] = set()
        self._present_seen = False
        self._due = asyncio.Event()
        self.evaluated_unix_s: float | None = None

    def on_stored(
        self, requests: Sequence[RequestTimeline], samples: Sequence[EngineSample]
    ) -> None:
        """Trigger an evaluation at the first request that ended less than `ARRIVAL_S` ago.

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

    def evaluate_soon(self) -> None:
        """Trigger an evaluation. Called on the event loop."""
        self._due.set()

    async def run(self, task: Task) -> None:
        """Evaluate until cancelled, and record each success in `task`.

        Raises:
            StoreError: the database does not respond. The next call continues.
        """
        while True:
            self._due.clear()
            await self.step()
            task.succeeded(time.time())
            with suppress(TimeoutError):
                async with asyncio.timeout(EVALUATION_S):
                    await self._due.wait()

    async def step(self) -> None:
        """Evaluate the objectives. If a different collector evaluates them, read its results. May
        raise StoreError."""
        with self._leases.acting(EVALUATION) as term:
            if term is None:
                await asyncio.to_thread(self._evaluator.follow)
                self._evaluated()
                return
            if term != self._term:
                self._evaluator.take_over()
                self._term = term
            now_s = self._clock_unix_ns() // 10**9
            try:
                incidents = await asyncio.to_thread(self._evaluator.evaluate, now_s)
            except LeaseLost as error:
                _log.info("the evaluation was abandoned: %s", error)
                return
            self.evaluated_unix_s = time.time()
        for incident in incidents:
            over = incident.ended_s is not None
            key = (incident.slo, incident.severity, incident.fired_s, over)
            if key not in self._printed:
                self._printed.add(key)
                with suppress(OSError):  # the terminal was closed; notifications are still sent
                    click.echo(sentence(incident))
        self._evaluated()


def sentence(incident: Incident) -> str:
    """A line about an incident."""
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
