from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.chunks import Chunks, read_back, read_chunks
from roofline.load import FloatArray

BUDGET = 2_048


def chunked(prompt: int, cached: int, budget: int = BUDGET) -> list[tuple[int, int]]:
    starts = range(cached, prompt, budget)
    return [(min(budget, prompt - start), start) for start in starts]


def sums(chunks: list[tuple[int, int]]) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    prefill = sum(p for p, _ in chunks)
    attention = sum(p * (start + p / 2) for p, start in chunks)
    steps, prompts = np.array([float(len(chunks))]), np.array([float(prefill)])
    return steps, prompts, np.array([float(attention)]), np.zeros(1)


def test_a_long_prompt_is_exact() -> None:
    """A prompt of 131,072 tokens in 64 chunks of 2,048 reads 4,128,768 tokens of context."""
    (found,) = read_back(*sums(chunked(131_072, 0)), Chunks(BUDGET))
    assert found == 2_048 * 64 * 63 / 2 == 4_128_768


def test_short_prompts_read_no_earlier_context() -> None:
    assert read_back(*sums([(500, 0)] * 40), Chunks(BUDGET)) == 0


@given(st.lists(st.tuples(st.integers(1, 40_000), st.integers(0, 20_000)), min_size=1, max_size=5))
def test_the_estimate_never_exceeds_the_bytes_of_the_chunks(prompts: list[tuple[int, int]]) -> None:
    chunks = [each for prompt, cached in prompts for each in chunked(cached + prompt, cached)]
    (found,) = read_back(*sums(chunks), Chunks(BUDGET))
    assert found <= sum(start for _, start in chunks) * (1 + 1e-12) + 1e-6


def test_decodes_share_the_budget_of_a_step() -> None:
    """A step of 2,048 tokens with 48 decodes has space for a chunk of 2,000."""
    steps, prefill, attention, _ = sums(chunked(100_000, 0, 2_000))
    (found,) = read_back(steps, prefill, attention, steps * 48, Chunks(BUDGET))
    assert found == pytest.approx(2_000 * 50 * 49 / 2)


@pytest.mark.parametrize(
    ("arguments", "chunks"),
    [
        ("{}", None),
        ('{"scheduler.max_num_batched_tokens": 0}', None),
        ('{"scheduler.max_num_batched_tokens": "many"}', None),
        ('{"scheduler.max_num_batched_tokens": 8192}', Chunks(8_192, inf)),
        (
            '{"scheduler.long_prefill_token_threshold": 0,'
            ' "scheduler.max_num_batched_tokens": 8192}',
            Chunks(8_192, inf),
        ),
        (
            '{"scheduler.long_prefill_token_threshold": 1024,'
            ' "scheduler.max_num_batched_tokens": 8192}',
            Chunks(8_192, 1_024),
        ),
    ],
)
def test_the_length_of_chunks_is_an_engines_argument(arguments: str, chunks: Chunks | None) -> None:
    assert read_chunks(arguments) == chunks
