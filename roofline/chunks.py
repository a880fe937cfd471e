"""The KV that chunks of long prompts read back, estimated from the ledger's sums.

Pure. A prompt longer than a step's budget is computed in chunks, and each chunk reads the KV of all
earlier chunks. 131,072 tokens in chunks of 2,048 read back 4.1 million tokens: 541 GB for
Llama-3-8B, besides the 961 GB of weights that the 64 steps read.
"""

from math import inf
from typing import NamedTuple

import numpy as np

from roofline.load import FloatArray
from telemetry.starts import read


class Chunks(NamedTuple):
    """The largest number of prompt tokens that one step computes."""

    step_tokens: float
    """The step's budget, shared with its decodes (`max_num_batched_tokens`)."""
    longest_tokens: float = inf
    """Limit for one prompt (`long_prefill_token_threshold`)."""


def read_chunks(arguments: str) -> Chunks | None:
    """Read the limits from an engine's arguments (`EngineStart.arguments`); None if they are
    missing."""
    told = read(arguments)
    budget = told.get("scheduler.max_num_batched_tokens")
    longest = told.get("scheduler.long_prefill_token_threshold")
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
    """Return a lower bound of the context tokens that prompt chunks read back.

    A chunk of p tokens reads the `start` tokens before it once. The ledger sums P = Σp and Q = Σ
    p·(start + p/2). start = q/p − p/2 ≥ q/c − p/2 if no chunk is longer than c, so

        R = Σ start ≥ Q/c − P/2,   and ≥ 0

    The bound is exact if all chunks have the maximum length, as those of long prompts have except
    for the last. It is too low for short prompts on long cached contexts. A step's budget is shared
    with its decodes: their mean per step is subtracted, which is an approximation.

    Args:
        steps: (n,) and the others alike, over short time ranges: seconds, not minutes, because
            short
            prompts reduce the bound for long ones.
        prefill_tokens: P.
        prefill_attention: Q.
        decodes: N.
        chunks: the limits.
    """
    beside = np.divide(decodes, steps, out=np.zeros(steps.shape), where=steps > 0)
    chunk = np.minimum(np.maximum(chunks.step_tokens - beside, 1.0), chunks.longest_tokens)
    return np.maximum(prefill_attention / chunk - prefill_tokens / 2, 0.0)
