"""Compute the bytes and FLOPs of single requests.

Pure. All requests in a step share one read of the weights. A request's share of this read can be
computed only if the batch size is known.
"""

from dataclasses import dataclass

import numpy as np

from roofline.load import FloatArray, Load
from roofline.shape import ModelShape
from roofline.work import work_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWork:
    """Bytes and FLOPs of each request on one GPU, as a mean over the engine's GPUs. Arrays are
    (n,), with NaN if unknown."""

    flops: FloatArray
    kv_read_bytes: FloatArray
    kv_write_bytes: FloatArray
    weight_bytes: FloatArray
    """The request's share of the weights read in its decode steps."""


def work_of_requests(
    shape: ModelShape,
    prompt_tokens: FloatArray,
    cached_tokens: FloatArray,
    output_tokens: FloatArray,
    batch: FloatArray | None = None,
) -> RequestWork:
    """Return the work of requests.

    Evictions and speculation are ignored: each token is computed once.

    Args:
        shape: the model's shape.
        prompt_tokens: (n,) prompt tokens. NaN means unknown, here and in the other arrays.
        cached_tokens: (n,) prompt tokens found in the cache.
        output_tokens: (n,) tokens produced. The prompt's last step produces the first token.
        batch: (n,) mean number of sequences per step during each request's decode; None if unknown.
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
