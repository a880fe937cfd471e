"""Bytes and FLOPs of single requests: what one asks of a GPU, whoever it shares steps with.

Pure. The weights are read once a step for all who are in it: a request's share of them is
told where it is known how many there were.
"""

from dataclasses import dataclass

import numpy as np

from roofline.load import FloatArray, Load
from roofline.shape import ModelShape
from roofline.work import work_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWork:
    """(n,) each: of one GPU, as a mean over the engine's. NaN where it cannot be told."""

    flops: FloatArray
    kv_read_bytes: FloatArray
    kv_write_bytes: FloatArray
    weight_bytes: FloatArray
    """Its share of the weights read in the steps of its decode."""


def work_of_requests(
    shape: ModelShape,
    prompt_tokens: FloatArray,
    cached_tokens: FloatArray,
    output_tokens: FloatArray,
    batch: FloatArray | None = None,
) -> RequestWork:
    """What requests ask for, computed once: evictions and speculation are left out.

    Args:
        shape: of the model.
        prompt_tokens: (n,) of each request; NaN where unknown, here and below.
        cached_tokens: (n,) of those, what a cache had.
        output_tokens: (n,) made, the first by the prompt's last step.
        batch: (n,) sequences in a step, on average, while it decoded; None where unknown.
    """
    computed = prompt_tokens - cached_tokens
    decodes = np.maximum(output_tokens - 1, 0.0)
    nothing = np.zeros(prompt_tokens.shape)
    load = Load(
        steps=decodes,
        prefill_tokens=computed,
        prefill_attention=computed * (cached_tokens + computed / 2),
        context_tokens=decodes * (prompt_tokens + (decodes - 1) / 2),
        decodes=decodes,
        draft_tokens=nothing,
        prefill_steps=nothing,
        prefill_context_tokens=cached_tokens,
        prompts=np.minimum(output_tokens, 1.0),
    )
    asked = work_of(shape, load)
    weights = np.full(prompt_tokens.shape, np.nan)
    if batch is not None:
        crowd = np.maximum(batch, 1.0)
        together = Load(
            steps=decodes,
            prefill_tokens=nothing,
            prefill_attention=nothing,
            context_tokens=nothing,
            decodes=decodes * crowd,
            draft_tokens=nothing,
            prefill_steps=nothing,
            prefill_context_tokens=nothing,
            prompts=nothing,
        )
        shared = work_of(shape, together)
        weights = (shared.weight_bytes + shared.table_bytes) / crowd
    return RequestWork(
        flops=asked.flops,
        kv_read_bytes=asked.kv_read_bytes,
        kv_write_bytes=asked.kv_write_bytes,
        weight_bytes=weights,
    )
