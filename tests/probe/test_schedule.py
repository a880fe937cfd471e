"""Tests that every scheduled time has exactly one result."""

import asyncio
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from probe.plan import Endpoint, ProbePlan
from probe.run_probe import Prober
from probe.schedule import run_forever, run_once
from telemetry.probes import Probe, ProbeOutcome
from tests.probe.conftest import Script, listening
from tests.probe.recorded_shapes import CHAT

EVERY_S = 0.2


def _run(
    prober: Prober, endpoints: tuple[Endpoint, ...], script: Script, for_s: float
) -> list[Probe]:
    results: list[Probe] = []

    async def run() -> None:
        async with listening(script) as port:
            placed = tuple(replace(each, url=f"http://127.0.0.1:{port}") for each in endpoints)
            plan = ProbePlan(region="eu", every_s=EVERY_S, endpoints=placed)
            task = asyncio.ensure_future(run_forever(plan, prober, results.append))
            await asyncio.sleep(for_s)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    return results


def test_a_slow_endpoint_is_probed_as_often_as_a_fast_one(
    prober: Prober, endpoint: Endpoint
) -> None:
    results = _run(prober, (endpoint,), Script(CHAT[:2], end="silent"), 5.5 * EVERY_S)
    at = [each.at_unix_ns for each in results]
    gaps = [(b - a) / 1e9 for a, b in pairwise(at)]
    assert gaps == [pytest.approx(EVERY_S, abs=1e-3)] * 5
    assert [each.outcome for each in results] == [ProbeOutcome.TIMEOUT] * 5 + [ProbeOutcome.ABORT]


def test_a_repeated_prompt_follows_its_first_probe(prober: Prober, endpoint: Endpoint) -> None:
    script = Script(CHAT[5:])
    results = _run(prober, (endpoint,), script, 3.5 * EVERY_S)
    bodies = [body for _, _, body in script.asked]
    assert [each.twin for each in results][:4] == [False, True, False, True]
    assert bodies[0] == bodies[1]
    assert bodies[1] != bodies[2] == bodies[3]


def test_a_prompt_without_a_response_is_not_repeated(prober: Prober, endpoint: Endpoint) -> None:
    """A prompt that got no response cannot be in a cache."""
    script = Script(status="500 Oops")
    results = _run(prober, (endpoint,), script, 2.5 * EVERY_S)
    assert [each.twin for each in results] == [False] * 3
    assert len({body for _, _, body in script.asked}) == 3


def test_instants_that_a_stopped_prober_missed_are_counted(
    prober: Prober, endpoint: Endpoint
) -> None:
    results: list[Probe] = []

    async def run() -> None:
        async with listening(Script(CHAT[5:])) as port:
            placed = replace(endpoint, url=f"http://127.0.0.1:{port}")
            plan = ProbePlan(region="eu", every_s=EVERY_S, endpoints=(placed,))
            task = asyncio.ensure_future(run_forever(plan, prober, results.append))
            await asyncio.sleep(0.5 * EVERY_S)
            time.sleep(3.2 * EVERY_S)
            await asyncio.sleep(0.8 * EVERY_S)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert [each.outcome.value for each in results] == ["stop", "missed", "missed", "stop", "stop"]
    late = results[3]
    assert 0.5 * EVERY_S < (late.late_s or 0) < EVERY_S
    assert len({each.at_unix_ns for each in results}) == 5


def test_the_option_once_probes_all_endpoints_once_in_parallel(
    prober: Prober, endpoint: Endpoint
) -> None:
    results: list[Probe] = []

    async def run() -> None:
        async with listening(Script(CHAT)) as port:
            placed = tuple(
                replace(endpoint, name=f"e{number}", url=f"http://127.0.0.1:{port}")
                for number in range(20)
            )
            plan = ProbePlan(region="eu", every_s=5, endpoints=placed)
            await run_once(plan, prober, results.append)

    asyncio.run(run())
    assert sorted(each.endpoint for each in results) == sorted(f"e{n}" for n in range(20))
    assert all(each.outcome.succeeded for each in results)
    assert len({each.at_unix_ns for each in results}) == 1
