"""What chunks of long prompts read back of the chunks before them, from the ledger's sums.

Pure. A prompt that is longer than a step's budget is computed in chunks, and each chunk reads the
KV of all before it: 131,072 tokens in chunks of 2,048 read 4.1 million, which of Llama-3-8B are
541 GB beside the 961 GB of weights that the 64 steps read.
"""

from math import inf
from typing import NamedTuple

import numpy as np

from roofline.load import FloatArray
from telemetry.starts import read


class Chunks(NamedTuple):
    """How many tokens of a prompt one step computes at most."""

    step_tokens: float
    """The step's budget, which its decodes share (`max_num_batched_tokens`)."""
    longest_tokens: float = inf
    """Of one prompt (`long_prefill_token_threshold`)."""


def read_chunks(arguments: str) -> Chunks | None:
    """What an engine was started with (`EngineStart.arguments`); None where it does not say."""
    told = read(arguments)
    budget = told.get("scheduler.max_num_batched_tokens")
    longest = told.get("scheduler.long_prefill_token_threshold")
    if not isinstance(budget, int | float) or not budget > 0:
        return None
    if not isinstance(longest, int | float) or not longest > 0:  # vLLM's 0 is no limit
        longest = inf
    return Chunks(float(budget), float(longest))


def read_back(
    steps: FloatArray,
    prefill_tokens: FloatArray,
    prefill_attention: FloatArray,
    decodes: FloatArray,
    chunks: Chunks,
) -> FloatArray:
    """At least so many tokens of context were read back by the chunks of prompts.

    A chunk of p tokens reads the `start` tokens before it once. The ledger sums P = Σp and
    Q = Σ p·(start + p/2), and start = q/p − p/2 ≥ q/c − p/2 where no chunk is longer than c, so

        R = Σ start ≥ Q/c − P/2,   and ≥ 0

    exact where all chunks are as long as they may be, as those of long prompts are but for the
    last; of short prompts on long cached contexts it is too low. A step's budget is shared with
    its decodes: their mean a step is taken off, which makes this an approximation.

    Args:
        steps: (n,) and the others likewise, over short stretches of time: seconds, not minutes,
            because short prompts take away from what long ones show.
        prefill_tokens: P.
        prefill_attention: Q.
        decodes: N.
        chunks: how long they may be.
    """
    beside = np.divide(decodes, steps, out=np.zeros(steps.shape), where=steps > 0)
    chunk = np.minimum(np.maximum(chunks.step_tokens - beside, 1.0), chunks.longest_tokens)
    return np.maximum(prefill_attention / chunk - prefill_tokens / 2, 0.0)
