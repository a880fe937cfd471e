import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tailspan_vllm import names

import rig
from rig import install
from rig.load import Call, mixed, send, send_all
from telemetry.requests import HELD_PARTS
from tests.real.conftest import assert_parts_sum

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

DELAY_S = 2.0
MIN_TOKENS = 512


@pytest.fixture(scope="module")
def loading(start_module_vllm: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a vLLM that loads the KV cache of long prompts asynchronously."""
    folder = tmp_path_factory.mktemp("connector")
    shutil.copy(Path(rig.__file__).with_name("delayed_connector.py"), folder)
    connector = {
        "kv_connector": "DelayedConnector",
        "kv_connector_module_path": "delayed_connector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"delay_s": DELAY_S, "least_tokens": MIN_TOKENS},
    }
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    server = start_module_vllm("--kv-transfer-config", json.dumps(connector), PYTHONPATH=path)
    send_all(server.port, mixed(80, seed=61), concurrency=8)
    return server


def assert_held_parts_sum(row: dict[str, Any]) -> None:
    """Check that the reasons sum to the held time, because this server has no other reasons."""
    assert_parts_sum(row, whole=True)
    assert sum(row[part] for part in HELD_PARTS) == pytest.approx(row["queue_held_s"], abs=1e-6)


def test_a_load_has_its_time_size_and_tier(loading: Any, tailspan: Any) -> None:
    new = os.urandom(4).hex()  # if the test runs again, the prompts must not be in the cache
    long = [Call(chat=False, prompt=f"{n} {new} " + "cache " * 200, max_tokens=8) for n in range(4)]
    short = [Call(prompt=f"short {n}", max_tokens=8) for n in range(4)]
    seen = send_all(loading.port, [*long, *short], concurrency=8)
    rows = tailspan.stored(seen)
    for timed in seen:
        row = rows[timed.trace_id]
        assert_held_parts_sum(row)
        if timed.call in short:
            assert row["kv_load_s"] == 0
            assert (row["kv_loaded_bytes"], row["kv_loaded_tier"]) == (None, None)
            continue
        assert DELAY_S <= row["kv_load_s"] <= row["queue_s"]
        loaded = row["external_cached_tokens"]
        assert loaded > MIN_TOKENS - 200
        # 4 layers, keys and values, 2 heads of 64 numbers with 4 bytes each
        assert row["kv_loaded_bytes"] == loaded * 4 * 2 * 2 * 64 * 4
        assert row["kv_loaded_tier"] == "host"
    own = loading.own_metrics()
    tailspan.wait_for_rows({timed.trace_id for timed in seen})
    last = tailspan.samples(f"vllm-{loading.port}")[-1]
    assert last["host_cache_hits_tokens_total"] == last["external_cache_hits_tokens_total"]
    assert last["host_cache_hits_tokens_total"] == own["vllm:external_prefix_cache_hits_total"]


def test_a_client_that_leaves_during_a_load_has_waited_for_it(loading: Any, tailspan: Any) -> None:
    prompt = "gone " * 200
    leaving = Call(chat=False, prompt=prompt, max_tokens=8, abort_after_s=DELAY_S / 2)
    gone = send(loading.port, leaving)
    row = tailspan.stored([gone])[gone.trace_id]
    assert row["outcome"] == "abort"
    assert 0 < row["kv_load_s"] <= row["queue_s"] + 1e-6
    assert row["kv_load_s"] == pytest.approx(row["queue_held_s"], abs=1e-6)


def schema(number: int) -> dict[str, Any]:
    """Return a new schema that xgrammar takes long to compile."""
    item = {
        "type": "object",
        "properties": {
            f"key_{number}_{field}": {"type": "string", "minLength": 1, "maxLength": 200 + number}
            for field in range(30)
        },
        "required": [f"key_{number}_{field}" for field in range(30)],
    }
    return {"type": "array", "items": item, "minItems": 1, "maxItems": 40 + number}


def structured(number: int) -> Call:
    form = {
        "type": "json_schema",
        "json_schema": {"name": f"schema_{number}", "schema": schema(number)},
    }
    return Call(prompt="answer", max_tokens=4, body={"response_format": form})


def test_a_new_schema_waits_for_its_grammar(loading: Any, tailspan: Any) -> None:
    """A request with an already compiled schema does not wait."""
    send(loading.port, structured(0))  # the first grammar also starts the compiler
    new = [send(loading.port, structured(number)) for number in (1, 2, 3)]
    again = send(loading.port, structured(3))
    plain = send(loading.port, Call(max_tokens=4))
    assert {each.status for each in (*new, again, plain)} == {200}
    rows = tailspan.stored([*new, again, plain])
    for row in rows.values():
        assert_held_parts_sum(row)
    waited_s = [rows[each.trace_id]["grammar_s"] for each in new]
    assert min(waited_s) > 0
    assert rows[again.trace_id]["grammar_s"] < min(waited_s)
    assert rows[plain.trace_id]["grammar_s"] == 0


OFFLOADED = """
import json, sys
from vllm.distributed.kv_transfer.kv_connector.v1.offloading import metrics
from vllm.v1.kv_offload.tiering.base import TieringOffloadingMetrics as tiers
from tailspan_vllm.engine_state.kv_transfer import transferred

transfers, connector = metrics._TransferMetricName, metrics._ConnectorMetricName
first, second = (metrics.OffloadingConnectorStats() for _ in range(2))
first.increase_counter(transfers.LOAD_BYTES, 4096)
first.increase_counter(transfers.LOAD_TIME, 0.5)
first.observe_histogram(transfers.LOAD_SIZE, 4096)
first.increase_counter(tiers.READ_BYTES, 512, ("1:fs",))
first.increase_counter(tiers.WRITE_TIME, 0.25, ("1:fs",))
second.increase_counter(transfers.STORE_BYTES, 1024)
second.increase_counter(transfers.STORE_TIME, 0.125)
second.increase_counter(tiers.READ_BYTES, 64, ("2:obj",))
second.observe_histogram(connector.LOOKUP_SYNC_DELAY, 0.25)
second.observe_histogram(connector.LOOKUP_SYNC_DELAY, 0.5)
second.increase_counter(connector.ALLOCATION_FAILURE)
print(json.dumps(transferred(first.aggregate(second).to_dict())))
"""


def test_the_statistics_of_vllms_offloading_are_read(installed: None) -> None:
    """The offloading connector needs a GPU, so the test only uses vLLM's class of statistics."""
    done = subprocess.run(
        [str(install.PYTHON), "-c", OFFLOADED], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {
        names.KV_TRANSFER_BYTES: 5120,
        names.KV_TRANSFER_TIME: 0.625,
        names.KV_OFFLOAD_LOAD_BYTES: 4096,
        names.KV_OFFLOAD_LOAD_TIME: 0.5,
        names.KV_OFFLOAD_STORE_BYTES: 1024,
        names.KV_OFFLOAD_STORE_TIME: 0.125,
        names.KV_OFFLOAD_STORE_FAILURES: 1,
        names.KV_OFFLOAD_LOOKUP_TIME: 0.75,
        names.KV_TIER_READ_BYTES: 576,
        names.KV_TIER_WRITE_TIME: 0.25,
    }
