import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rig.load import Call, Timed, mixed, send, send_all
from rig.serve import engine_cores
from tests.real.conftest import write_plugin

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

NOBODY = 65534

PROBE = """
import json, os, sys, threading, time

made = []

def begin():
    threading.Thread(target=look, name="probe", daemon=True).start()

def remember(cls):
    original = cls.__init__
    def init(self, *args, **kwargs):
        made.append(self)
        original(self, *args, **kwargs)
    cls.__init__ = init

def look():
    until, watched = time.monotonic() + 120, False
    while time.monotonic() < until:
        time.sleep(0.2)
        # It is imported some seconds before it is made: the engine core starts in between.
        cls = getattr(sys.modules.get("tailspan_vllm.statlogger"), "TailspanStatLogger", None)
        if cls is not None and not watched:
            watched = True
            remember(cls)
        wrapped = []
        for module, name in (
            ("vllm.v1.core.sched.scheduler", "Scheduler"),
            ("vllm.v1.engine.output_processor", "OutputProcessor"),
            ("fastapi", "FastAPI"),
        ):
            owner = getattr(sys.modules.get(module), name, None)
            for key, value in (vars(owner) if owner else {}).items():
                if "tailspan" in (getattr(getattr(value, "__code__", None), "co_filename", "")):
                    wrapped.append(key)
        report = {
            "threads": [each.name for each in threading.enumerate()],
            "loggers": [sorted(vars(each)) for each in made],
            "wrapped": wrapped,
        }
        path = os.environ["PROBE_INTO"] + f"/{os.getpid()}"
        with open(path + ".new", "w") as file:
            json.dump(report, file)
        os.rename(path + ".new", path)
"""


def links(pid: int) -> list[str]:
    lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    names = {line.partition("@tailspan-")[2] for line in lines if "@tailspan-" in line}
    return [f"tailspan-{name}" for name in names if name.endswith(f"-{pid}")]


def assert_parts(tailspan: Any, seen: list[Timed], patience_s: float = 20) -> None:
    """Check that every request has a row with the engine's account."""
    rows = tailspan.rows({timed.trace_id for timed in seen}, patience_s)
    assert len(rows) == len(seen)
    without = [row["request_id"][:40] for row in rows.values() if row["others_prefill_s"] is None]
    assert without == []


def a_foreign_connection(name: str, served: Callable[[], None]) -> bytes:
    """Return the bytes that another user's process receives on the link during requests."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as foreign:
        foreign.settimeout(20)
        mine = os.geteuid()
        os.seteuid(NOBODY)  # the kernel records the user at the connection
        try:
            foreign.connect("\0" + name)
        finally:
            os.seteuid(mine)
        served()
        try:
            return foreign.recv(1 << 20)
        except ConnectionResetError:
            return b""


def test_a_huge_id_and_a_foreign_process_lose_no_account(vllm: Any, tailspan: Any) -> None:
    send_all(vllm.port, mixed(80, seed=1), concurrency=8)  # the step model needs these requests
    before = send_all(vllm.port, mixed(20, seed=2), concurrency=8)
    done = threading.Event()
    hostile: list[Timed] = []

    def attack() -> None:
        while not done.is_set() and len(hostile) < 20:
            name = f"{len(hostile)}-" + "x" * 300_000
            hostile.append(send(vllm.port, Call(max_tokens=8, body={"request_id": name})))

    attacker = threading.Thread(target=attack)
    attacker.start()
    during = send_all(vllm.port, mixed(60, seed=3), concurrency=4)
    done.set()
    attacker.join()
    assert {timed.status for timed in (*hostile, *during)} == {200}
    assert_parts(tailspan, before)
    assert_parts(tailspan, during)
    assert_parts(tailspan, hostile)

    if os.geteuid() == 0:
        (core,) = engine_cores(vllm.process)
        (name,) = links(core)
        after: list[Timed] = []
        for _ in range(20):  # more connections than the listen queue accepts
            got = a_foreign_connection(
                name, lambda: after.append(send(vllm.port, Call(max_tokens=4)))
            )
            assert got == b""
        assert_parts(tailspan, after)
        assert vllm.printed.count("refused a connection to the engine's link") == 1
    assert "failed; vLLM continues" not in vllm.printed


def test_if_disabled_no_plugin_code_runs_while_vllm_serves(
    start_vllm: Callable[..., Any], tailspan: Any, tmp_path: Path
) -> None:
    """vLLM requires a stat logger, so an empty one is used."""
    write_plugin(tmp_path, "probe", PROBE, "probe = probe:begin")
    into = tmp_path / "accounts"
    into.mkdir()
    server = start_vllm(
        PYTHONPATH=str(tmp_path),
        PROBE_INTO=str(into),
        OTEL_SDK_DISABLED="true",
        VLLM_WORKER_MULTIPROC_METHOD="spawn",  # each process loads the plugins, including PROBE
    )
    seen = send_all(server.port, mixed(60, seed=4), concurrency=8)
    assert all(timed.status == 200 for timed in seen)
    time.sleep(3)
    (core,) = engine_cores(server.process)
    values = {int(file.name): json.loads(file.read_text()) for file in into.glob("*[0-9]")}
    assert {server.process.pid, core} <= values.keys()
    for process in values.values():
        assert [name for name in process["threads"] if "tailspan" in name] == []
        assert process["wrapped"] == []
    assert values[server.process.pid]["loggers"] == [[]]
    assert links(core) == []
    assert "tailspan: " not in server.printed  # vLLM itself logs the names of its plugins
    assert tailspan.rows({timed.trace_id for timed in seen}, patience_s=3) == {}
