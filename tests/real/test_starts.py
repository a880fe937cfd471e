"""The parts of real starts: eager and compiled, forked and spawned, and with several engines.

On a CPU, vLLM runs each worker in a process of its own, so the workers' reports are tested too.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rig.load import Call, send_all
from telemetry.cold_starts import PARTS

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

BEFORE = {"scheduling", "image_pull", "init_containers", "container"}
"""Parts before the server's first process, read from Kubernetes."""
_CALLS = [Call(chat=False, prompt="begin", max_tokens=4)] * 8


def starts_of(tailspan: Any, server: Any, number: int = 1) -> list[dict[str, Any]]:
    """Return the stored starts of a server, once there are at least this many."""
    replica = f"vllm-{server.port}"
    deadline = time.monotonic() + 30
    found: list[dict[str, Any]] = []
    while time.monotonic() < deadline:
        found = tailspan.query(
            "SELECT * FROM cold_starts WHERE replica = ? ORDER BY engine", replica
        )
        if len(found) >= number:
            break
        send_all(server.port, _CALLS, concurrency=8)
        time.sleep(0.5)
    return found


def parts_of(row: dict[str, Any]) -> dict[str, float]:
    return {part: row[f"{part}_s"] for part in PARTS if row[f"{part}_s"] is not None}


def begin(start_module_vllm: Callable[..., Any], *arguments: str, **environ: str) -> Any:
    """Start a server, and note when it began and when it was healthy."""
    began = time.time()
    server = start_module_vllm(*arguments, **environ)
    server.began, server.healthy = began, time.time()
    return server


def test_the_parts_of_an_eager_and_a_compiled_start_sum_to_the_start(
    start_module_vllm: Callable[..., Any], tailspan: Any, tmp_path: Path
) -> None:
    """The parts sum to the time until /health, which the test requests every 0.5 s."""
    caches = {"VLLM_CACHE_ROOT": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch")}
    compiled = {}
    for name, flag, method in (
        ("eager", "--enforce-eager", "spawn"),
        ("compiled", "--no-enforce-eager", "fork"),
    ):
        server = begin(start_module_vllm, flag, VLLM_WORKER_MULTIPROC_METHOD=method, **caches)
        send_all(server.port, _CALLS, concurrency=8)
        (row,) = starts_of(tailspan, server)
        parts = parts_of(row)
        assert sum(parts.values()) == pytest.approx(row["length_s"], abs=1e-3)
        assert set(parts) == set(PARTS) - BEFORE - {"unsplit"}
        assert row["at_unix_ns"] / 1e9 == pytest.approx(server.began, abs=1.0)
        assert row["length_s"] == pytest.approx(server.healthy - server.began, abs=1.0)
        compiled[name] = parts["compile"]
        server.stop()
    assert compiled["compiled"] > compiled["eager"] + 1.0


def test_several_api_servers_report_one_start_and_each_engine_its_own(
    start_module_vllm: Callable[..., Any], tailspan: Any
) -> None:
    server = begin(start_module_vllm, "--api-server-count", "2", "--data-parallel-size", "2")
    rows = starts_of(tailspan, server, 2)
    time.sleep(3)  # wait for the other API server's report
    rows = starts_of(tailspan, server, 2)
    assert [row["engine"] for row in rows] == [0, 1]
    for row in rows:
        parts = parts_of(row)
        assert sum(parts.values()) == pytest.approx(row["length_s"], abs=1e-3)
        assert "unsplit" not in parts
        assert row["length_s"] == pytest.approx(server.healthy - server.began, abs=1.5)
    server.stop()
