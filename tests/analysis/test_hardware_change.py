import json
from dataclasses import replace

import pytest

from analysis.hardware_change import assumption, on_hardware
from replay.edits import EditError, Edits
from replay.engine_config import EngineConfig
from telemetry.starts import EngineStart

H100 = "NVIDIA H100 80GB HBM3"
LLAMA_8B = {
    "model_type": "llama",
    "vocab_size": 128_256,
    "hidden_size": 4_096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14_336,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}
CONFIG = EngineConfig()
START = EngineStart(
    replica="a",
    engine=0,
    process=1,
    at_unix_ns=0,
    config="c",
    arguments=json.dumps(CONFIG.arguments()),
    device=H100,
    gpus=1,
    shape=json.dumps(LLAMA_8B),
)


def changed(device: str | None = None, quantization: str | None = None) -> EngineConfig:
    return on_hardware(CONFIG, START, Edits(device=device, quantization=quantization), {})


def test_without_other_hardware_nothing_changes() -> None:
    assert changed() is CONFIG
    assert assumption(Edits()) is None
    same = changed(H100)
    assert same.step == pytest.approx(CONFIG.step)
    assert same.num_gpu_blocks == CONFIG.num_gpu_blocks


def test_faster_memory_shortens_what_memory_bounds() -> None:
    step = changed("NVIDIA H200").step
    assert step.context_token_s == pytest.approx(CONFIG.step.context_token_s * 3.35 / 4.8)
    assert step.prefill_token_s == CONFIG.step.prefill_token_s
    assert step.sequence_s == CONFIG.step.sequence_s
    # 15.0 GB of weights (without the embedding table) take 4.5 ms at 3.35 TB/s, and 3.1 ms at 4.8
    # TB/s.
    assert CONFIG.step.base_s - step.base_s == pytest.approx(1.36e-3, rel=0.02)
    assert changed("NVIDIA H200").num_gpu_blocks > 1.8 * CONFIG.num_gpu_blocks


def test_smaller_weights_are_read_faster_and_leave_room_for_the_cache() -> None:
    fp8, int4 = changed(quantization="fp8"), changed(quantization="int4")
    assert fp8.step.prefill_token_s == pytest.approx(CONFIG.step.prefill_token_s / 2)
    assert int4.step.prefill_token_s == CONFIG.step.prefill_token_s
    assert int4.step.base_s < fp8.step.base_s < CONFIG.step.base_s
    # The change frees 7 GB; a block of 16 tokens takes 2 MiB.
    assert fp8.num_gpu_blocks - CONFIG.num_gpu_blocks == pytest.approx(7.0e9 / 2**21, rel=0.02)


@pytest.mark.parametrize(
    ("device", "quantization", "problem"),
    [
        ("Abacus", None, "device: 'Abacus'; allowed: .*H200"),
        (None, "fp3", "quantization: 'fp3'; allowed: fp8, int8, int4"),
        ("NVIDIA A10", None, "does not fit"),
    ],
)
def test_an_unknown_or_too_small_device_is_an_error(
    device: str | None, quantization: str | None, problem: str
) -> None:
    with pytest.raises(EditError, match=problem):
        changed(device, quantization)


def test_an_engine_of_unknown_shape_or_device_cannot_be_extrapolated() -> None:
    for start, problem in (
        (replace(START, shape=None), "shape is unknown"),
        (replace(START, device="AMD EPYC"), "peaks of AMD EPYC are unknown"),
    ):
        with pytest.raises(EditError, match=problem):
            on_hardware(CONFIG, start, Edits(quantization="fp8"), {})


def test_the_assumption_names_what_changes() -> None:
    found = assumption(Edits(device="NVIDIA H200", quantization="fp8"))
    assert found is not None
    assert "NVIDIA H200 with fp8" in found
    assert "quality" in found
