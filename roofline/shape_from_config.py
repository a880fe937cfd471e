"""Read a model's shape from its configuration: Hugging Face's `config.json`, or an engine's report.
Pure.

An engine's report also contains arguments with vLLM's names. A model with unsupported parts is
rejected, because its result would be wrong.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from roofline.config import Config, text_part
from roofline.errors import UnknownShapeError
from roofline.precision import precision_of
from roofline.shape import Experts, Latent, ModelShape, Parallel
from roofline.sliding import sliding_layers

_NOT_MODELLED: Final = {
    "mamba_d_state": "state-space layers",
    "ssm_cfg": "state-space layers",
    "ssm_state_size": "state-space layers",
    "state_size": "state-space layers",
    "hybrid_override_pattern": "state-space layers",
    "layers_block_type": "layers of several types",
    "linear_attn_config": "linear attention",
    "linear_num_value_heads": "linear attention",
    "conv_L_cache": "convolutions",
    "index_topk": "sparse attention",
    "compress_ratios": "compressed attention",
    "block_configs": "layers of different sizes",
    "is_heterogeneous": "layers of different sizes",
    "ffn_config": "nested sizes",
    "hidden_size_per_layer_input": "embeddings of each layer",
    "is_encoder_decoder": "an encoder",
}
"""Maps configuration keys to the model parts that are not supported."""

_TWO_MATRICES: Final = frozenset(
    {"arcee", "bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "mpt", "nemotron",
     "opt", "phi", "starcoder2"}
)  # fmt: skip
"""Model types whose feed-forward layers have no gate."""
_TIED: Final = frozenset(
    {"bloom", "falcon", "gemma", "gemma2", "gemma3", "gemma3_text", "gpt2", "gpt_bigcode", "mpt",
     "opt"}
)  # fmt: skip
"""Model types whose default for `tie_word_embeddings` is true."""
_LEARNT_POSITIONS: Final = frozenset({"gpt2", "gpt_bigcode", "opt"})
_MAX_LAYERS: Final = 10_000
_FOUR_TIMES: Final = frozenset({"bloom", "falcon", "gpt2", "gpt_bigcode", "gptj", "mpt"})
"""Model types whose feed-forward width is four times the hidden size by default."""


def read_shape(report: str) -> ModelShape:
    """The shape that an engine reported at its start (`EngineStart.shape`).

    Raises:
        UnknownShapeError: the text is not a JSON object, or `shape_of` rejects it.
    """
    try:
        config = json.loads(report)
    except ValueError as error:
        raise UnknownShapeError("shape", f"no JSON: {error}") from error
    if not isinstance(config, dict):
        raise UnknownShapeError("shape", f"{type(config).__name__}; allowed: an object")
    return shape_of(_nested(config))


def _nested(report: Mapping[str, Any]) -> dict[str, Any]:
    """Rebuild the nested mappings of a report. Keys of nested values are paths: `a.b`."""
    config: dict[str, Any] = {}
    for path, value in report.items():
        *parts, key = path.split(".")
        place = config
        for part in parts:
            below = place.setdefault(part, {})
            if not isinstance(below, dict):
                raise UnknownShapeError(path, f"{part} is both a value and a mapping")
            place = below
        place[key] = value
    return config


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """The shape that a configuration describes.

    Args:
        config: the configuration with Hugging Face's keys. It may also contain vLLM's
            `tensor_parallel_size`, `pipeline_parallel_size`, `data_parallel_size`,
            `decode_context_parallel_size`, `prefill_context_parallel_size`, `cache_dtype` and
            `quantization`.

    Raises:
        UnknownShapeError: a key is missing, or belongs to an unsupported part.
    """
    model = Config(text_part(config))
    for key, what in _NOT_MODELLED.items():
        value = model.get(key)
        if value is not None and value is not False and value not in (0, [], {}):
            raise UnknownShapeError(key, f"{what}: not modelled")
    divided = model.whole_or_none("prefill_context_parallel_size") or 1
    if divided > 1:
        raise UnknownShapeError("prefill_context_parallel_size", f"{divided}: not modelled")
    kind = model.text("model_type")
    layers = model.whole("num_hidden_layers", "n_layer", "n_layers")
    if layers > _MAX_LAYERS:
        raise UnknownShapeError("num_hidden_layers", f"{layers}; allowed: up to {_MAX_LAYERS}")
    hidden = model.whole("hidden_size", "n_embd", "d_model")
    heads = model.whole("num_attention_heads", "n_head", "n_heads")
    latent = _latent(model)
    experts = _experts(model, layers)
    window, window_layers = sliding_layers(model, kind, layers)
    every_layer = experts is not None and experts.layers == layers
    tensor = model.whole_or_none("tensor_parallel_size") or 1
    return ModelShape(
        architecture=_architecture(model),
        vocabulary=model.whole("vocab_size"),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=_kv_heads(model, heads),
        head_dim=latent.key_dim if latent else model.whole_or_none("head_dim") or hidden // heads,
        intermediate=0 if every_layer else _intermediate(model, kind, hidden),
        gated=kind not in _TWO_MATRICES,
        tied=model.flag("tie_word_embeddings", kind in _TIED),
        positions=_positions(model) if kind in _LEARNT_POSITIONS else 0,
        window=window,
        window_layers=window_layers,
        latent=latent,
        experts=experts,
        precision=precision_of(model, latent),
        parallel=Parallel(
            tensor=tensor,
            pipeline=model.whole_or_none("pipeline_parallel_size") or 1,
            data=model.whole_or_none("data_parallel_size") or 1,
            context=model.whole_or_none("decode_context_parallel_size") or 1,
        ),
    )


def _architecture(model: Config) -> str | None:
    named = model.get("architectures", "architecture")
    if isinstance(named, list | tuple):
        named = named[0] if named else None
    return str(named) if named else None


def _kv_heads(model: Config, heads: int) -> int:
    configured = model.whole_or_none(
        "num_key_value_heads",
        "num_kv_heads",
        "n_head_kv",
        "multi_query_group_num",
        "num_attention_groups",
    )
    if configured is None and model.flag("multi_query", False):
        return 1
    return configured or heads


def _intermediate(model: Config, kind: str, hidden: int) -> int:
    configured = model.whole_or_none(
        "intermediate_size_mlp", "intermediate_size", "ffn_dim", "n_inner"
    )
    if configured is None and kind in _FOUR_TIMES:
        return 4 * hidden
    return configured or model.whole(
        "intermediate_size", "ffn_dim", "n_inner", "intermediate_size_mlp"
    )


def _positions(model: Config) -> int:
    return model.whole_or_none("max_position_embeddings", "n_positions") or 0


def _latent(model: Config) -> Latent | None:
    rank = model.whole_or_none("kv_lora_rank")
    if rank is None:
        return None
    return Latent(
        kv_rank=rank,
        query_rank=model.whole_or_none("q_lora_rank"),
        nope_dim=model.whole("qk_nope_head_dim"),
        rope_dim=model.whole("qk_rope_head_dim"),
        value_dim=model.whole("v_head_dim"),
    )


def _experts(model: Config, layers: int) -> Experts | None:
    count = model.whole_or_none(
        "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"
    )
    if count is None:
        return None
    width = model.whole("moe_intermediate_size", "intermediate_size")
    shared = model.whole_or_none("shared_expert_intermediate_size", "shared_intermediate_size")
    if shared is None:
        number = model.whole_or_none(
            "n_shared_experts", "num_shared_experts", "moe_num_shared_experts"
        )
        alone = model.text("model_type").startswith("llama4")
        shared = (number or (1 if alone else 0)) * width
    per_token = model.whole(
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "top_k_experts",
        "moe_topk",
        "moe_top_k",
        "moe_k",
    )
    if per_token > count:
        raise UnknownShapeError("num_experts_per_tok", f"{per_token}; allowed: at most {count}")
    return Experts(
        layers=_layers_of_experts(model, layers),
        count=count,
        per_token=per_token,
        intermediate=width,
        shared_intermediate=shared,
    )


def _layers_of_experts(model: Config, layers: int) -> int:
    first = model.whole_or_none("first_k_dense_replace", "moe_layer_start_index") or 0
    chosen = model.tally("moe_layer_freq")
    if chosen:
        return chosen.get("1", 0)
    every = model.whole_or_none(
        "interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq", "moe_layer_interval"
    )
    every = every or 1
    # In each group of `every` layers, one layer has experts: the first layer in DeepSeek's models,
    # the last layer in other models.
    remainder = 0 if model.get("moe_layer_freq") is not None else every - 1
    among = sum(layer % every == remainder for layer in range(first, layers))
    return max(0, among - sum(model.tally("mlp_only_layers").values()))
