"""Estimate how many bytes of KV cache the chunks of long prompts read again.

The estimate uses sums of the step ledger, the plugin's record of engine steps. Pure.

Each chunk of a prompt reads the keys and values (KV) of all earlier chunks again.
"""

from math import inf
from typing import NamedTuple

import numpy as np

from roofline.load import FloatArray
from telemetry.starts import read


class Chunks(NamedTuple):
    """Limits on the number of tokens that one step computes."""

    step_tokens: float
    """Token budget of a step. Prompts and decodes share it (`max_num_batched_tokens`)."""
    longest_tokens: float = inf
    """Maximum length of a chunk of one prompt (`long_prefill_token_threshold`)."""


def read_chunks(arguments: str) -> Chunks | None:
    """The limits from `EngineStart.arguments`, or None if they are missing."""
    values = read(arguments)
    budget = values.get("scheduler.max_num_batched_tokens")
    longest = values.get("scheduler.long_prefill_token_threshold")
    if not isinstance(budget, int | float) or not budget > 0:
        return None
    if not isinstance(longest, int | float) or not longest > 0:  # in vLLM, 0 means no limit
        longest = inf
    return Chunks(float(budget), float(longest))


def read_back(
    steps: FloatArray,
    prefill_tokens: FloatArray,
    prefill_attention: FloatArray,
    decodes: FloatArray,
    chunks: Chunks,
) -> FloatArray:
    """A lower bound of the number of context tokens that chunks of prompts read again. Each chunk
    reads all earlier tokens of its prompt.

    A chunk of p tokens reads the `start` tokens before it, and computes attention for q = p·(start
    + p/2) pairs of tokens. The ledger contains P = Σp and Q = Σq. If no chunk is longer than c,
    then start = q/p − p/2 ≥ q/c − p/2. The sum over all chunks is

    R = Σ start ≥ Q/c − P/2, and ≥ 0

    The bound is exact if all chunks have the maximum length. In a long prompt, all chunks except
    the final chunk have this length. The bound is too low for short prompts on long cached
    contexts. c is the smaller limit in `chunks`. The mean number of decodes per step is subtracted
    from the token budget.

    Args:
        steps: (n,) number of steps in each time range. Ranges should be a few seconds long, because
            short prompts lower the bound for long prompts in the same range.
        prefill_tokens: (n,) P, the number of prompt tokens.
        prefill_attention: (n,) Q, the number of token pairs in the attention of the chunks.
        decodes: (n,) N, the number of decodes.
    """
    decodes_per_step = np.divide(decodes, steps, out=np.zeros(steps.shape), where=steps > 0)
    chunk = np.minimum(
        np.maximum(chunks.step_tokens - decodes_per_step, 1.0), chunks.longest_tokens
    )
    return np.maximum(prefill_attention / chunk - prefill_tokens / 2, 0.0)
