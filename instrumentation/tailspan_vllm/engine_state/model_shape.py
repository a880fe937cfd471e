"""Reads the shape of a served model: the configuration values that determine bytes and FLOPs.

The keys of Hugging Face's configuration and of vLLM's arguments are reported unchanged.
`roofline/shape_from_config.py` interprets them. Only numbers, booleans and type names are reported,
never a path or the name of a checkpoint. A nested key has the name of its part as prefix. A list is
reported as counts: `layer_types.sliding_attention` = 20.

Source: transformers' configuration classes; vllm/config, 0.12 to 0.33.
"""

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from tailspan_vllm.engine_state.config_fingerprint import Scalar

MODEL: Final = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "n_embd",
    "d_model",
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "multi_query",
    "multi_query_group_num",
    "num_attention_groups",
    "head_dim",
    "intermediate_size",
    "intermediate_size_mlp",
    "ffn_dim",
    "n_inner",
    "tie_word_embeddings",
    "max_position_embeddings",
    "n_positions",
    "sliding_window",
    "sliding_window_pattern",
    "use_sliding_window",
    "max_window_layers",
    "attention_chunk_size",
    "layer_types",
    "kv_lora_rank",
    "q_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "moe_num_experts",
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "moe_intermediate_size",
    "n_shared_experts",
    "num_shared_experts",
    "moe_num_shared_experts",
    "shared_expert_intermediate_size",
    "shared_intermediate_size",
    "first_k_dense_replace",
    "moe_layer_freq",
    "moe_layer_interval",
    "moe_layer_start_index",
    "interleave_moe_layer_step",
    "decoder_sparse_step",
    "mlp_only_layers",
    "mamba_d_state",
    "ssm_state_size",
    "state_size",
    "hybrid_override_pattern",
    "layers_block_type",
    "linear_num_value_heads",
    "conv_L_cache",
    "index_topk",
    "compress_ratios",
    "hidden_size_per_layer_input",
    "is_encoder_decoder",
    "is_heterogeneous",
)

PARTS: Final = (
    "linear_attn_config",
    "ssm_cfg",
    "ffn_config",
    "block_configs",
)
"""Only the presence of these parts is reported."""

QUANTIZATION: Final = (
    "quant_method",
    "quant_algo",
    "kv_cache_quant_algo",
    "bits",
    "w_bit",
    "num_bits",
    "type",
    "group_size",
    "q_group_size",
    "load_in_8bit",
    "load_in_4bit",
)

_INSIDE: Final = ("config_groups", "weights", "input_activations", "kv_cache_scheme")
_GROUP: Final = "group_"
_MAX_KINDS: Final = 16
_TEXT_LIMIT: Final = 64


def shape_of(vllm_config: Any) -> dict[str, Scalar]:
    """The model's shape. Can raise any exception if vLLM's configuration has an unexpected
    structure."""
    model = vllm_config.model_config
    whole = getattr(model, "hf_config", None)
    text = getattr(model, "hf_text_config", None) or whole
    if text is None:
        return {}
    shape: dict[str, Scalar] = {}
    for key in MODEL:
        _add(shape, key, getattr(text, key, None))
    for key in PARTS:
        if getattr(text, key, None):
            shape[key] = True
    architectures = getattr(whole, "architectures", None)
    if architectures:
        _add(shape, "architecture", architectures[0])
    for config in (whole, text):
        quantised = getattr(config, "quantization_config", None)
        if isinstance(quantised, Mapping):
            _add_quantisation(shape, "quantization_config", quantised)
    _add(shape, "quantization", getattr(model, "quantization", None))
    _add(shape, "dtype", getattr(model, "dtype", None))
    _add(shape, "cache_dtype", getattr(vllm_config.cache_config, "cache_dtype", None))
    for key in (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
    ):
        _add(shape, key, getattr(vllm_config.parallel_config, key, None))
    return shape


def _add(shape: dict[str, Scalar], key: str, value: Any) -> None:
    if isinstance(value, list | tuple):
        kinds = Counter(each for each in map(_scalar, value) if each is not None)
        if len(kinds) <= _MAX_KINDS:
            for kind, count in kinds.items():
                shape[f"{key}.{kind}"] = count
        return
    found = _scalar(value)
    if found is not None:
        shape[key] = found


def _add_quantisation(shape: dict[str, Scalar], path: str, part: Mapping[Any, Any]) -> None:
    for key, value in part.items():
        if not isinstance(key, str):
            continue
        if isinstance(value, Mapping):
            if key in _INSIDE or (key.startswith(_GROUP) and key[len(_GROUP) :].isdigit()):
                _add_quantisation(shape, f"{path}.{key}", value)
        elif key in QUANTIZATION:
            _add(shape, f"{path}.{key}", value)


def _scalar(value: Any) -> Scalar | None:
    """A number, a boolean or a type name. Other text, such as a path, becomes None."""
    if isinstance(value, Enum):
        value = value.value if isinstance(value.value, str) else value.name
    if value is None or isinstance(value, bool | int | float):
        return value
    text = (value if isinstance(value, str) else str(value)).removeprefix("torch.")
    plain = 0 < len(text) <= _TEXT_LIMIT and all(each.isalnum() or each in "_-" for each in text)
    return text if plain else None
