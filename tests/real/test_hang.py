import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from rig.load import Call, send
from rig.serve import engine_cores
from telemetry.engines import HUNG_S

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

RULES = Path(__file__).parents[2] / "alerts/rules/tailspan.yaml"
REQUESTS = 3


@pytest.fixture(scope="module")
def server(start_module_vllm: Callable[..., Any]) -> Any:
    """Return a server of its own for this module, because the tests stop its engine."""
    return start_module_vllm()


def series(tailspan: Any, port: int) -> dict[str, float]:
    """Return the series of one replica's unfinished requests, with their labels."""
    found = {}
    for line in tailspan.metrics().splitlines():
        name = re.match(r"tailspan_engine_(in_flight|oldest_request|last_step)_\w+\{", line)
        if name and f'replica="vllm-{port}"' in line:
            labelled, value = line.rsplit(" ", 1)
            found[labelled] = float(value)
    return found


def value(found: dict[str, float], name: str) -> float | None:
    return next((v for labelled, v in found.items() if labelled.startswith(name + "{")), None)


class Counts(NamedTuple):
    good: int
    bad: int


def counts(tailspan: Any) -> Counts:
    found = dict(
        re.findall(
            r'^tailspan_slo_(events|good_events)_total\{slo="chat"\} (\d+)',
            tailspan.metrics(),
            re.M,
        )
    )
    good, events = int(found["good_events"]), int(found["events"])
    return Counts(good, events - good)


def settled_counts(tailspan: Any) -> Counts:
    """Wait until the counts no longer change, and return them. The server sends spans every 5 s."""
    before = counts(tailspan)
    for _ in range(20):
        time.sleep(7)
        after = counts(tailspan)
        if after == before:
            return after
        before = after
    raise AssertionError(before)


def stored_counts(tailspan: Any) -> Counts:
    found = json.loads(tailspan.run("slo", "status", "--format", "json").stdout)
    return Counts(found["events"] - found["bad"], found["bad"])


def wait_for_bad(tailspan: Any, bad: int, within_s: float) -> Counts:
    deadline = time.monotonic() + within_s
    while (found := counts(tailspan)).bad < bad:
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    return found


def wait_for_step_age(
    tailspan: Any, port: int, above_s: float, within_s: float
) -> dict[str, float]:
    deadline = time.monotonic() + within_s
    while True:
        found = series(tailspan, port)
        age_s = value(found, "tailspan_engine_last_step_age_seconds")
        if age_s is not None and age_s > above_s:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(1)


def test_a_hung_engine_is_seen_and_its_requests_are_counted_once(
    server: Any, tailspan: Any, promtool: str, tmp_path: Path
) -> None:
    (core,) = engine_cores(server.process)
    send(server.port, Call(max_tokens=4))
    calls = [
        Call(prompt=f"number {number}", max_tokens=512, begun=threading.Event())
        for number in range(REQUESTS)
    ]
    with ThreadPoolExecutor(REQUESTS) as pool:
        waiting = [pool.submit(send, server.port, call) for call in calls]
        for call in calls:
            assert call.begun is not None
            assert call.begun.wait(60)
        os.kill(core, signal.SIGSTOP)
        try:
            found = wait_for_step_age(tailspan, server.port, HUNG_S, 3 * HUNG_S)
            doctor = tailspan.run("doctor", "--no-explorer")
            status = tailspan.run("slo", "status")
        finally:
            os.kill(core, signal.SIGCONT)
        timed = [each.result(120) for each in waiting]

    assert value(found, "tailspan_engine_in_flight_requests") == REQUESTS
    oldest_s = value(found, "tailspan_engine_oldest_request_age_seconds")
    assert oldest_s is not None
    assert oldest_s > HUNG_S
    words = (
        f"vllm-{server.port} has {REQUESTS} requests running, but its engine has taken no step for"
    )
    assert words in doctor.stdout
    assert words in status.stderr
    assert status.returncode == 1
    assert_alert_fires(promtool, tmp_path, found)

    assert [each.status for each in timed] == [200] * REQUESTS
    wanted = {each.trace_id for each in timed}
    assert set(tailspan.rows(wanted)) == wanted
    listed = tailspan.run("requests", "--last", "1h", "--format", "json").stdout.splitlines()
    rows = [json.loads(line)["trace_id"] for line in listed]
    assert sorted(each for each in rows if each in wanted) == sorted(wanted)
    deadline = time.monotonic() + 30
    while value(series(tailspan, server.port), "tailspan_engine_in_flight_requests") != 0:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert value(series(tailspan, server.port), "tailspan_engine_last_step_age_seconds") is None


def test_a_request_that_waits_for_a_hung_engine_is_bad_at_once_and_once(
    server: Any, tailspan: Any
) -> None:
    (core,) = engine_cores(server.process)
    send(server.port, Call(max_tokens=4))
    settled = settled_counts(tailspan)
    calls = [Call(prompt=f"late {number}", max_tokens=4) for number in range(REQUESTS)]
    with ThreadPoolExecutor(REQUESTS) as pool:
        os.kill(core, signal.SIGSTOP)
        try:
            waiting = [pool.submit(send, server.port, call) for call in calls]
            # A request in flight is first reported at an age of 5 s, and then every 10 s.
            # Evaluation runs every 15 s, with a delay of 15 s.
            during = wait_for_bad(tailspan, settled.bad + REQUESTS, within_s=60)
            assert not any(each.done() for each in waiting)
            stored = stored_counts(tailspan)
        finally:
            os.kill(core, signal.SIGCONT)
        timed = [each.result(120) for each in waiting]
    assert during == Counts(settled.good, settled.bad + REQUESTS)
    assert stored.bad == during.bad

    wanted = {each.trace_id for each in timed}
    assert set(tailspan.rows(wanted)) == wanted
    assert settled_counts(tailspan) == during
    assert stored_counts(tailspan) == during


def test_an_engine_that_hung_while_idle_is_seen_with_its_first_request(
    server: Any, tailspan: Any
) -> None:
    (core,) = engine_cores(server.process)
    send(server.port, Call(max_tokens=4))
    time.sleep(5)
    with ThreadPoolExecutor(1) as pool:
        os.kill(core, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            waiting = pool.submit(send, server.port, Call(max_tokens=4))
            found = wait_for_step_age(tailspan, server.port, above_s=10, within_s=HUNG_S)
            passed_s = time.monotonic() - begun
        finally:
            os.kill(core, signal.SIGCONT)
        timed = waiting.result(120)
    assert value(found, "tailspan_engine_in_flight_requests") == 1
    age_s = value(found, "tailspan_engine_last_step_age_seconds")
    assert age_s is not None
    assert age_s <= passed_s
    assert set(tailspan.rows({timed.trace_id})) == {timed.trace_id}


def assert_alert_fires(promtool: str, folder: Path, found: dict[str, float]) -> None:
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [
                    {"series": labelled, "values": f"{number}x8"}
                    for labelled, number in found.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": "count by (severity) (ALERTS{alertname='TailspanEngineHung',"
                        "alertstate='firing'})",
                        "eval_time": "1m",
                        "exp_samples": [{"labels": '{severity="page"}', "value": 1}],
                    }
                ],
            }
        ],
    }
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump(test))
    done = subprocess.run(
        [promtool, "test", "rules", path], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
