import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailspan_vllm.engine_state import model_shape

from roofline.config import text_part
from roofline.errors import UnknownShapeError
from roofline.load import summed
from roofline.shape_from_config import read_shape, shape_of
from roofline.work import work_of
from tests.roofline import configs

every_config = pytest.mark.parametrize("config", configs.ALL, ids=lambda config: config.__name__)


def reported_by_vllm(config: configs.Config, **parallel: int) -> str:
    """Return the model shape that an engine reports at its start, as the collector stores it."""
    text = text_part(config)
    dtype = text["torch_dtype"]
    vllm_config = SimpleNamespace(
        model_config=SimpleNamespace(
            hf_config=SimpleNamespace(**config),
            hf_text_config=SimpleNamespace(**text),
            dtype=f"torch.{dtype}",
            quantization=(config.get("quantization_config") or {}).get("quant_method"),
        ),
        cache_config=SimpleNamespace(cache_dtype="auto"),
        parallel_config=SimpleNamespace(**parallel),
    )
    return json.dumps(model_shape.shape_of(vllm_config))


class Recording(Mapping[str, Any]):
    """A configuration that records which of its keys are read."""

    def __init__(self, values: configs.Config) -> None:
        self.values_, self.asked = values, set[str]()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return self.values_[key]

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return self.values_.get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)


@every_config
def test_an_engine_reports_the_shape_of_its_config(config: Callable[[], configs.Config]) -> None:
    assert read_shape(reported_by_vllm(config())) == shape_of(config())


@every_config
def test_every_key_that_is_read_is_reported(config: Callable[[], configs.Config]) -> None:
    values = Recording(dict(text_part(config())))
    shape_of(values)
    around = {"text_config", "llm_config", "language_config", "thinker_config"}
    ours = {
        *(*model_shape.MODEL, *model_shape.PARTS),
        *("architectures", "architecture", "dtype", "torch_dtype", "cache_dtype"),
        *("quantization", "quantization_config"),
        *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
        *("decode_context_parallel_size", "prefill_context_parallel_size"),
    }
    assert values.asked <= ours | around


def test_the_ranks_are_reported() -> None:
    shape = read_shape(
        reported_by_vllm(configs.llama_3_70b(), tensor_parallel_size=4, pipeline_parallel_size=2)
    )
    assert shape.parallel.gpus == 8


def test_prefills_that_several_gpus_share_are_not_modelled() -> None:
    reported = reported_by_vllm(configs.llama_3_70b(), prefill_context_parallel_size=2)
    with pytest.raises(UnknownShapeError, match="prefill_context_parallel_size"):
        read_shape(reported)


def test_llama_3_8b_keeps_128_kib_a_token() -> None:
    """The size is 2 · 32 layers · 8 heads · 128 · 2 bytes."""
    assert shape_of(configs.llama_3_8b()).kv_token_bytes == 128 * 1024


def test_deepseek_keeps_576_elements_a_token_and_layer() -> None:
    """The latent vector has 512 elements and the rotary part 64, for all heads together."""
    shape = shape_of(configs.deepseek_v3())
    assert shape.kv_elements == 576
    assert shape.kv_token_bytes == 61 * 576 * 2
    assert shape.experts is not None
    assert (shape.experts.layers, shape.dense_layers) == (58, 3)


@pytest.mark.parametrize(
    ("config", "window", "layers"),
    [
        (configs.mistral_7b, 4096, 32),
        (configs.gemma_2_9b, 4096, 21),
        (configs.gemma_3_27b, 1024, 52),
        (configs.gpt_oss_120b, 128, 18),
        (configs.llama_4_scout, 8192, 36),
        (configs.qwen25_7b, None, 0),
        (configs.llama_3_8b, None, 0),
    ],
)
def test_layers_that_slide(
    config: Callable[[], configs.Config], window: int | None, layers: int
) -> None:
    shape = shape_of(config())
    assert (shape.window, shape.window_layers) == (window, layers)


def test_some_layers_of_qwen2_slide_from_the_top() -> None:
    config = {**configs.qwen25_7b(), "use_sliding_window": True, "max_window_layers": 20}
    assert shape_of(config).window_layers == 8


def test_a_pattern_of_letters_is_read() -> None:
    """The pattern of EXAONE 4 is local, local, local, global."""
    config = {**configs.mistral_7b(), "sliding_window_pattern": "LLLG"}
    assert shape_of(config).window_layers == 24


def test_mixtures_in_some_layers_only() -> None:
    sparse = shape_of(configs.qwen3_30b_a3b(decoder_sparse_step=2, mlp_only_layers=[1, 3]))
    assert sparse.experts is not None
    assert (sparse.experts.layers, sparse.intermediate) == (22, 6144)
    listed = shape_of(configs.deepseek_v3(moe_layer_freq=[0] * 3 + [1] * 58))
    assert listed.experts is not None
    assert listed.experts.layers == 58
    every_other = configs.llama_4_scout()
    every_other["text_config"]["interleave_moe_layer_step"] = 2
    maverick = shape_of(every_other)
    assert maverick.experts is not None
    assert (maverick.experts.layers, maverick.intermediate) == (24, 16384)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_attention_heads": None}, "num_attention_heads"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"intermediate_size": [1, 2]}, "intermediate_size"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"hidden_size": 1e200}, "hidden_size"),
        ({"torch_dtype": "float8"}, "dtype"),
        ({"torch_dtype": None}, "dtype"),
        ({"mamba_d_state": 16}, "mamba_d_state"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"index_topk": 2048}, "index_topk"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "layer_types"),
        ({"quantization": "gguf"}, "quantization"),
        ({"cache_dtype": "turboquant_3bit_nc"}, "cache_dtype"),
        ({"kv_lora_rank": 512}, "qk_nope_head_dim"),
        ({"num_experts": 8}, "num_experts_per_tok"),
    ],
)
def test_an_unsupported_configuration_is_refused_with_its_key(
    changes: dict[str, Any], key: str
) -> None:
    with pytest.raises(UnknownShapeError) as refused:
        shape_of(configs.llama_3_8b(**changes))
    assert refused.value.key == key
    assert str(refused.value).startswith(f"{key}: ")


@pytest.mark.parametrize("text", ["", "[]", "3", "{", '{"a": 1, "a.b": 2}', "{}"])
def test_an_invalid_shape_is_refused(text: str) -> None:
    with pytest.raises(UnknownShapeError):
        read_shape(text)


numbers = st.integers(-5, 10**12) | st.floats(allow_nan=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=6,
)


@given(key=st.sampled_from((*model_shape.MODEL, "quantization_config", "dtype")), value=json_values)
def test_no_value_breaks_the_reading(key: str, value: Any) -> None:
    """A value is refused, or the work of a step can be computed."""
    step = summed(*(np.array([each]) for each in (1.0, 100.0, 5_000.0, 1_000.0, 10.0)))
    with suppress(UnknownShapeError):
        shape = shape_of(configs.deepseek_v3(**{key: value}))
        assert np.isfinite(work_of(shape, step).traffic_bytes).all()
