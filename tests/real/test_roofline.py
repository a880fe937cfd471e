import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from rig.load import Call, mixed, send_all
from roofline.arrow import EngineKey, engines_of
from roofline.load import step
from roofline.modelled import ModelSource
from roofline.samples import Columns
from roofline.shape import ModelShape
from roofline.shape_from_config import read_shape, shape_of
from roofline.weights import gpu_weights
from roofline.windows import windows_of
from roofline.work import GpuWork, work_of
from store.database import open_database
from store.queries import sample_table
from store.replicas.engine_starts import in_force
from telemetry.window import Window
from tests.roofline import configs

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

MODELS: dict[str, configs.Config] = {
    "LlamaForCausalLM": configs.llama_3_8b(),
    "MistralForCausalLM": configs.mistral_7b(),
    "Qwen3ForCausalLM": configs.qwen3_8b(),
    "MixtralForCausalLM": configs.mixtral_8x7b(),
    "Qwen3MoeForCausalLM": configs.qwen3_30b_a3b(),
    "DeepseekV3ForCausalLM": configs.deepseek_v3(quantization_config=None),
    "Gemma2ForCausalLM": configs.gemma_2_9b(),
    "GPT2LMHeadModel": {**configs.gpt_2(), "torch_dtype": "bfloat16"},
    "OPTForCausalLM": {**configs.opt_125m(), "torch_dtype": "bfloat16"},
}

UNGATED = {"GPT2LMHeadModel", "OPTForCausalLM"}
"""Models with two matrices per feed-forward layer, for which vLLM counts three."""


def whole(name: str) -> configs.Config:
    """Return a configuration with vLLM's required keys. Models with learnt positions need fewer."""
    positions = {} if name in UNGATED else {"max_position_embeddings": 8192}
    return {"architectures": [name], **positions, **MODELS[name]}


@pytest.fixture(scope="module")
def reports(installed: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return vLLM's report and ours about each model, by architecture."""
    from rig import install, serve

    folders = []
    for name in MODELS:
        folder = tmp_path_factory.mktemp(name)
        (folder / "config.json").write_text(json.dumps(whole(name)))
        folders.append(str(folder))
    script = Path(install.__file__).with_name("vllm_step_costs.py")
    done = subprocess.run(
        [str(install.PYTHON), str(script), *folders],
        env=serve.environment("http://127.0.0.1:9", os.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(zip(MODELS, lines, strict=True))


def vllms(reports: Any, step_name: str, side: str, *endings: str) -> float:
    """Add up the bytes or FLOPs that vLLM reports for a step. Only the values whose names end with
    one of `endings` are added."""
    terms = reports["terms"][step_name][side]
    return float(sum(value for name, value in terms.items() if name.endswith(endings)))


def ours(shape: ModelShape, step_name: str) -> GpuWork:
    """Return our terms of the same step. vLLM counts the token that is being generated as read."""
    from rig.vllm_step_costs import STEPS

    requests = STEPS[step_name]
    prompts = [(tokens, context) for tokens, context, prompt in requests if prompt]
    decodes = [context for _, context, prompt in requests if not prompt]
    return work_of(
        shape,
        step(
            prefill_tokens=sum(tokens for tokens, _ in prompts),
            prefill_attention=sum(t * (context - t / 2) for t, context in prompts),
            context_tokens=sum(decodes),
            decodes=len(decodes),
            prefill_context_tokens=sum(context for _, context in prompts),
            prompts=len(prompts),
        ),
    )


def only(values: Any) -> float:
    return float(values[0])


@pytest.mark.parametrize("name", MODELS)
def test_the_shape_that_a_real_vllm_reports_is_that_of_its_config(name: str, reports: Any) -> None:
    shape = read_shape(json.dumps(reports[name]["shape"]))
    assert shape == shape_of(whole(name))


@pytest.mark.parametrize("name", MODELS)
def test_weights_and_cache_are_vllms_to_the_byte(name: str, reports: Any) -> None:
    """The bytes of attention, feed-forward, the last layer and the KV cache are equal."""
    shape = read_shape(json.dumps(reports[name]["shape"]))
    weights, mine = gpu_weights(shape), ours(shape, "decodes")
    attention = vllms(reports[name], "decodes", "read", *ATTENTION)
    assert attention == pytest.approx(2 * weights.attention, rel=1e-6)
    assert vllms(reports[name], "decodes", "read", "unembed.weight") == 2 * weights.head
    if name not in UNGATED:
        dense = vllms(
            reports[name], "decodes", "read", "dense_up_gate_weights", "dense_down_weights"
        )
        assert dense == pytest.approx(2 * weights.dense, rel=1e-6)
        shared = vllms(
            reports[name], "decodes", "read", "shared_up_gate_weights", "shared_down_weights"
        )
        assert shared == pytest.approx(2 * weights.shared, rel=1e-6)
    written = vllms(reports[name], "decodes", "write", "kv_cache")
    assert written == pytest.approx(only(mine.kv_write_bytes), rel=1e-6)
    queries = 3 * shape.heads * shape.head_dim * shape.layers * 2
    read = vllms(reports[name], "decodes", "read", "attn_input") - queries
    slid = shape.window is not None and shape.window < 3000
    assert slid or read == pytest.approx(only(mine.kv_read_bytes), rel=1e-6)


SETTLED_S = 3.0
"""Two processes send vLLM's counters and the ledger's sums, up to 1 s apart.

The sums can be compared only between samples of an idle engine.
"""

ATTENTION = (
    "qkv_weight",
    "attn.out_weight",
    "q_weight",
    "q_a_weight",
    "q_b_weight",
    "kv_a_weight",
    "kv_b_weight",
)


@pytest.mark.parametrize("name", sorted(set(MODELS) - UNGATED))
def test_flops_are_vllms_where_both_count_the_same(name: str, reports: Any) -> None:
    """For a prompt's attention, vLLM counts each pair of tokens twice."""
    shape = read_shape(json.dumps(reports[name]["shape"]))
    for step_name in ("decodes", "prompt", "both"):
        mine = ours(shape, step_name)
        matrices = vllms(reports[name], step_name, "flops", "proj", "ffn")
        router = 2 * gpu_weights(shape).router
        tokens = {"decodes": 3, "prompt": 500, "both": 301}[step_name]
        assert only(mine.linear_flops) - router * tokens == pytest.approx(matrices, rel=1e-6)
        both = vllms(reports[name], step_name, "flops", "attn_qk", "attn_av", "unembed")
        if shape.latent is None and step_name == "decodes":
            assert only(mine.plain_flops) == pytest.approx(both, rel=1e-6)
    of_vllm = vllms(reports[name], "prompt", "flops", "attn_qk", "attn_av")
    last = vllms(reports[name], "prompt", "flops", "unembed")
    half = only(ours(shape, "prompt").plain_flops) - last
    assert half == pytest.approx(of_vllm / 2, rel=1e-6)


def test_a_running_server_moves_the_bytes_that_both_models_predict(
    vllm: Any, tailspan: Any
) -> None:
    send_all(vllm.port, mixed(20, seed=3), concurrency=4)
    time.sleep(SETTLED_S)
    begun_unix_ns = time.time_ns()
    long = [Call(prompt="word " * 250, max_tokens=100)] * 12
    send_all(vllm.port, mixed(60, seed=5) + long, concurrency=8)
    samples, start = samples_and_start(tailspan, f"vllm-{vllm.port}", begun_unix_ns - 2 * 10**9)
    assert (start.device, start.gpus) == ("cpu", None)
    assert start.shape is not None
    shape = read_shape(start.shape)
    served = {"architectures": ["LlamaForCausalLM"], "torch_dtype": "float32"}  # by rig/serve.py
    assert shape == shape_of({**configs.tiny_llama(), **served})
    mine = windows_of(samples, shape, None, width_s=None)
    theirs = windows_of(samples, None, None, width_s=None)
    assert {window.model for window in mine} == {ModelSource.SHAPE}
    assert {window.model for window in theirs} == {ModelSource.VLLM}
    moved = [
        sum((w.modelled_bytes_per_s or 0) * w.seconds for w in each) for each in (mine, theirs)
    ]
    flops = [sum(w.flops or 0 for w in each) for each in (mine, theirs)]
    steps = sum(window.steps or 0 for window in mine)
    print(  # noqa: T201 - the ratio is what the test is for
        f"\n{steps:.0f} steps: bytes {moved[0] / 1e9:.2f} GB here, {moved[1] / 1e9:.2f} GB by vLLM"
        f" (ratio {moved[0] / moved[1]:.3f}); {flops[0] / 1e9:.1f} GFLOP here,"
        f" {flops[1] / 1e9:.1f} by vLLM (ratio {flops[0] / flops[1]:.3f})"
    )
    assert moved[0] / moved[1] == pytest.approx(1.05, abs=0.15)
    assert flops[0] / flops[1] == pytest.approx(0.95, abs=0.15)


def samples_and_start(tailspan: Any, replica: str, from_unix_ns: int) -> tuple[Columns, Any]:
    """Wait for samples after this time, and return a server's samples as columns, and its start."""
    settled_unix_ns, deadline = time.time_ns() + round(SETTLED_S * 1e9), time.monotonic() + 60
    engine = open_database(f"sqlite:///{tailspan.folder}/var/tailspan.db", create=False)
    while True:
        reports = sample_table(engine, Window(from_unix_ns, time.time_ns()))
        columns = engines_of(reports).get(EngineKey(replica, 0))
        if columns is not None and columns.at_unix_ns.max() >= settled_unix_ns:
            break
        assert time.monotonic() < deadline
        time.sleep(0.5)
    (start,) = [each for each in in_force(engine) if each.replica == replica]
    engine.dispose()
    return columns, start
