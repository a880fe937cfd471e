from collections.abc import Callable

import pytest

from roofline.shape import ModelShape
from roofline.shape_from_config import shape_of
from roofline.weights import gpu_weights
from tests.roofline import configs

PUBLISHED = {
    configs.llama_3_8b: 8.030e9,
    configs.llama_3_70b: 70.554e9,
    configs.mistral_7b: 7.2417e9,
    configs.mixtral_8x7b: 46.703e9,
    configs.qwen25_7b: 7.6156e9,
    configs.qwen3_8b: 8.1907e9,
    configs.qwen3_30b_a3b: 30.532e9,
    configs.qwen15_moe_a27b: 14.316e9,
    configs.deepseek_v3: 671.03e9,
    configs.deepseek_v2_lite: 15.706e9,
    configs.gemma_2_9b: 9.2417e9,
    configs.gemma_3_27b: 27.009e9,
    configs.llama_4_scout: 107.77e9,
    configs.gpt_oss_120b: 116.83e9,
    configs.gpt_2: 124.44e6,
    configs.opt_125m: 125.24e6,
    configs.falcon_7b: 6.9217e9,
}
"""The published number of parameters of the part that generates tokens."""

ACTIVE = {
    configs.mixtral_8x7b: 12.9e9,
    configs.qwen3_30b_a3b: 3.3e9,
    configs.qwen15_moe_a27b: 2.7e9,
    configs.deepseek_v3: 37e9,
    configs.llama_4_scout: 17e9,
}
"""The published number of active parameters."""


def parameters(shape: ModelShape, experts: int) -> float:
    """The model's parameters, of which a token uses this number of experts per layer."""
    weights = gpu_weights(shape)
    tables = (shape.vocabulary + shape.positions) * shape.hidden
    rest = sum(weights) - weights.expert - (weights.head if shape.tied else 0.0)
    return tables + rest + weights.expert * experts


@pytest.mark.parametrize("config", PUBLISHED, ids=lambda config: config.__name__)
def test_parameters_are_the_published_ones(config: Callable[[], configs.Config]) -> None:
    """The difference is at most 0.2 %, because norms and biases are omitted."""
    shape = shape_of(config())
    found = parameters(shape, shape.experts.count if shape.experts else 0)
    assert found == pytest.approx(PUBLISHED[config], rel=2e-3)


@pytest.mark.parametrize("config", ACTIVE, ids=lambda config: config.__name__)
def test_active_parameters_are_the_published_ones(config: Callable[[], configs.Config]) -> None:
    """The difference is at most 3 %, the precision of the published numbers."""
    shape = shape_of(config())
    assert shape.experts is not None
    found = parameters(shape, shape.experts.per_token)
    assert found == pytest.approx(ACTIVE[config], rel=0.03)


def test_ranks_divide_what_can_be_divided() -> None:
    """Each of eight GPUs has an eighth of Llama-3-70B, including keys and values."""
    config = configs.llama_3_70b()
    whole = gpu_weights(shape_of(config))
    part = gpu_weights(shape_of({**config, "tensor_parallel_size": 8}))
    assert part == pytest.approx([each / 8 for each in whole])


def test_with_fewer_heads_than_ranks_each_rank_has_a_head() -> None:
    """With sixteen ranks and eight KV heads, each rank has one head, so each head exists twice."""
    part = gpu_weights(shape_of(configs.llama_3_70b(tensor_parallel_size=16)))
    whole = gpu_weights(shape_of(configs.llama_3_70b()))
    key_values = 80 * 8192 * 128 * 2
    assert part.attention == pytest.approx((whole.attention - key_values * 8) / 16 + key_values)


def test_latent_projections_are_kept_on_each_rank() -> None:
    """All heads use the same compressed vector, so each rank needs the whole projection."""
    config = configs.deepseek_v3()
    part = gpu_weights(shape_of({**config, "tensor_parallel_size": 8}))
    whole = gpu_weights(shape_of(config))
    shared = 61 * 7168 * (1536 + 576)
    assert part.attention == pytest.approx((whole.attention - shared) / 8 + shared)


def test_stages_share_the_layers() -> None:
    """The result is the mean over the stages, because only one stage has the last layer."""
    config = configs.llama_3_70b()
    part = gpu_weights(shape_of({**config, "pipeline_parallel_size": 4}))
    assert part == pytest.approx([each / 4 for each in gpu_weights(shape_of(config))])
