"""Tests of the prober against a real vLLM, behind a proxy that disturbs the connections."""

import asyncio
import json
import ssl
import statistics
import threading
import time
from typing import Any

import pytest

from probe.budget import ProbeBudget
from probe.plan import DailyLimits, Endpoint
from probe.prompts import fresh_prompt
from probe.run_probe import Due, Prober
from probe.sender import ResultSender
from rig.load import mixed, send_all
from rig.network_proxy import Disturbance, first_events, network_proxy
from telemetry.probes import PROBE_TENANT, Probe, ProbeOutcome
from tests.real.conftest import reports_request_times

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

RESOLUTION_S = 1e-6
"""Response and span have the same instants of vLLM's clock, but spans are rounded to 1 ns."""

KINDS = ("openai-chat", "openai-completions", "openai-responses", "anthropic-messages")


def _endpoint(port: int, kind: str = "openai-chat", max_tokens: int = 8) -> Endpoint:
    return Endpoint(
        name="tiny",
        kind=kind,
        url=f"http://127.0.0.1:{port}",
        model="tiny",
        max_tokens=max_tokens,
        prompt_tokens=40,
    )


def _prober() -> Prober:
    context = ssl.create_default_context()
    return Prober(
        "here", ProbeBudget(DailyLimits(), lambda *_: None, None), lambda *_: None, context, {}
    )


async def _probe(endpoint: Endpoint, within_s: float = 30.0) -> Probe:
    now = asyncio.get_running_loop().time()
    due = Due(now, time.time_ns(), now + within_s)
    return await _prober().send(endpoint, fresh_prompt(endpoint), False, due)


def _spoilt(port: int, disturbance: Disturbance, times: int = 1, **about: Any) -> list[Probe]:
    async def run() -> list[Probe]:
        async with network_proxy(port, disturbance) as proxy:
            within_s = about.pop("within_s", 30.0)
            return [await _probe(_endpoint(proxy, **about), within_s) for _ in range(times)]

    return asyncio.run(run())


@pytest.mark.parametrize("kind", KINDS)
def test_a_real_vllm_answers_in_each_protocol_that_it_serves(vllm: Any, kind: str) -> None:
    # About one token in four of the random model is visible text.
    (result,) = _spoilt(vllm.port, Disturbance(), kind=kind, max_tokens=64)
    assert result.error is None
    assert result.outcome.succeeded
    assert (result.output_tokens or 0) > 0
    assert result.first_content_s is not None


@pytest.mark.parametrize(
    ("disturbance", "outcome", "error_type"),
    [
        (Disturbance(end="cut", after_bytes=900), ProbeOutcome.ERROR, "truncated"),
        (Disturbance(end="reset", after_bytes=900), ProbeOutcome.ERROR, "truncated"),
        (Disturbance(end="cut"), ProbeOutcome.ERROR, "disconnected"),
        (Disturbance(end="stall", after_bytes=900), ProbeOutcome.TIMEOUT, "timeout"),
    ],
    ids=["cut", "reset", "closed", "stall"],
)
def test_a_disturbed_response_of_a_real_vllm_is_a_failure(
    vllm: Any, disturbance: Disturbance, outcome: ProbeOutcome, error_type: str
) -> None:
    (result,) = _spoilt(vllm.port, disturbance, max_tokens=200, within_s=3.0)
    assert (result.outcome, result.error_type) == (outcome, error_type)


def test_a_stall_is_the_longest_gap(vllm: Any) -> None:
    disturbance = Disturbance(end="stall", after_bytes=1500, stall_s=0.7)
    results = _spoilt(vllm.port, disturbance, times=5, max_tokens=100)
    assert all(each.outcome.succeeded for each in results)
    # The random model ends some responses before the stall; other programs lengthen some gaps.
    gaps_s = [each.itl_max_s or 0.0 for each in results]
    assert min(gap_s for gap_s in gaps_s if gap_s > 0.5) == pytest.approx(0.7, abs=0.05)


@pytest.mark.parametrize("delay_s", [0.1, 0.3])
def test_network_time_is_the_proxys_delay(vllm: Any, tailspan: Any, delay_s: float) -> None:
    """vLLM and the prober share the cores here; benchmarks/probe.py measures the accuracy."""
    split = Disturbance(up_s=delay_s * 0.25, down_s=delay_s * 0.75)
    results = _spoilt(vllm.port, split, times=20)
    assert all(each.outcome.succeeded for each in results)

    async def send() -> None:
        sender = ResultSender(tailspan.address("http"), "here", {})
        for each in results:
            sender.offer(each)
        await sender.flush(10.0)
        assert (sender.sent, sender.dropped) == (len(results), 0), sender.trouble

    asyncio.run(send())
    wanted = {each.trace_id for each in results}
    tailspan.wait_for_rows(wanted)
    asked = ("requests", "--last", "1h", "--where", f"tenant={PROBE_TENANT}", "--format", "json")
    done = tailspan.run(*asked)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    network_s = {row["trace_id"]: row["network_s"] for row in rows if row["trace_id"] in wanted}
    assert len(network_s) == len(results)
    assert None not in network_s.values()
    added_s = [
        up.delay_s + down.delay_s
        for up, down in zip(split.up, first_events(split.down), strict=True)
    ]
    errors_s = [
        network_s[each.trace_id] - known for each, known in zip(results, added_s, strict=True)
    ]
    added = statistics.median(added_s)
    assert added >= delay_s
    assert abs(statistics.median(errors_s)) <= 0.25 * added, sorted(errors_s)


def test_the_times_in_a_response_are_those_of_the_plugin(vllm: Any, tailspan: Any) -> None:
    if not reports_request_times():
        pytest.skip("this vLLM has no --enable-per-request-metrics (0.25 and newer)")
    results = [
        result
        for kind in ("openai-chat", "openai-completions")
        for result in _spoilt(vllm.port, Disturbance(), times=5, kind=kind, max_tokens=16)
    ]
    load = threading.Thread(
        target=send_all, args=(vllm.port, mixed(80, seed=5)), kwargs={"concurrency": 24}
    )
    load.start()
    results += _spoilt(vllm.port, Disturbance(), times=15, max_tokens=16)
    load.join()
    assert all(each.outcome.succeeded for each in results)
    wanted = {each.trace_id for each in results}
    tailspan.wait_for_rows(wanted)
    rows = {row["trace_id"]: row for row in tailspan.query("SELECT * FROM requests")}
    pairs = [
        (getattr(each, f"server_{phase}_s"), rows[each.trace_id][f"{phase}_s"])
        for each in results
        for phase in ("queue", "prefill", "decode")
    ]
    assert all(reported is not None and measured is not None for reported, measured in pairs)
    assert max(reported for reported, _ in pairs) > 0.01, "some request queued or decoded for long"
    apart_s = [abs(reported - measured) for reported, measured in pairs]
    assert max(apart_s) <= RESOLUTION_S, max(apart_s)
