from enum import Enum
from types import SimpleNamespace
from typing import Any

from tailspan_vllm.engine_state.model_shape import shape_of


def a_config(text: dict[str, Any], **changes: Any) -> SimpleNamespace:
    model = SimpleNamespace(**text)
    return SimpleNamespace(
        model_config=SimpleNamespace(
            **{"hf_config": model, "dtype": "torch.bfloat16", "quantization": None, **changes}
        ),
        cache_config=SimpleNamespace(cache_dtype="auto"),
        parallel_config=SimpleNamespace(tensor_parallel_size=2, pipeline_parallel_size=1),
    )


def test_numbers_kinds_and_ranks_are_reported() -> None:
    reported = shape_of(
        a_config(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "hidden_size": 4096,
                "tie_word_embeddings": False,
                "sliding_window": None,
            }
        )
    )
    assert reported == {
        "architecture": "LlamaForCausalLM",
        "model_type": "llama",
        "hidden_size": 4096,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "cache_dtype": "auto",
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
    }


def test_lists_are_counts_of_their_values() -> None:
    """One attribute per layer would be about a hundred attributes."""
    reported = shape_of(a_config({"layer_types": ["sliding_attention"] * 5 + ["full_attention"]}))
    assert reported["layer_types.sliding_attention"] == 5
    assert reported["layer_types.full_attention"] == 1


def test_a_multimodal_model_reports_its_decoder() -> None:
    whole = SimpleNamespace(
        architectures=["Gemma3ForConditionalGeneration"],
        hidden_size=1,
        quantization_config={"quant_method": "fp8"},
    )
    reported = shape_of(
        a_config({}, hf_config=whole, hf_text_config=SimpleNamespace(hidden_size=9))
    )
    assert reported["hidden_size"] == 9
    assert reported["quantization_config.quant_method"] == "fp8"


def test_quantisation_has_no_module_names() -> None:
    reported = shape_of(
        a_config(
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "ignore": ["lm_head", "model.layers.0.mlp"],
                    "config_groups": {
                        "group_0": {"weights": {"num_bits": 4, "group_size": 128, "type": "int"}}
                    },
                    "modules_to_not_convert": ["/home/ada/secret"],
                }
            }
        )
    )
    weights = "quantization_config.config_groups.group_0.weights"
    assert {key: value for key, value in reported.items() if key.startswith("quantization")} == {
        "quantization_config.quant_method": "compressed-tensors",
        f"{weights}.num_bits": 4,
        f"{weights}.group_size": 128,
        f"{weights}.type": "int",
    }


def test_no_path_is_reported() -> None:
    reported = shape_of(
        a_config(
            {"model_type": "/home/ada/model", "_name_or_path": "ada/private", "n_inner": "a b"}
        )
    )
    assert "ada" not in repr(reported)
    assert "n_inner" not in reported


def test_an_enum_is_its_name() -> None:
    class Kind(Enum):
        AUTO = 1

    config = a_config({})
    config.cache_config.cache_dtype = Kind.AUTO
    assert shape_of(config)["cache_dtype"] == "AUTO"
