import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rig.load import Call, mixed, send, send_all
from telemetry.engines import HUNG_S
from tests.real.conftest import (
    Vllm,
    Watching,
    assert_parts_sum,
    assert_start_parts_sum,
    share_of_queue,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

SETTLED_S = 4.0
"""The plugin sends every second, and a request waits up to 2 s for its account."""


def processes(server: Vllm, name: bytes) -> list[int]:
    """Return the processes of a server that have a given text in their titles."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title, group = (folder / "cmdline").read_bytes(), os.getpgid(int(folder.name))
        except (OSError, ProcessLookupError):
            continue
        if name in title and group == server.process.pid:
            found.append(int(folder.name))
    return sorted(found)


def core_of(server: Vllm, engine: int) -> int:
    (found,) = processes(server, b"EngineCore_DP%d" % engine)
    return found


def stored_once(tailspan: Watching, seen: list[Any]) -> bool:
    rows = tailspan.query("SELECT trace_id FROM requests WHERE source = 'instrumentation'")
    counts = Counter(row["trace_id"] for row in rows)
    return all(counts[timed.trace_id] == 1 for timed in seen)


@pytest.fixture(scope="module")
def two_engines(start_module_vllm: Callable[..., Any]) -> Any:
    """Return a server with two engines. vLLM starts an API server for each."""
    server = start_module_vllm("--data-parallel-size", "2")
    send_all(server.port, mixed(80, seed=51), concurrency=8)
    return server


@pytest.fixture(scope="module")
def two_api_servers(start_module_vllm: Callable[..., Any]) -> Any:
    server = start_module_vllm("--api-server-count", "2", "--max-num-batched-tokens", "128")
    send_all(server.port, mixed(80, seed=11), concurrency=8)
    return server


def test_two_api_servers_report_one_start_of_each_engine(two_engines: Any, tailspan: Any) -> None:
    tailspan.starts(two_engines, 2)
    time.sleep(3)  # wait for the other API server's report
    rows = tailspan.starts(two_engines, 2)
    assert [row["engine"] for row in rows] == [0, 1]
    for row in rows:
        assert_start_parts_sum(row, two_engines, within_s=1.5)


def test_rows_have_their_engine_and_its_load_on_arrival(two_engines: Any, tailspan: Any) -> None:
    seen = send_all(two_engines.port, mixed(60, seed=52), concurrency=16)
    rows = tailspan.stored(seen)
    assert len(rows) == 60
    assert {row["engine"] for row in rows.values()} == {0, 1}
    for row in rows.values():
        assert row["running_at_arrival"] is not None
        assert row["kv_usage_at_arrival"] is not None
        assert_parts_sum(row)


def test_steps_of_both_engines_are_counted_once(two_engines: Any, tailspan: Any) -> None:
    """Two API servers sample both engines, but only one server has the totals of an engine."""
    before = totals(tailspan, two_engines)
    seen = send_all(two_engines.port, mixed(60, seed=53), concurrency=8)
    rows = tailspan.stored(seen)
    time.sleep(3)
    after = totals(tailspan, two_engines)
    for engine in (0, 1):
        decoded = sum(row["output_tokens"] - 1 for row in rows.values() if row["engine"] == engine)
        assert after[engine] - before[engine] == decoded
    metrics = tailspan.metrics()
    for engine in (0, 1):
        lines = [
            line
            for line in metrics.splitlines()
            if line.startswith("tailspan_engine_steps_total")
            and f'replica="vllm-{two_engines.port}"' in line
            and f'engine="{engine}"' in line
        ]
        assert len(lines) == 1


def totals(tailspan: Watching, server: Vllm) -> dict[int, int]:
    """Return each engine's highest total of decodes, by engine number."""
    found: dict[int, int] = {}
    for row in tailspan.samples(f"vllm-{server.port}"):
        if row["decodes_total"] is not None:
            found[row["engine"]] = max(found.get(row["engine"], 0), row["decodes_total"])
    return found


def test_the_requests_of_each_engine_are_billed_its_busy_time(
    two_engines: Any, tailspan: Any
) -> None:
    replica = f"vllm-{two_engines.port}"
    rows = tailspan.stored(send_all(two_engines.port, mixed(20, seed=59), concurrency=4))
    for row in rows.values():
        assert_parts_sum(row, whole=True)
    time.sleep(SETTLED_S)
    for engine in (0, 1):
        busy_s = max(
            row["busy_s_total"]
            for row in tailspan.samples(replica)
            if row["engine"] == engine and row["busy_s_total"] is not None
        )
        statement = (
            "SELECT SUM(billed_s + wasted_s) AS s FROM requests WHERE replica=? AND engine=?"
        )
        (billed,) = tailspan.query(statement, replica, engine)
        assert billed["s"] == pytest.approx(busy_s, rel=1e-6)


@pytest.fixture
def stopped_engine(two_engines: Any) -> Iterator[Callable[[], None]]:
    """Return a function that stops engine 1 until the end of the test."""
    core = core_of(two_engines, 1)

    def stop() -> None:
        os.kill(core, signal.SIGSTOP)

    yield stop
    os.kill(core, signal.SIGCONT)


def test_a_hang_of_one_engine_is_named_while_the_other_works(
    two_engines: Any, tailspan: Any, stopped_engine: Callable[[], None]
) -> None:
    stopped_engine()
    named, deadline = "", time.monotonic() + HUNG_S + 40
    with ThreadPoolExecutor(24) as pool:
        # Some of these requests wait for engine 1. The others keep engine 0 busy.
        waiting = [
            pool.submit(send, two_engines.port, Call(prompt=f"wait {n}", max_tokens=8))
            for n in range(12)
        ]
        while "engine 1" not in named and time.monotonic() < deadline:
            headers = {"X-data-parallel-rank": "0"}
            send_all(two_engines.port, [Call(max_tokens=16, headers=headers)] * 2, 2)
            time.sleep(4)
            lines = tailspan.run("doctor", "--no-explorer").stdout.splitlines()
            named = "".join(line for line in lines if "taken no step" in line)
        os.kill(core_of(two_engines, 1), signal.SIGCONT)
        seen = [each.result(timeout=120) for each in waiting]
    assert f"vllm-{two_engines.port} has" in named
    assert "its engine 1 has taken no step" in named
    assert {row["engine"] for row in tailspan.stored(seen).values()} == {0, 1}


def test_an_engine_that_a_client_overloads_is_out_of_balance(
    two_engines: Any, tailspan: Any
) -> None:
    """Requests that name engine 1 wait there, while engine 0 is idle.

    The usual requests name both engines in turn, because vLLM itself could send most of them to
    engine 1.
    """
    both = [{"X-data-parallel-rank": str(n % 2)} for n in range(80)]
    calls = [Call(prompt=f"usual {n}", max_tokens=24, headers=h) for n, h in enumerate(both)]
    begun = time.time()
    send_all(two_engines.port, calls, concurrency=6)
    changed = time.time()
    headers = {"X-data-parallel-rank": "1"}
    calls = [Call(prompt=f"skew {n}", max_tokens=24, headers=headers) for n in range(160)]
    seen = send_all(two_engines.port, calls, concurrency=64)
    ended = time.time()
    rows = tailspan.stored(seen)
    assert {row["engine"] for row in rows.values()} == {1}
    # With `--fast`, the command makes no replay. The idle engine has too few steps to fit the
    # replay's model.
    words = ("explain", "--fast", "--metric", "ttft", "--format", "json")
    span = ("--from", f"{changed:.0f}", "--to", f"{ended:.0f}")
    printed = json.loads(
        tailspan.run(*words, *span, "--baseline", f"{begun:.0f}/{changed:.0f}").stdout
    )
    wheres = {cause["id"]: cause["where"] for cause in printed["causes"]}
    assert wheres.get("replica_imbalance") == {
        "replica": f"vllm-{two_engines.port}",
        "engine": "1",
    }, json.dumps(printed)


def test_no_row_is_lost_or_double_if_one_engine_core_is_killed(
    two_engines: Any, tailspan: Any
) -> None:
    """vLLM ends the whole server. Requests in flight are stored as errors or aborts."""
    answered = send_all(two_engines.port, mixed(60, seed=54), concurrency=8)
    time.sleep(SETTLED_S)
    with ThreadPoolExecutor(8) as pool:
        calls = [Call(prompt=f"cut {n}", max_tokens=1500) for n in range(8)]
        begun = [pool.submit(send, two_engines.port, call) for call in calls]
        time.sleep(1.5)
        os.kill(core_of(two_engines, 1), signal.SIGKILL)
        for each in begun:
            each.exception(timeout=90)
    two_engines.process.wait(60)
    assert len(tailspan.stored(answered)) == 60
    assert stored_once(tailspan, answered)
    statement = "SELECT outcome, engine FROM requests WHERE replica = ? AND outcome != 'length'"
    cut = tailspan.query(statement, f"vllm-{two_engines.port}")
    assert {row["outcome"] for row in cut} <= {"error", "abort"}
    assert len(cut) <= 8


def test_two_api_servers_lose_and_duplicate_no_request(two_api_servers: Any, tailspan: Any) -> None:
    """Two API servers report one replica."""
    server = two_api_servers
    seen = send_all(server.port, mixed(60, seed=21), concurrency=8)
    rows = tailspan.stored(seen)
    assert len(rows) == 60
    for row in rows.values():
        assert row["replica"] == f"vllm-{server.port}"
        assert row["decode_own_s"] is not None
        assert_parts_sum(row)
    steps = [
        line
        for line in tailspan.metrics().splitlines()
        if line.startswith("tailspan_engine_steps_total") and str(server.port) in line
    ]
    assert len(steps) == 1
    # A step of these servers has few tokens, so a request behind a long prompt waits for them.
    calls = [Call(prompt=os.urandom(400).hex(), max_tokens=2) for _ in range(12)]
    rows = tailspan.stored(send_all(server.port, calls, concurrency=12))
    for row in rows.values():
        assert_parts_sum(row)
        assert row["others_prefill_tokens_max"] <= 128
    assert share_of_queue(rows, "budget") > 0.8


def test_an_idle_engine_of_two_api_servers_runs_no_request(
    two_api_servers: Any, tailspan: Any
) -> None:
    """vLLM sends the statistics of a step to only one of the API servers.

    The requests end one after another. The API server without the last request then knows only that
    it runs.
    """
    replica = f"vllm-{two_api_servers.port}"
    for turn in range(3):
        calls = [Call(prompt=f"{turn} {n}", max_tokens=16 * n) for n in range(1, 9)]
        send_all(two_api_servers.port, calls, concurrency=8)
        time.sleep(SETTLED_S)
        newest = {row["process"]: row for row in tailspan.samples(replica)}
        assert len(newest) == 2
        for row in newest.values():
            assert (row["running"], row["waiting"]) == (0, 0)
            assert row["kv_usage_ratio"] < 0.01


def test_no_row_is_lost_or_double_if_one_api_server_is_killed(
    two_api_servers: Any, tailspan: Any
) -> None:
    """Rows of the other API server, and rows that the collector received before, are stored
    once."""
    server = two_api_servers
    answered = send_all(server.port, mixed(60, seed=55), concurrency=8)
    time.sleep(SETTLED_S)
    with ThreadPoolExecutor(8) as pool:
        calls = [Call(prompt=f"cut {n}", max_tokens=1500) for n in range(8)]
        begun = [pool.submit(send, server.port, call) for call in calls]
        time.sleep(1.5)
        os.kill(processes(server, b"APIServer")[0], signal.SIGKILL)
        for each in begun:
            each.exception(timeout=90)
    assert len(tailspan.stored(answered)) == 60
    assert stored_once(tailspan, answered)


def test_engines_behind_a_hybrid_load_balancer_have_their_numbers(
    start_vllm: Callable[..., Any], tailspan: Any
) -> None:
    """One node has both ranks, so the server balances its local engines."""
    server = start_vllm(
        *("--data-parallel-size", "2", "--data-parallel-size-local", "2"),
        *("--data-parallel-hybrid-lb", "--data-parallel-start-rank", "0"),
        *("--data-parallel-address", "127.0.0.1"),
    )
    rows = tailspan.stored(send_all(server.port, mixed(40, seed=58), concurrency=8))
    assert len(rows) == 40
    assert {row["engine"] for row in rows.values()} == {0, 1}
