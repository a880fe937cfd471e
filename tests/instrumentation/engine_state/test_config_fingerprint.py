from enum import Enum
from types import SimpleNamespace
from typing import Any

from tailspan_vllm.engine_state.config_fingerprint import arguments_of, fingerprint


class Backend(Enum):
    FLASH_ATTN = "vllm.v1.attention.backends.flash_attn.FlashAttentionBackend"


def a_config(**changes: Any) -> SimpleNamespace:
    """Return a configuration with vLLM's structure; `part__name` changes one argument."""
    parts: dict[str, dict[str, Any]] = {
        "model_config": {"model": "/home/ada/models/secret-8b", "dtype": "torch.bfloat16"},
        "cache_config": {"block_size": 16, "num_gpu_blocks": 4096},
        "scheduler_config": {"max_num_seqs": 256, "policy": "fcfs", "api_key": "sk-123"},
        "attention_config": {"backend": Backend.FLASH_ATTN},
    }
    for name, value in changes.items():
        part, _, argument = name.partition("__")
        parts[f"{part}_config"][argument] = value
    return SimpleNamespace(**{part: SimpleNamespace(**given) for part, given in parts.items()})


def test_arguments_keep_their_types() -> None:
    reported = arguments_of(a_config(cache__gpu_memory_utilization=0.9, model__quantization=None))
    assert reported["cache.block_size"] == 16
    assert reported["cache.gpu_memory_utilization"] == 0.9
    assert reported["model.dtype"] == "bfloat16"
    assert reported["attention.backend"] == "FLASH_ATTN"
    assert "model.quantization" not in reported
    assert "lora.max_loras" not in reported


def test_paths_and_secrets_are_hidden() -> None:
    reported = repr(arguments_of(a_config()))
    assert "ada" not in reported
    assert "sk-123" not in reported
    assert arguments_of(a_config())["model.model"] != arguments_of(
        a_config(model__model="/home/ada/models/other")
    ).get("model.model")


def test_a_hub_name_that_looks_like_a_path_is_a_digest_too() -> None:
    """`ada/private-model` may be a folder."""
    reported = arguments_of(a_config(model__model="ada/private-model"))
    assert str(reported["model.model"]).startswith("sha256:")


def test_the_fingerprint_follows_arguments_and_not_measurements() -> None:
    """The number of KV blocks depends on the free memory, which differs at each start."""
    first = fingerprint(arguments_of(a_config()))
    assert first == fingerprint(arguments_of(a_config(cache__num_gpu_blocks=4099)))
    assert first != fingerprint(arguments_of(a_config(scheduler__max_num_seqs=128)))


def test_uncounted_blocks_are_omitted() -> None:
    """vLLM reports 0 until it has counted the blocks."""
    assert "cache.num_gpu_blocks" not in arguments_of(a_config(cache__num_gpu_blocks=0))


def test_a_configuration_of_another_shape_is_empty() -> None:
    assert arguments_of(SimpleNamespace()) == {}
