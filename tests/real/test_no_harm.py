import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rig.load import Call, mixed, send_all
from rig.serve import engine_cores
from tests.real.conftest import write_plugin

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

SABOTAGE = """
def break_everything():
    from tailspan_vllm import statlogger
    from tailspan_vllm.front_end import capture
    from tailspan_vllm.engine_core import observer
    def boom(*_, **__):
        raise ZeroDivisionError("sabotage")
    for owner, names in (
        (capture.Capture, ("flight_began", "flight_ended", "flight_left", "exchange_ended")),
        (observer.EngineObserver, ("_catch_up",)),
    ):
        for name in names:
            setattr(owner, name, boom)
    statlogger.add_steps = boom
"""


def test_serving_continues_and_failures_are_counted_if_every_hook_raises(
    start_vllm: Callable[..., Any], tailspan: Any, tmp_path: Path
) -> None:
    write_plugin(tmp_path, "sabotage", SABOTAGE, "sabotage = sabotage:break_everything")
    server = start_vllm(PYTHONPATH=str(tmp_path))
    seen = send_all(server.port, mixed(40, seed=31), concurrency=8)
    assert all(timed.status == 200 for timed in seen)
    deadline = time.monotonic() + 15
    counted: list[str] = []
    while not counted and time.monotonic() < deadline:
        counted = [
            line
            for line in tailspan.metrics().splitlines()
            if "hook_failures_total" in line
            and str(server.port) in line
            and not line.endswith(" 0.0")
        ]
        time.sleep(0.5)
    assert counted
    assert "sabotage" in server.printed


@pytest.mark.ends_its_server
def test_a_dead_engine_leaves_a_row_for_every_lost_request(vllm: Any, tailspan: Any) -> None:
    """SIGKILL of the engine core during a response ends the server."""
    calls = [
        Call(prompt=f"request {index}", max_tokens=1500, begun=threading.Event())
        for index in range(4)
    ]
    (core,) = engine_cores(vllm.process)

    def kill() -> None:
        for call in calls:
            assert call.begun is not None
            assert call.begun.wait(60)
        os.kill(core, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    seen = send_all(vllm.port, calls, concurrency=4)
    killer.join()
    rows = tailspan.rows({timed.trace_id for timed in seen})
    assert len(rows) == 4
    assert {row["outcome"] for row in rows.values()} == {"error"}


@pytest.mark.ends_its_server
def test_captured_requests_are_sent_before_the_server_ends(crowded: Any, tailspan: Any) -> None:
    seen = send_all(crowded.port, mixed(20, seed=33), concurrency=8)
    crowded.ends(signal.SIGTERM)
    assert len(tailspan.rows({timed.trace_id for timed in seen})) == 20
