"""The fixed schedule of probes.

Each endpoint is probed at planned instants, even if earlier probes are slow. If a prober waited for
slow answers, it would send fewer probes while an endpoint is slow. The results would then hide the
slow time (coordinated omission). Each planned instant has exactly one result: an answer, a failure,
or a note that no probe was sent. The instants of different endpoints are spread over the interval.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from probe.plan import Endpoint, ProbePlan
from probe.prompts import Prompts
from probe.run_probe import Due, Prober
from telemetry.probes import Probe, ProbeOutcome

OnResult = Callable[[Probe], None]
MAX_MISSED: Final = 1_000
"""Maximum number of results for missed instants. For example, instants are missed while a laptop
sleeps."""


async def run_once(plan: ProbePlan, prober: Prober, on_result: OnResult) -> None:
    """Probe each endpoint once, all at the same instant."""
    due = _due(asyncio.get_running_loop().time(), plan.every_s)

    async def probe(endpoint: Endpoint) -> None:
        prompt, twin = Prompts(endpoint).next()
        on_result(await prober.send(endpoint, prompt, twin, due))

    await _all([probe(each) for each in plan.endpoints])


async def run_forever(plan: ProbePlan, prober: Prober, on_result: OnResult) -> None:
    """Probe each endpoint at its instants until cancelled. After that, `on_result` still gets the
    results of running probes."""
    origin, apart_s = asyncio.get_running_loop().time(), plan.every_s / len(plan.endpoints)
    await _all(
        [
            _probe_forever(each, origin + apart_s * place, plan.every_s, prober, on_result)
            for place, each in enumerate(plan.endpoints)
        ]
    )


async def _probe_forever(
    endpoint: Endpoint, first: float, every_s: float, prober: Prober, on_result: OnResult
) -> None:
    loop, prompts, number = asyncio.get_running_loop(), Prompts(endpoint), 0
    while True:
        at = first + number * every_s
        await asyncio.sleep(max(at - loop.time(), 0.0))
        due = _due(at, every_s)
        number += 1
        if (late_s := loop.time() - at) >= every_s:
            passed = int(late_s // every_s)
            if passed > MAX_MISSED:
                number += passed - MAX_MISSED
            on_result(prober.unsent(endpoint, due, ProbeOutcome.MISSED, late_s))
            continue
        prompt, twin = prompts.next()
        result = await prober.send(endpoint, prompt, twin, due)
        on_result(result)
        if not result.outcome.succeeded:
            prompts.unanswered()
        if result.outcome is ProbeOutcome.ABORT:
            return


def _due(at: float, every_s: float) -> Due:
    """The probe that was due at `at` on the event loop's clock.

    The instant is converted with the current offset of the wall clock, because the wall clock may
    have been corrected.
    """
    ago_s = asyncio.get_running_loop().time() - at
    return Due(at, time.time_ns() - int(ago_s * 1e9), at + every_s)


async def _all(probes: Sequence[Coroutine[None, None, None]]) -> None:
    await run_until([asyncio.ensure_future(each) for each in probes], asyncio.FIRST_EXCEPTION)


async def run_until(tasks: Sequence["asyncio.Future[Any]"], return_when: str) -> None:
    """Wait as `asyncio.wait` does, and then cancel the tasks that have not ended. Raise the first
    exception of a task."""
    try:
        await asyncio.wait(tasks, return_when=return_when)
    finally:
        for each in tasks:
            each.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):  # a defect of the prober
            raise end
