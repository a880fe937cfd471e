import json
import os
import signal
import statistics
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rig.install import ROOT
from rig.load import Call, mixed, send, send_all
from rig.serve import engine_cores
from telemetry.requests import QUEUE_PARTS
from tests.real.conftest import assert_parts_sum, share_of_queue

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

FAMILIES = {"queue_s": "queue", "prefill_s": "prefill", "decode_s": "decode"}


def warm_up(server: Any) -> None:
    """Send enough steps of all kinds to fit the step model."""
    calls = mixed(80, seed=11) + [Call(prompt="long " * 900, max_tokens=8)] * 6
    send_all(server.port, calls, concurrency=8)


@pytest.fixture(scope="module")
def learnt(vllm: Any) -> Any:
    warm_up(vllm)
    return vllm


def wait_for(*calls: Call) -> None:
    for call in calls:
        assert call.begun is not None
        assert call.begun.wait(60)


def difference(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0.0) for name, value in after.items()}


@pytest.mark.parametrize("concurrency", [1, 16, 64])
def test_sums_agree_with_vllms_own_at_any_concurrency(
    learnt: Any, tailspan: Any, concurrency: int
) -> None:
    """Queue, prefill and decode agree with vLLM's histograms within 1 %."""
    before = learnt.own_metrics()
    seen = send_all(learnt.port, mixed(12 if concurrency == 1 else 96, concurrency), concurrency)
    rows = tailspan.stored(seen)
    own = difference(learnt.own_metrics(), before)
    assert len(rows) == len(seen)
    for column, name in FAMILIES.items():
        family = f"vllm:request_{name}_time_seconds"
        assert own[f"{family}_count"] == len(seen)
        assert sum(row[column] for row in rows.values()) == pytest.approx(
            own[f"{family}_sum"], rel=0.01
        )
    for row in rows.values():
        assert_parts_sum(row)
        assert row["decode_own_s"] is not None
    if concurrency > 16:  # more requests than the engine has slots, so the others queue
        assert max(row["queue_s"] for row in rows.values()) > 0.05
        # Requests of a burst also wait for the token budget of a step, and longer on a busy
        # machine.
        assert share_of_queue(rows, "seats") > 0.8


def test_several_choices_of_one_call_are_separate_rows(vllm: Any, tailspan: Any) -> None:
    call = Call(chat=False, stream=False, body={"prompt": ["one", "other"], "n": 2})
    timed = send(vllm.port, call)
    statement = "SELECT span_id FROM requests WHERE trace_id = ?"
    deadline = time.monotonic() + 20
    while len(tailspan.query(statement, timed.trace_id)) < 4 and time.monotonic() < deadline:
        time.sleep(0.2)
    done = tailspan.run("requests", "--last", "10m", "--format", "json")
    found = done.stdout.count(timed.trace_id)
    assert found == 4


def test_a_concurrent_long_prefill_explains_the_delay_of_a_request(
    learnt: Any, tailspan: Any
) -> None:
    """A disturbed request takes longer than its undisturbed twin. `others_prefill_s` equals the
    difference, within 20 %."""
    excesses: list[float] = []
    blamed: list[float] = []
    tries = 0
    while len(blamed) < 5:
        tries += 1
        assert tries <= 30
        victim = Call(prompt="the victim", max_tokens=300, begun=threading.Event())
        alone = send(learnt.port, replace(victim, begun=None))
        with ThreadPoolExecutor(2) as pool:
            disturbed = pool.submit(send, learnt.port, victim)
            wait_for(victim)
            pool.submit(send, learnt.port, Call(prompt=os.urandom(3500).hex(), max_tokens=1))
        pair = tailspan.stored([alone, disturbed.result()])
        twin, hurt = pair[alone.trace_id], pair[disturbed.result().trace_id]
        assert_parts_sum(hurt)
        if hurt["others_prefill_tokens_max"] <= 1000:
            continue  # on a busy machine, the victim may end before the other request arrives
        excesses.append(hurt["decode_s"] - twin["decode_s"])
        blamed.append(hurt["decode_others_prefill_s"])
        assert twin["others_prefill_tokens_max"] < 1000
        assert twin["decode_others_prefill_s"] < 0.01
    # A single pair is unreliable on a busy machine, but the median of five is not.
    ratio = statistics.median(b / e for b, e in zip(blamed, excesses, strict=True))
    assert 0.8 <= ratio <= 1.2, (excesses, blamed)


def test_a_frozen_engine_is_a_stall_of_every_running_request(learnt: Any, tailspan: Any) -> None:
    """1 s of SIGSTOP is about 1 s of `stall_s`."""
    (core,) = engine_cores(learnt.process)
    calls = [
        Call(prompt=f"request {index}", max_tokens=200, begun=threading.Event())
        for index in range(4)
    ]

    def freeze() -> None:
        wait_for(*calls)
        os.kill(core, signal.SIGSTOP)
        time.sleep(1.0)
        os.kill(core, signal.SIGCONT)

    freezer = threading.Thread(target=freeze)
    freezer.start()
    seen = send_all(learnt.port, calls, concurrency=4)
    freezer.join()
    rows = tailspan.stored(seen)
    assert len(rows) == 4
    for row in rows.values():
        assert_parts_sum(row)
        stall_s = row["prefill_stall_s"] + row["decode_stall_s"]
        assert stall_s == pytest.approx(1.0, abs=0.25)
        assert row["itl_max_s"] == pytest.approx(1.0, abs=0.25)


def test_preemptions_are_reported_with_their_seconds(crowded: Any, tailspan: Any) -> None:
    before = crowded.own_metrics()
    calls = [Call(prompt=f"request {index} ", max_tokens=350) for index in range(16)]
    seen = send_all(crowded.port, calls, concurrency=8)
    rows = tailspan.stored(seen)
    own = difference(crowded.own_metrics(), before)
    assert len(rows) == len(seen)
    assert own["vllm:num_preemptions_total"] > 0
    assert sum(row["preemptions"] for row in rows.values()) == own["vllm:num_preemptions_total"]
    for column, name in FAMILIES.items():
        assert sum(row[column] for row in rows.values()) == pytest.approx(
            own[f"vllm:request_{name}_time_seconds_sum"], rel=0.01
        )
    assert share_of_queue(rows, "kv") > 0.8
    evicted = [row for row in rows.values() if row["preemptions"]]
    for row in rows.values():
        assert_parts_sum(row)
    for row in evicted:
        preempted_s = (row["prefill_preempted_s"] or 0) + (row["decode_preempted_s"] or 0)
        if row["decode_own_s"] is not None:
            assert preempted_s > 0
            assert row["itl_max_s"] >= 0.5 * preempted_s / row["preemptions"]


def test_a_request_aborted_in_the_queue_has_queue_time(crowded: Any, tailspan: Any) -> None:
    busy = [Call(prompt=f"request {index} ", max_tokens=600) for index in range(8)]
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(send, crowded.port, call) for call in busy]
        deadline = time.monotonic() + 60
        while not crowded.own_metrics()["vllm:num_requests_waiting"]:  # the KV cache is full
            assert time.monotonic() < deadline
            time.sleep(0.1)
        late = Call(prompt="no patience " * 20, max_tokens=500, abort_after_s=2.0)
        seen = send_all(crowded.port, [late] * 4, concurrency=4)
        for answer in answers:
            answer.result()
    rows = tailspan.stored(seen)
    gave_up = [row for row in rows.values() if row["prefill_s"] is None]
    assert len(rows) == 4
    assert gave_up, rows
    for row in gave_up:
        assert row["outcome"] == "abort"
        assert row["queue_s"] > 0.8 * row["e2e_s"]
        assert sum(row[part] for part in QUEUE_PARTS) == pytest.approx(row["queue_s"], abs=1e-3)
        assert row["queue_kv_s"] + row["queue_seats_s"] > 0.5 * row["queue_s"]
        assert row["billed_s"] is None


OFFLINE = """
import sys
from forking_vllm import keep_method
from vllm import LLM, SamplingParams
if __name__ == "__main__":
    keep_method()
    llm = LLM(sys.argv[1], served_model_name="offline", max_model_len=1024, enforce_eager=True)
    prompts = ["request %d" % n for n in range(24)]
    llm.generate(prompts, SamplingParams(max_tokens=40, ignore_eos=True), use_tqdm=False)
    llm.generate(prompts, SamplingParams(max_tokens=40, ignore_eos=True), use_tqdm=False)
"""


def test_offline_generation_is_captured_too(installed: None, tailspan: Any, tmp_path: Path) -> None:
    """`LLM.generate` has no HTTP layer and no statistics."""
    from rig import install, serve

    script = tmp_path / "offline.py"
    script.write_text(OFFLINE)
    environ = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=offline",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "rig"), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [str(install.PYTHON), str(script), str(install.MODEL)],
        env=serve.environment(tailspan.address("http"), environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = tailspan.run(
        *("requests", "--last", "10m", "--where", "replica=offline", "--format", "json")
    )
    rows = [line for line in found.stdout.splitlines() if '"basis": "engine"' in line]
    assert len(rows) == 48, done.stderr[-3000:]
    assert all('"output_tokens": 40' in row for row in rows)
    for row in map(json.loads, rows):
        assert row["queue_s"] is not None
        assert (row["model"], row["config"] is None) == ("offline", False)
    printed = map(json.loads, tailspan.run("config", "--format", "json").stdout.splitlines())
    (start,) = [start for start in printed if start["replica"] == "offline"]
    assert start["config"] == json.loads(rows[0])["config"]
    assert start["arguments"]["model.max_model_len"] == 1024
    assert start["arguments"]["cache.num_gpu_blocks"] > 0
