"""The fixed schedule: each endpoint is probed at intended instants, whatever the last probe did.

A prober that waits for slow answers sends fewer probes while an endpoint is slow, and so hides the
slowness (coordinated omission). Here the instants are fixed at the start. A probe ends before the
next one of its endpoint is due, so that each instant has exactly one result: also a probe that did
not return, was too late, or did not fit the budget.

The endpoints' instants are spread evenly over the interval, so that they do not delay each other.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Final

from probe.plan import Endpoint, Plan
from probe.prompts import Prompts
from probe.run_probe import Due, Prober
from telemetry.probes import Probe, ProbeOutcome

OnResult = Callable[[Probe], None]
MOST_MISSED: Final = 1_000
"""Maximum number of results for instants that one stop of the prober missed."""


async def run_once(plan: Plan, prober: Prober, on_result: OnResult) -> None:
    """Probe each endpoint once, all at the same instant."""
    loop = asyncio.get_running_loop()
    at, wall_ns = loop.time(), time.time_ns()
    due = Due(at, wall_ns, at + plan.every_s)

    async def probe(endpoint: Endpoint) -> None:
        prompt, twin = Prompts(endpoint).next()
        on_result(await prober.send(endpoint, prompt, twin, due))

    await _all([probe(each) for each in plan.endpoints])


async def run_forever(plan: Plan, prober: Prober, on_result: OnResult) -> None:
    """Probe each endpoint at its instants, until this task is cancelled.

    On cancellation, the results of the probes on their way are still passed to `on_result`.
    """
    loop = asyncio.get_running_loop()
    origin, wall_ns = loop.time(), time.time_ns()
    count = len(plan.endpoints)
    await _all(
        [
            _probe_forever(
                each,
                plan.every_s,
                _Instants(origin + plan.every_s * place / count, origin, wall_ns, plan.every_s),
                prober,
                on_result,
            )
            for place, each in enumerate(plan.endpoints)
        ]
    )


class _Instants:
    """The intended instants of one endpoint."""

    def __init__(self, first: float, origin: float, wall_ns: int, every_s: float) -> None:
        self._first, self._origin, self._wall_ns, self._every_s = first, origin, wall_ns, every_s
        self._next = 0

    def next(self) -> Due:
        """Return the next instant."""
        due = self._due(self._next)
        self._next += 1
        return due

    def missed(self, now: float) -> Iterator[Due]:
        """Yield the instants whose whole interval has passed."""
        passed = int((now - self._first) // self._every_s) - self._next
        skipped = max(passed - MOST_MISSED, 0)
        self._next += skipped
        for _ in range(max(passed, 0) - skipped):
            yield self.next()

    def _due(self, number: int) -> Due:
        at = self._first + number * self._every_s
        at_unix_ns = self._wall_ns + int((at - self._origin) * 1e9)
        return Due(at, at_unix_ns, at + self._every_s)


async def _probe_forever(
    endpoint: Endpoint,
    every_s: float,
    instants: _Instants,
    prober: Prober,
    on_result: OnResult,
) -> None:
    loop, prompts = asyncio.get_running_loop(), Prompts(endpoint)
    while True:
        for missed in instants.missed(loop.time()):
            late_s = loop.time() - missed.at
            on_result(prober.unsent(endpoint, missed, ProbeOutcome.MISSED, late_s))
        due = instants.next()
        await asyncio.sleep(max(due.at - loop.time(), 0.0))
        if loop.time() >= due.deadline:
            late_s = loop.time() - due.at
            on_result(prober.unsent(endpoint, due, ProbeOutcome.MISSED, late_s))
            continue
        prompt, twin = prompts.next()
        result = await prober.send(endpoint, prompt, twin, due)
        on_result(result)
        if result.outcome is ProbeOutcome.ABORT:
            return


async def _all(probes: Sequence[Coroutine[None, None, None]]) -> None:
    """Run the probes. If this task is cancelled, each probe first passes its result."""
    tasks = [asyncio.ensure_future(each) for each in probes]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for each in tasks:
            each.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):  # a defect
            raise end
