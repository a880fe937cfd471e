"""The parts of real starts: eager and compiled, forked and spawned.

On a CPU, vLLM runs each worker in a process of its own, so the workers' reports are tested too.
`test_engines.py` tests a start of several engines.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from telemetry.cold_starts import PARTS
from tests.real.conftest import assert_start_parts_sum

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

BEFORE = {"scheduling", "image_pull", "init_containers", "container"}
"""Parts before the server's first process, read from Kubernetes."""


def test_the_parts_of_an_eager_and_a_compiled_start_sum_to_the_start(
    start_vllm: Callable[..., Any], tailspan: Any, tmp_path: Path
) -> None:
    caches = {"VLLM_CACHE_ROOT": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch")}
    eager = start_vllm("--enforce-eager")
    other = start_vllm("--no-enforce-eager", VLLM_WORKER_MULTIPROC_METHOD="spawn", **caches)
    compile_s = []
    for server in (eager, other):
        (row,) = tailspan.starts(server)
        parts = assert_start_parts_sum(row, server)
        assert set(parts) == set(PARTS) - BEFORE - {"unsplit"}
        assert row["at_unix_ns"] / 1e9 == pytest.approx(server.began_s, abs=1.0)
        compile_s.append(parts["compile"])
    assert compile_s[1] > compile_s[0] + 1.0
