from typing import Any

import pytest

from roofline.shape import Precision
from roofline.shape_from_config import shape_of
from tests.roofline import configs


def a_precision(**changes: Any) -> Precision:
    return shape_of(configs.llama_3_8b(**changes)).precision


def compressed(bits: int, kind: str, group: int | None = None, activations: int = 0) -> Any:
    scheme: dict[str, Any] = {"weights": {"num_bits": bits, "type": kind, "group_size": group}}
    if activations:
        scheme["input_activations"] = {"num_bits": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": scheme}}


@pytest.mark.parametrize(
    ("quantization", "weight_bytes", "math"),
    [
        (None, 2.0, "bf16"),
        ({"quant_method": "fp8"}, 1.0, "fp8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.5195, "bf16"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1.0, "bf16"),
        ({"quant_method": "awq"}, 0.5, "bf16"),
        ({"quant_method": "bitsandbytes"}, 0.5625, "bf16"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1.0, "bf16"),
        ({"quant_method": "modelopt_fp4"}, 0.5625, "fp4"),
        (compressed(8, "float", activations=8), 1.0, "fp8"),
        (compressed(8, "int", activations=8), 1.0, "int8"),
        (compressed(4, "int", group=128), 0.5195, "bf16"),
        (compressed(4, "float", group=16, activations=4), 0.5625, "fp4"),
    ],
)
def test_a_quantised_weight(quantization: Any, weight_bytes: float, math: str) -> None:
    precision = a_precision(quantization_config=quantization)
    assert precision.linear_bytes == pytest.approx(weight_bytes, rel=1e-3)
    assert precision.expert_bytes == precision.linear_bytes
    assert (precision.linear_math, precision.plain_math) == (math, "bf16")
    assert precision.plain_bytes == 2.0


def test_a_method_chosen_at_the_start_counts() -> None:
    assert a_precision(quantization="fp8").linear_bytes == 1.0


def test_experts_alone_may_be_quantised() -> None:
    """The experts of gpt-oss have 4 bits and a scale per 32 weights; attention is in bf16."""
    precision = shape_of(configs.gpt_oss_120b()).precision
    assert (precision.linear_bytes, precision.expert_bytes) == (2.0, 0.53125)


@pytest.mark.parametrize(
    ("changes", "kv_bytes"),
    [
        ({}, 2.0),
        ({"torch_dtype": "float32"}, 4.0),
        ({"cache_dtype": "fp8"}, 1.0),
        ({"cache_dtype": "fp8_e5m2"}, 1.0),
        ({"cache_dtype": "int4_per_token_head"}, 0.5),
        ({"quantization_config": {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8}}}, 1.0),
        ({"quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}}, 1.0),
    ],
)
def test_an_element_of_the_cache(changes: dict[str, Any], kv_bytes: float) -> None:
    assert a_precision(**changes).kv_bytes == kv_bytes


def test_the_fp8_latent_cache_has_656_bytes_a_token_and_layer() -> None:
    """FlashMLA stores the rotary part in 16 bits, and adds scales."""
    shape = shape_of(configs.deepseek_v3(cache_dtype="fp8_ds_mla"))
    assert shape.kv_token_bytes == pytest.approx(61 * 656)


def test_the_weights_of_quantised_models_fit_what_is_published() -> None:
    """The files of Llama-3-70B in AWQ have 39.8 GB: weights in 4 bits with scales, and tables in 16
    bits."""
    from roofline.load import step
    from roofline.work import work_of

    shape = shape_of(
        configs.llama_3_70b(quantization_config={"quant_method": "awq", "group_size": 128})
    )
    read = work_of(shape, step(decodes=1))
    table_bytes = 128256 * 8192 * 2
    assert float(read.weight_bytes[0]) + table_bytes == pytest.approx(39.8e9, rel=0.01)
