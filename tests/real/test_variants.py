import json
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from rig.load import Call, mixed, send, send_all
from tests.real.conftest import assert_parts_sum, write_plugin

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def laden(
    start_module_vllm: Callable[..., Any], tailspan: Any, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Return a vLLM with two adapters in one slot, a disk cache, a bounded queue and tracing."""
    from rig import install

    folder = tmp_path_factory.mktemp("laden")
    script = Path(install.__file__).with_name("lora_adapter.py")
    for name in ("ada", "bob"):
        subprocess.run([str(install.PYTHON), str(script), str(folder / name)], check=True)
    connector = {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(folder / "kv")},
    }
    server = start_module_vllm(
        *("--enable-lora", "--max-loras", "1", "--max-lora-rank", "8"),
        *("--lora-modules", f"ada={folder / 'ada'}", f"bob={folder / 'bob'}"),
        *("--kv-transfer-config", json.dumps(connector)),
        *("--max-num-queued-reqs", "24"),
        # This variable sets the endpoint of every exporter in vLLM's process, so all use one
        # protocol.
        *("--otlp-traces-endpoint", f"{tailspan.address('http')}/v1/traces"),
        OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/protobuf",
        VLLM_SERVER_DEV_MODE="1",
    )
    warm_up(server)
    return server


@pytest.fixture(scope="module")
def guessing(start_module_vllm: Callable[..., Any]) -> Any:
    speculative = {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 3,
    }
    words = ("--speculative-config", json.dumps(speculative), "--max-model-len", "8192")
    return start_module_vllm(*words)


def warm_up(server: Any, **body: Any) -> None:
    """Send enough steps of all kinds to fit the step model."""
    calls = [replace(call, body=body) for call in mixed(80, seed=41)]
    send_all(server.port, calls, concurrency=8)


def test_tokens_from_an_external_cache_are_counted_separately(laden: Any, tailspan: Any) -> None:
    """The prompt is first new, then in the engine's cache, then in the connector's cache."""
    before = laden.own_metrics()
    call = Call(chat=False, prompt="a cache outside " * 40, max_tokens=8)
    seen = [send(laden.port, call), send(laden.port, call)]
    forget = Request(f"http://127.0.0.1:{laden.port}/reset_prefix_cache", method="POST")
    with urlopen(forget, timeout=30) as answer:
        assert answer.status == 200
    seen.append(send(laden.port, call))
    rows = tailspan.stored(seen)
    reported = [
        (rows[each.trace_id]["cached_tokens"], rows[each.trace_id]["external_cached_tokens"])
        for each in seen
    ]
    cached = reported[1][0]
    assert reported == [(0, 0), (cached, 0), (cached, cached)]
    assert cached >= 512
    # 4 layers, keys and values, 2 heads of 64 numbers with 4 bytes each
    loads = [rows[each.trace_id]["kv_loaded_bytes"] for each in seen]
    assert loads == [None, None, cached * 4 * 2 * 2 * 64 * 4]
    # The example connector loads within a step, so no request waits for it.
    assert [rows[each.trace_id]["kv_load_s"] for each in seen] == [0, 0, 0]
    assert rows[seen[-1].trace_id]["kv_loaded_tier"] == "other"
    own = laden.own_metrics()
    time.sleep(2)
    last = tailspan.samples(f"vllm-{laden.port}")[-1]
    for column, name in (
        ("external_cache_queries_tokens_total", "external_prefix_cache_queries_total"),
        ("external_cache_hits_tokens_total", "external_prefix_cache_hits_total"),
    ):
        assert last[column] == own[f"vllm:{name}"]
    assert last["external_cached_prompt_tokens_total"] >= cached
    assert last["local_cached_prompt_tokens_total"] >= cached
    # The engine core computes on the CPU, so it has used more CPU time than the API server.
    assert last["core_cpu_s_total"] > last["process_cpu_s_total"] > 0
    assert last["host_cpu_busy_s_total"] > last["core_cpu_s_total"]
    assert last["host_cpus"] >= 1
    assert last["host_cpu_steal_s_total"] >= 0
    assert own["vllm:external_prefix_cache_hits_total"] > before.get(
        "vllm:external_prefix_cache_hits_total", 0
    )


def test_an_adapter_is_named_on_its_requests_alone(laden: Any, tailspan: Any) -> None:
    """Only one adapter has the slot, so the samples show running and waiting adapters."""
    names = ("tiny", "ada", "bob")
    calls = [Call(model=names[n % 3], prompt=f"request {n}", max_tokens=150) for n in range(21)]
    seen = send_all(laden.port, calls, concurrency=21)
    assert {timed.status for timed in seen} == {200}
    rows = tailspan.stored(seen)
    for timed in seen:
        asked = timed.call.model
        assert rows[timed.trace_id]["lora"] == (None if asked == "tiny" else asked)
        assert_parts_sum(rows[timed.trace_id], whole=True)
    delay_s = [row["queue_held_s"] for row in rows.values() if row["lora"]]
    assert max(delay_s) > 0.05  # while the other adapter uses the only slot
    waited_s = [row["adapter_wait_s"] for row in rows.values() if row["lora"]]
    assert sum(waited_s) > 0.8 * sum(delay_s)
    assert max(row["adapter_wait_s"] for row in rows.values() if not row["lora"]) == 0
    assert max(row["queue_held_s"] for row in rows.values() if not row["lora"]) == 0
    deadline = time.monotonic() + 10
    while tailspan.samples(f"vllm-{laden.port}")[-1]["running_loras"] != 0:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    reported = tailspan.samples(f"vllm-{laden.port}")
    assert max(sample["running_loras"] or 0 for sample in reported) > 0
    assert max(sample["waiting_loras"] or 0 for sample in reported) > 0


def test_a_request_refused_before_the_engine_is_a_row_with_its_status(
    laden: Any, tailspan: Any
) -> None:
    calls = [
        Call(chat=False, stream=False, prompt="x" * 3000),
        Call(chat=False, stream=False, max_tokens=5000),
        Call(model="nobody"),
    ]
    seen = [send(laden.port, call) for call in calls]
    rows = tailspan.stored(seen)
    reported = [
        (rows[each.trace_id]["outcome"], rows[each.trace_id]["http_status"]) for each in seen
    ]
    assert reported == [("rejected", 400), ("rejected", 400), ("rejected", 404)]
    assert [rows[each.trace_id]["model"] for each in seen] == ["tiny", "tiny", None]

    before = laden.own_metrics()["vllm:admission_rejections_total"]
    crowd = [Call(stream=n % 2 == 0, prompt=f"crowd {n}", max_tokens=200) for n in range(48)]
    seen = send_all(laden.port, crowd, concurrency=48)
    turned_away = laden.own_metrics()["vllm:admission_rejections_total"] - before
    rows = tailspan.stored(seen)
    assert len(rows) == 48
    refused = [row for row in rows.values() if row["outcome"] == "rejected"]
    assert len(refused) == turned_away > 0
    assert {row["error_type"] for row in refused} == {"max_num_queued_reqs"}
    # vLLM sends status 200 for a stream before it checks the queue's limit.
    assert {(row["streamed"], row["http_status"]) for row in refused} <= {(0, 503), (1, 200)}
    assert {row["outcome"] for row in rows.values()} == {"rejected", "length"}


def test_a_server_that_sends_both_has_one_row_a_request(laden: Any, tailspan: Any) -> None:
    seen = send_all(laden.port, [Call(max_tokens=tokens) for tokens in (24, 1, 12)], 1)
    wanted = {timed.trace_id for timed in seen}
    tailspan.rows(wanted)
    time.sleep(3)  # vLLM sends its spans every second
    done = tailspan.run("requests", "--last", "1h", "--format", "json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["source"] for row in rows if row["trace_id"] in wanted] == ["instrumentation"] * 3


def test_the_configurations_of_two_servers_can_be_compared(
    laden: Any, guessing: Any, tailspan: Any
) -> None:
    done = tailspan.run("config", "--format", "json")
    printed = {each["replica"]: each for each in map(json.loads, done.stdout.splitlines())}
    mine, other = printed[f"vllm-{laden.port}"], printed[f"vllm-{guessing.port}"]
    assert mine["version"].startswith("0.")
    assert mine["arguments"]["kv_transfer.kv_connector"] == "ExampleConnector"
    assert mine["arguments"]["cache.num_gpu_blocks"] > 0
    (seen,) = send_all(guessing.port, [Call()], 1)
    assert tailspan.stored([seen])[seen.trace_id]["config"] == other["config"]
    found = tailspan.run("config", mine["config"], other["config"], "--format", "json").stdout
    differing = {each["argument"]: each for each in map(json.loads, found.splitlines())}
    assert differing["model.max_model_len"]["before"] == 2048
    assert differing["model.max_model_len"]["after"] == 8192
    assert differing["lora.max_loras"] == {
        "argument": "lora.max_loras",
        "before": 1,
        "after": None,
    }
    assert "/" not in done.stdout.replace("/v1", "")


def test_speculation_is_reported_and_the_sums_still_agree(guessing: Any, tailspan: Any) -> None:
    warm_up(guessing, temperature=0)
    time.sleep(2)
    before = guessing.own_metrics()
    # At temperature 0, the random model soon repeats itself, so drafts are accepted.
    calls = [replace(call, body={"temperature": 0}) for call in mixed(60, seed=42)]
    seen = send_all(guessing.port, calls, concurrency=8)
    rows = tailspan.stored(seen)
    after = guessing.own_metrics()
    own = {name: value - before.get(name, 0.0) for name, value in after.items()}
    assert len(rows) == 60
    for timed in seen:
        row = rows[timed.trace_id]
        assert row["output_tokens"] == timed.call.max_tokens
        assert_parts_sum(row, whole=True)
        if row["output_tokens"] > 1:
            assert 0 < row["itl_max_s"] <= row["decode_s"] + 1e-6
    for phase in ("queue", "prefill", "decode"):
        total = sum(row[f"{phase}_s"] for row in rows.values())
        assert total == pytest.approx(own[f"vllm:request_{phase}_time_seconds_sum"], rel=0.01)
    time.sleep(2)
    last = tailspan.samples(f"vllm-{guessing.port}")[-1]
    assert last["drafts_total"] == after["vllm:spec_decode_num_drafts_total"]
    assert last["draft_tokens_total"] == after["vllm:spec_decode_num_draft_tokens_total"]
    assert last["accepted_tokens_total"] == after["vllm:spec_decode_num_accepted_tokens_total"]
    assert last["draft_tokens_total"] > last["accepted_tokens_total"] > 0


RENAMED = """
def rename():
    from vllm.v1.engine.output_processor import OutputProcessor
    hidden = OutputProcessor._update_stats_from_finished
    del OutputProcessor._update_stats_from_finished
    def found(self, name):
        if name == "_update_stats_from_finished":
            return hidden.__get__(self)
        raise AttributeError(name)
    OutputProcessor.__getattr__ = found
"""


def test_an_incompatible_vllm_is_measured_at_the_http_layer(
    start_vllm: Callable[..., Any], tailspan: Any, tmp_path: Path
) -> None:
    write_plugin(tmp_path, "renaming", RENAMED, "a_rename = renaming:rename")
    server = start_vllm(PYTHONPATH=str(tmp_path))
    calls = [*mixed(24, seed=51), Call(max_tokens=-1)]
    seen = send_all(server.port, calls, concurrency=8)
    rows = tailspan.stored(seen)
    assert len(rows) == 25
    for timed in seen:
        row = rows[timed.trace_id]
        assert row["basis"] == "edge"
        assert row["outcome"] == ("stop" if timed.status == 200 else "rejected")
        assert row["queue_s"] is None
        if timed.status == 200:
            assert row["ttft_s"] <= timed.ttft_s
    lines = re.findall(r"tailspan: this vLLM lacks .*", server.printed)
    assert len(lines) == 1
    assert "_update_stats_from_finished" in lines[0]
    own = server.own_metrics()
    deadline = time.monotonic() + 20
    while True:
        # The front end finds the engine within some seconds.
        last = tailspan.samples(f"vllm-{server.port}")[-1]
        if last["steps_total"] is not None or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    assert last["decode_tokens_total"] == own["vllm:generation_tokens_total"]
    assert last["steps_total"] > 0
