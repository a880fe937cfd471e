"""Define the scheduled work of single steps, or of all steps in a time window. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

PROMPT_CHUNK_TOKENS = 512.0
"""Assumed number of prompt tokens in each step with prompts, if only sums over steps are known. The
assumption affects only models with a mixture of experts: 512 tokens use nearly all experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLoad:
    """The work of steps, as counted by the step ledger (the plugin's record of engine steps). Each
    array has one value for each step or time window: (n,)."""

    steps: FloatArray
    prefill_tokens: FloatArray
    """P: number of computed prompt tokens."""
    prefill_attention: FloatArray
    """Q: Σ p·(start + p/2) over the prefill chunks, where a chunk of p tokens follows `start`
    earlier tokens."""
    context_tokens: FloatArray
    """C: number of context tokens that decodes read."""
    decodes: FloatArray
    """N: number of decoding sequences."""
    draft_tokens: FloatArray
    """Number of drafted tokens that are verified, or 0 without speculation."""
    prefill_steps: FloatArray
    """Number of steps that computed prompt tokens."""
    prefill_context_tokens: FloatArray
    """R: number of earlier tokens of the same prompt whose KV the chunks read again. For sums over
    many steps, R is a lower bound (`chunks.read_back`)."""
    prompts: FloatArray
    """Number of prompts whose last chunk is in these steps. The last chunk produces a token."""

    @property
    def tokens(self) -> FloatArray:
        """Number of tokens that the steps compute: prompt, decode and drafted tokens."""
        return self.prefill_tokens + self.decodes + self.draft_tokens

    @property
    def made(self) -> FloatArray:
        """Number of tokens for which the model's last layer (logits) is computed."""
        return self.decodes + self.draft_tokens + self.prompts


def step(
    *,
    prefill_tokens: float = 0.0,
    prefill_attention: float = 0.0,
    context_tokens: float = 0.0,
    decodes: float = 0.0,
    draft_tokens: float = 0.0,
    prefill_context_tokens: float = 0.0,
    prompts: float = 0.0,
) -> StepLoad:
    """The load of a single step."""
    return StepLoad(
        steps=np.ones(1),
        prefill_tokens=np.array([prefill_tokens], dtype=np.float64),
        prefill_attention=np.array([prefill_attention], dtype=np.float64),
        context_tokens=np.array([context_tokens], dtype=np.float64),
        decodes=np.array([decodes], dtype=np.float64),
        draft_tokens=np.array([draft_tokens], dtype=np.float64),
        prefill_steps=np.array([1.0 if prefill_tokens else 0.0]),
        prefill_context_tokens=np.array([prefill_context_tokens], dtype=np.float64),
        prompts=np.array([prompts], dtype=np.float64),
    )


def summed(
    steps: FloatArray,
    prefill_tokens: FloatArray,
    prefill_attention: FloatArray,
    context_tokens: FloatArray,
    decodes: FloatArray,
    draft_tokens: FloatArray | None = None,
    prefill_context_tokens: FloatArray | None = None,
) -> StepLoad:
    """Return the load of each time range, from the increases of an engine's totals. Unknown numbers
    of drafted or context tokens count as 0.

    Args:
        steps: (n,) number of steps, or NaN if unknown. All arrays have this shape.
    """
    nothing = np.zeros(steps.shape)
    drafts = nothing if draft_tokens is None else np.nan_to_num(draft_tokens)
    context = nothing if prefill_context_tokens is None else np.nan_to_num(prefill_context_tokens)
    return StepLoad(
        steps=steps,
        prefill_tokens=prefill_tokens,
        prefill_attention=prefill_attention,
        context_tokens=context_tokens,
        decodes=decodes,
        draft_tokens=drafts,
        prefill_steps=np.minimum(steps, np.ceil(prefill_tokens / PROMPT_CHUNK_TOKENS)),
        prefill_context_tokens=context,
        prompts=nothing,
    )
