from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.load import StepLoad, step, summed
from roofline.shape_from_config import shape_of
from roofline.work import GpuWork, work_of
from tests.roofline import configs

LLAMA = shape_of(configs.llama_3_8b())


def of(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    (value,) = values
    return float(value)


def test_the_published_step_of_llama_3_8b() -> None:
    """The step has 32 sequences of 8,192 tokens: 14.7 ms at 3.35 TB/s.

    The step reads 34.4 GB of KV cache and 15.0 GB of weights. Calculated by hand: 32 layers of
    4,096·(2·32 + 2·8)·128 + 3·4,096·14,336 elements and the last layer's 128,256·4,096, with two
    bytes each. The input embeddings are as large as the last layer: 6.5 % of all bytes.
    """
    work = work_of(LLAMA, step(context_tokens=32 * 8192, decodes=32))
    assert of(work.kv_read_bytes) == 32 * 8192 * 128 * 1024
    assert of(work.kv_read_bytes) == pytest.approx(34.4e9, rel=2e-3)
    layers = 32 * (4_096 * (2 * 32 + 2 * 8) * 128 + 3 * 4_096 * 14_336)
    assert of(work.weight_bytes) == 2 * (layers + 128_256 * 4_096)
    assert of(work.weight_bytes) == pytest.approx(15.01e9, rel=1e-3)
    assert of(work.table_bytes) == 32 * 4_096 * 2
    assert 128_256 * 4_096 / (layers + 2 * 128_256 * 4_096) == pytest.approx(0.065, abs=5e-4)
    assert of(work.bytes) == pytest.approx(49.37e9, rel=1e-3)
    assert of(work.bytes) / 3.35e12 == pytest.approx(14.74e-3, rel=1e-3)
    assert of(work.kv_write_bytes) == 32 * 128 * 1024


def test_a_prompt_costs_two_flops_a_weight_and_token_and_its_attention() -> None:
    """8,192 tokens of Llama-3-8B need 2 · 6.98 GFLOP per token, and 524 kFLOP per token pair."""
    tokens = 8192.0
    asked = step(prefill_tokens=tokens, prefill_attention=tokens**2 / 2, prompts=1)
    work = work_of(LLAMA, asked)
    without_tables = 8.03e9 - 2 * 128256 * 4096
    attention = 4 * 32 * 4096 * tokens**2 / 2
    assert of(work.linear_flops) == pytest.approx(2 * without_tables * tokens, rel=1e-3)
    assert of(work.plain_flops) == pytest.approx(attention + 2 * 128256 * 4096, rel=1e-6)
    assert of(work.flops) == of(work.linear_flops) + of(work.plain_flops)


def test_tied_tables_are_read_once() -> None:
    """The input table is also the last layer's matrix, which every step reads."""
    tied = work_of(shape_of(configs.llama_3_8b(tie_word_embeddings=True)), step(decodes=1))
    apart = work_of(LLAMA, step(decodes=1))
    assert of(tied.bytes) == of(apart.bytes) == pytest.approx(15.01e9, rel=1e-3)


def test_one_row_of_a_table_is_read_per_token() -> None:
    """Learnt positions add one row per token. Each row is on one rank."""
    assert of(work_of(LLAMA, step(prefill_tokens=8_192)).table_bytes) == 8_192 * 4_096 * 2
    divided = shape_of(configs.llama_3_8b(tensor_parallel_size=4))
    assert of(work_of(divided, step(prefill_tokens=8_192)).table_bytes) == 8_192 * 4_096 * 2 / 4


def test_traffic_bytes_include_activations() -> None:
    work = work_of(LLAMA, step(prefill_tokens=8192, prefill_attention=8192**2 / 2))
    moved = of(work.traffic_bytes)
    assert moved == pytest.approx(of(work.bytes) + of(work.activation_bytes), rel=1e-9)
    # 30 to 50 vectors of the hidden size per layer and token, with two bytes per value.
    assert of(work.activation_bytes) / (8192 * 32 * 4096 * 2) == pytest.approx(40, abs=10)


def test_a_sliding_layer_reads_its_window() -> None:
    """Mistral-7B reads half of a context of 8,192 tokens, and all of a context of 1,024 tokens."""
    shape = shape_of(configs.mistral_7b())
    long = work_of(shape, step(context_tokens=8192, decodes=1))
    short = work_of(shape, step(context_tokens=1024, decodes=1))
    assert of(long.kv_read_bytes) == 4096 * 128 * 1024
    assert of(short.kv_read_bytes) == 1024 * 128 * 1024


def test_every_other_layer_slides() -> None:
    """In Gemma 2, 21 of 42 layers read 4,096 of 8,192 tokens."""
    work = work_of(shape_of(configs.gemma_2_9b()), step(context_tokens=8192, decodes=1))
    assert of(work.kv_read_bytes) == 21 * (8192 + 4096) * 2 * 8 * 256 * 2


def test_latent_attention_reads_576_elements_a_token_and_layer() -> None:
    for tensor in (1, 8):
        shape = shape_of(configs.deepseek_v3(tensor_parallel_size=tensor))
        work = work_of(shape, step(context_tokens=1000, decodes=1))
        assert of(work.kv_read_bytes) == 1000 * 61 * 576 * 2


def test_decode_context_parallelism_divides_the_cache() -> None:
    shape = shape_of(configs.deepseek_v3(tensor_parallel_size=8, decode_context_parallel_size=8))
    work = work_of(shape, step(context_tokens=1000, decodes=1))
    assert of(work.kv_read_bytes) == pytest.approx(1000 * 61 * 576 * 2 / 8)


@pytest.mark.parametrize(("decodes", "experts"), [(1, 2.0), (4, 8 * (1 - 0.75**4)), (1000, 8.0)])
def test_experts_are_read_by_their_expected_choice(decodes: int, experts: float) -> None:
    """Mixtral-8x7B reads two of eight experts for one token, and all for many tokens."""
    shape = shape_of(configs.mixtral_8x7b())
    one, none = (work_of(shape, step(decodes=n)) for n in (decodes, 0))
    of_an_expert = 32 * 3 * 4096 * 14336 * 2
    read = of(one.weight_bytes) - of(none.weight_bytes)
    assert read == pytest.approx(experts * of_an_expert, rel=1e-9)


def test_a_mixture_computes_only_the_experts_of_a_token() -> None:
    """Qwen3-30B-A3B computes 2 · (3.35 − 0.62 for tables) GFLOP per token, and the last layer."""
    shape = shape_of(configs.qwen3_30b_a3b())
    work = work_of(shape, step(decodes=10))
    assert of(work.linear_flops) == pytest.approx(10 * 2 * 2.73e9, rel=0.01)
    assert of(work.plain_flops) == pytest.approx(10 * 2 * 151936 * 2048, rel=1e-6)


def test_engines_that_share_experts_share_their_bytes() -> None:
    """Each of two engines on one GPU reads half of the experts, for twice the tokens."""
    alone = shape_of(configs.qwen3_30b_a3b())
    two = shape_of(configs.qwen3_30b_a3b(data_parallel_size=2))
    none = step()
    of_alone = of(
        work_of(alone, step(decodes=512)).weight_bytes - work_of(alone, none).weight_bytes
    )
    of_two = of(work_of(two, step(decodes=256)).weight_bytes - work_of(two, none).weight_bytes)
    assert of_two == pytest.approx(of_alone / 2, rel=1e-6)
    assert of(work_of(two, step(decodes=256)).flops) == pytest.approx(
        of(work_of(alone, step(decodes=256)).flops)
    )


def test_drafted_tokens_are_computed_and_read_nothing_more() -> None:
    """One step checks all drafted tokens, so the weights and the KV cache are read once."""
    plain = work_of(LLAMA, step(context_tokens=4000, decodes=4))
    drafted = work_of(LLAMA, step(context_tokens=4000, decodes=4, draft_tokens=12))
    assert of(drafted.flops) == pytest.approx(4 * of(plain.flops))
    assert of(drafted.kv_read_bytes) == of(plain.kv_read_bytes)
    assert of(drafted.weight_bytes) == of(plain.weight_bytes)


def test_context_that_prompts_read_again_counts_if_known() -> None:
    work = work_of(LLAMA, step(prefill_tokens=100, prefill_context_tokens=4096))
    assert of(work.kv_read_bytes) == 4096 * 128 * 1024


def test_the_unknown_stays_unknown() -> None:
    unknown = np.array([np.nan])
    one = np.ones(1)
    work = work_of(LLAMA, summed(one, unknown, one, one, one))
    assert np.isnan(work.bytes).all()


def test_a_window_of_equal_steps_is_so_many_steps() -> None:
    for config in (configs.llama_3_8b, configs.mixtral_8x7b, configs.deepseek_v3):
        shape = shape_of(config())
        one = work_of(shape, step(context_tokens=9000, decodes=9))
        hundred = summed(*(np.array([100.0 * each]) for each in (1, 0, 0, 9000, 9)))
        assert of(work_of(shape, hundred).bytes) == pytest.approx(100 * of(one.bytes))


def test_prompts_among_decodes_touch_experts_in_their_own_steps() -> None:
    """One step of 8,192 prompt tokens and 99 steps of 10 tokens differ from 100 steps of 92."""
    shape = shape_of(configs.qwen3_30b_a3b())
    apart = 99 * of(work_of(shape, step(decodes=10)).weight_bytes)
    apart += of(work_of(shape, step(decodes=10, prefill_tokens=8192)).weight_bytes)
    window = summed(*(np.array([float(each)]) for each in (100, 8192, 8192**2 / 2, 0, 1000)))
    assert of(work_of(shape, window).weight_bytes) == pytest.approx(apart, rel=0.2)


amounts = st.floats(0, 1e6)


def a_load(rows: list[tuple[float, float, float, float]]) -> StepLoad:
    columns = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    return summed(np.full(columns.shape[1], 100.0), *columns)


@given(
    rows=st.lists(st.tuples(amounts, amounts, amounts, amounts), min_size=1, max_size=4),
    config=st.sampled_from([configs.llama_3_8b, configs.deepseek_v3, configs.qwen15_moe_a27b]),
)
def test_work_is_monotone(rows: list[tuple[float, float, float, float]], config: Any) -> None:
    shape, less = shape_of(config()), a_load(rows)
    more = a_load([(p + 1, q + 1, c + 1, n + 1) for p, q, c, n in rows])
    a, b = work_of(shape, less), work_of(shape, more)
    for each in fields(GpuWork):
        low, high = getattr(a, each.name), getattr(b, each.name)
        assert (low >= 0).all()
        assert (high >= low * (1 - 1e-12)).all()


@given(
    tensor=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.sampled_from([1, 2, 4]),
    row=st.tuples(amounts, amounts, amounts, amounts),
)
def test_gpus_of_a_dense_model_together_do_the_whole(
    tensor: int, pipeline: int, row: tuple[float, float, float, float]
) -> None:
    """With up to eight ranks for eight KV heads, no work is repeated."""
    spread = shape_of(
        configs.llama_3_8b(tensor_parallel_size=tensor, pipeline_parallel_size=pipeline)
    )
    part, whole = work_of(spread, a_load([row])), work_of(LLAMA, a_load([row]))
    gpus = tensor * pipeline
    assert of(part.bytes) * gpus == pytest.approx(of(whole.bytes))
    assert of(part.flops) * gpus == pytest.approx(of(whole.flops))
