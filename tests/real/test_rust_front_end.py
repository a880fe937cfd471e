import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rig.load import Call, Timed, mixed, send, send_all
from rig.rust_front_end import ensure_rust_front_end
from rig.serve import engine_cores
from tests.real.conftest import Row, Watching, assert_parts_sum

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def rust(installed: None) -> dict[str, str]:
    """Return the variables that select the Rust front end of the same vLLM version."""
    from rig.install import ProgramUnavailableError

    try:
        program = ensure_rust_front_end()
    except ProgramUnavailableError as reason:
        pytest.skip(str(reason))
    return {"VLLM_USE_RUST_FRONTEND": "1", "VLLM_RUST_FRONTEND_PATH": str(program)}


@pytest.fixture(scope="module")
def server(rust: dict[str, str], start_module_vllm: Callable[..., Any]) -> Any:
    return start_module_vllm(**rust)


def rows_of(tailspan: Watching, seen: Iterable[Timed], patience_s: float = 20) -> dict[str, Row]:
    """Wait for the rows of these responses, and return them by request id.

    The Rust front end of vLLM 0.32 does not pass the trace context to the engine.
    """
    wanted = {timed.request_id for timed in seen}
    deadline = time.monotonic() + patience_s
    while True:
        rows = tailspan.query("SELECT * FROM requests WHERE source = 'instrumentation'")
        found = [row for row in rows if row["request_id"] in wanted]
        if len(found) >= len(wanted) or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert len({row["request_id"] for row in found}) == len(found), "a row is double"
    return {row["request_id"]: row for row in found}


def test_every_request_has_a_row_without_the_http_edge(server: Any, tailspan: Any) -> None:
    seen = send_all(server.port, mixed(60, seed=31), concurrency=8)
    assert {timed.status for timed in seen} == {200}
    rows = rows_of(tailspan, seen)
    assert len(rows) == 60
    for timed in seen:
        row = rows[str(timed.request_id)]
        assert (row["basis"], row["outcome"]) == ("engine", "length")
        assert row["operation"] == ("chat" if timed.call.chat else "text_completion")
        assert (row["replica"], row["engine"], row["model"]) == (f"vllm-{server.port}", 0, "tiny")
        assert row["output_tokens"] == timed.call.max_tokens
        assert row["prompt_tokens"] > 0
        assert row["cached_tokens"] >= 0
        assert row["preemptions"] == 0
        assert row["billed_s"] > 0
        for unknown in ("frontend_s", "delivery_s", "http_status", "route", "tenant", "streamed"):
            assert row[unknown] is None, unknown
        phases = row["queue_s"] + row["prefill_s"] + row["decode_s"]
        assert phases == pytest.approx(row["e2e_s"], abs=1e-6)
        assert row["ttft_s"] == pytest.approx(row["queue_s"] + row["prefill_s"], abs=1e-6)
        assert 0 < row["e2e_s"] < timed.e2e_s
        assert_parts_sum(row)
        assert row["waiting_at_arrival"] is not None


def test_repeated_prompts_are_cached_and_aborts_are_rows(server: Any, tailspan: Any) -> None:
    # If the test runs again, its prompt must not be in the cache.
    beginning = f"{time.time_ns()} begins "
    call = Call(chat=False, prompt=beginning * 24, max_tokens=8)
    seen = [send(server.port, call), send(server.port, call)]
    rows = rows_of(tailspan, seen)
    cached = [rows[str(timed.request_id)]["cached_tokens"] for timed in seen]
    assert cached[0] < cached[1]
    left = send(server.port, Call(prompt="leave", max_tokens=1500, abort_after_chunks=5))
    (row,) = rows_of(tailspan, [left]).values()
    assert row["outcome"] == "abort"
    assert 0 < row["output_tokens"] < 1500
    assert row["queue_s"] + row["prefill_s"] + row["decode_s"] == pytest.approx(row["e2e_s"])


def test_the_engine_is_sampled_and_its_start_reported(server: Any, tailspan: Any) -> None:
    send_all(server.port, mixed(20, seed=32), concurrency=4)
    time.sleep(3)
    last = tailspan.samples(f"vllm-{server.port}")[-1]
    assert last["steps_total"] > 0
    assert last["busy_s_total"] > 0
    assert last["kv_usage_ratio"] is not None
    assert last["prefix_cache_queries_tokens_total"] > 0
    assert last["core_cpu_s_total"] > 0
    assert (last["running"], last["waiting"], last["in_flight"]) == (0, 0, 0)
    # Only a front end with the plugin counts decoded tokens. Unknown totals are absent, not zero.
    assert last["decode_tokens_total"] is None
    printed = map(json.loads, tailspan.run("config", "--format", "json").stdout.splitlines())
    (start,) = [each for each in printed if each["replica"] == f"vllm-{server.port}"]
    assert start["arguments"]["scheduler.max_num_seqs"] == 16


def test_the_log_and_the_doctor_name_the_server(server: Any, tailspan: Any) -> None:
    assert len(re.findall("front end is not Python", server.printed)) == 1
    printed = tailspan.run("doctor", "--no-explorer").stdout
    assert f"vllm-{server.port}: the front end is not Python" in printed


def test_no_row_is_lost_or_double_if_an_engine_core_is_killed(server: Any, tailspan: Any) -> None:
    answered = send_all(server.port, mixed(40, seed=34), concurrency=8)
    time.sleep(3)
    with ThreadPoolExecutor() as pool:
        begun = [
            pool.submit(send, server.port, Call(prompt=f"cut {n}", max_tokens=1500))
            for n in range(4)
        ]
        time.sleep(1)
        (core,) = engine_cores(server.process)
        os.kill(core, signal.SIGKILL)
        for each in begun:
            each.exception(timeout=60)
    assert len(rows_of(tailspan, answered)) == 40


def test_two_engines_behind_one_rust_front_end(
    rust: dict[str, str], start_vllm: Callable[..., Any], tailspan: Any
) -> None:
    """Each engine core reports its own requests, under the name of the server."""
    server = start_vllm("--data-parallel-size", "2", **rust)
    seen = send_all(server.port, mixed(60, seed=33), concurrency=8)
    rows = rows_of(tailspan, seen)
    assert len(rows) == 60
    assert {row["engine"] for row in rows.values()} == {0, 1}
    assert {row["replica"] for row in rows.values()} == {f"vllm-{server.port}"}
    samples = tailspan.samples(f"vllm-{server.port}")
    assert len({(row["process"], row["engine"]) for row in samples}) == 2
