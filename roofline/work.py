"""Compute the bytes that engine steps move, and the FLOPs that they compute. Pure.

    bytes = steps · active weights + tokens · a row of embeddings + (C + R) · KV of a token (read)
            + (P + N) · KV of a token (written)
    FLOPs = 2 · weights that a token uses · tokens + 4 · heads · head size · (Q + C)

All values are means over the engine's GPUs. `load.StepLoad` defines P, Q, C, N and R. README.md
explains the terms, and lists assumptions and limits.

Source: "LLM Inference Performance Engineering" (Databricks, 2023) for bandwidth utilisation; Pope
et al., "Efficiently Scaling Transformer Inference", arXiv 2211.05102.
"""

from dataclasses import dataclass

import numpy as np

from roofline.load import FloatArray, StepLoad
from roofline.shape import Experts, Latent, ModelShape
from roofline.weights import WeightElements, gpu_weights, kv_heads_of_a_gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWork:
    """The bytes and FLOPs on one GPU, for each row of a `StepLoad`: (n,).

    Unknown values are NaN."""

    weight_bytes: FloatArray
    """Bytes of the weights that steps read, without the embedding tables."""
    table_bytes: FloatArray
    """Bytes of one row per token and embedding table."""
    kv_read_bytes: FloatArray
    kv_write_bytes: FloatArray
    activation_bytes: FloatArray
    """Bytes of activations between layers, if all are written to memory and read again. Fused
    kernels avoid some of these transfers."""
    linear_flops: FloatArray
    """FLOPs in the number format of quantised weights."""
    plain_flops: FloatArray
    """FLOPs of attention and of the model's last layer, in the number format of activations."""

    @property
    def bytes(self) -> FloatArray:
        """Bytes of active weights and KV cache, from which MBU is computed. Fused kernels cannot
        avoid these transfers."""
        return self.weight_bytes + self.table_bytes + self.kv_read_bytes + self.kv_write_bytes

    @property
    def traffic_bytes(self) -> FloatArray:
        """All bytes that are moved if no activation stays in the GPU's caches."""
        return self.bytes + self.activation_bytes

    @property
    def flops(self) -> FloatArray:
        """FLOPs in all number formats."""
        return self.linear_flops + self.plain_flops


def work_of(shape: ModelShape, load: StepLoad) -> GpuWork:
    """Return the work on one GPU for each row of `load`, as means over the engine's GPUs."""
    weights, precision = gpu_weights(shape), shape.precision
    kept = _expert_elements(shape, weights, load)
    read_elements = weights.attention + weights.dense + weights.shared
    weight_bytes = load.steps * (
        read_elements * precision.linear_bytes
        + (weights.router + weights.head) * precision.plain_bytes
    )
    looked_at = _read_back(shape, load)
    token_bytes = _kv_elements_of_a_gpu(shape) * precision.kv_bytes / shape.parallel.pipeline
    through = read_elements + weights.router + _expert_elements_of_a_token(shape, weights)
    return GpuWork(
        weight_bytes=weight_bytes + kept * precision.expert_bytes,
        table_bytes=load.tokens * (_row_elements_of_a_gpu(shape) * precision.plain_bytes),
        kv_read_bytes=looked_at * token_bytes,
        kv_write_bytes=load.tokens * shape.layers * token_bytes,
        activation_bytes=_activations(shape, load) * precision.plain_bytes,
        linear_flops=2 * through * load.tokens,
        plain_flops=2 * weights.head * load.made + _attention_flops(shape, load),
    )


def _read_back(shape: ModelShape, load: StepLoad) -> FloatArray:
    """The number of cached tokens whose KV the steps read, summed over layers. A layer with a
    sliding window reads at most the tokens of its window."""
    context = load.context_tokens
    tokens = shape.full_layers * (context + load.prefill_context_tokens)
    if shape.window is not None:
        prompts = np.minimum(load.prefill_context_tokens, load.prefill_tokens * shape.window)
        slid = np.minimum(context, load.decodes * shape.window) + prompts
        tokens = tokens + shape.window_layers * slid
    return tokens


def _row_elements_of_a_gpu(shape: ModelShape) -> float:
    """Return the elements per GPU of one row of each embedding table (tokens and positions). Only
    one rank stores each row."""
    tables = 2 if shape.positions else 1
    return tables * shape.hidden / shape.parallel.tensor / shape.parallel.pipeline


def _kv_elements_of_a_gpu(shape: ModelShape) -> float:
    """The number of cached elements per GPU, token and layer. With latent attention, every rank
    stores the whole vector."""
    context = shape.parallel.context
    if shape.latent:
        return shape.latent.cached_dim / context
    return 2 * kv_heads_of_a_gpu(shape) * shape.head_dim / context


def _expert_elements(shape: ModelShape, weights: WeightElements, load: StepLoad) -> FloatArray:
    """The number of weights of experts that a GPU reads in the steps.

    If each of T tokens uses k of E experts at random, the expected number of used experts is E·(1 −
    (1 − k/E)^T). Engines that share the experts are assumed to compute the same number of tokens.
    """
    experts = shape.experts
    if experts is None:
        return np.zeros(load.steps.shape)
    data = shape.parallel.data
    with np.errstate(divide="ignore", invalid="ignore"):
        decoding = np.where(load.steps > 0, (load.decodes + load.draft_tokens) / load.steps, 0.0)
        prompt = np.where(load.prefill_steps > 0, load.prefill_tokens / load.prefill_steps, 0.0)
    touched = load.prefill_steps * _experts_used(experts, data * (decoding + prompt))
    touched += (load.steps - load.prefill_steps) * _experts_used(experts, data * decoding)
    return touched * weights.expert / data


def _experts_used(experts: Experts, tokens: FloatArray) -> FloatArray:
    untouched = np.power(1 - experts.per_token / experts.count, tokens)
    return experts.count * (1 - untouched)


def _expert_elements_of_a_token(shape: ModelShape, weights: WeightElements) -> float:
    """The number of weights of experts that one token uses on a GPU.

    A GPU has 1/data of the experts, but receives the tokens of all `data` engines."""
    return weights.expert * shape.experts.per_token if shape.experts else 0.0


def _attention_flops(shape: ModelShape, load: StepLoad) -> FloatArray:
    heads = shape.heads / shape.parallel.tensor / shape.parallel.pipeline
    with np.errstate(divide="ignore", invalid="ignore"):
        drafted = np.where(load.decodes > 0, 1 + load.draft_tokens / load.decodes, 1.0)
    decoding = load.context_tokens * drafted
    prompts = load.prefill_attention
    if shape.latent:
        latent = shape.latent
        of_prompts = 2 * (latent.key_dim + latent.value_dim)
        # Decodes do not expand the latent vector, so each head reads the whole vector.
        of_decodes = 2 * (latent.cached_dim + latent.kv_rank)
    else:
        of_prompts = of_decodes = 4 * shape.head_dim
    flops = shape.full_layers * heads * (of_prompts * prompts + of_decodes * decoding)
    if shape.window is not None:
        prompts = np.minimum(prompts, load.prefill_tokens * shape.window)
        decoding = np.minimum(decoding, load.decodes * drafted * shape.window)
        flops = flops + shape.window_layers * heads * (of_prompts * prompts + of_decodes * decoding)
    return flops


def _activations(shape: ModelShape, load: StepLoad) -> FloatArray:
    """The number of elements of activations that operators read and write.

    Each operator reads its inputs and writes its outputs once."""
    ranks = shape.parallel.tensor
    layer = 8.0 * shape.hidden  # two norms, which each read and write the residual
    layer += (
        _of_latent_attention(shape, shape.latent)
        if shape.latent
        else 2 * shape.hidden
        + 4 * shape.head_dim * (shape.heads / ranks + kv_heads_of_a_gpu(shape))
    )
    elements = shape.layers * layer
    inner = 6 if shape.gated else 4
    elements += shape.dense_layers * (2 * shape.hidden + inner * shape.intermediate / ranks)
    if shape.experts is not None:
        experts = shape.experts
        routed = experts.per_token * (2 * shape.hidden + 6 * experts.intermediate / ranks)
        shared = 2 * shape.hidden + 6 * experts.shared_intermediate / ranks
        elements += experts.layers * (routed + (shared if experts.shared_intermediate else 0.0))
    made = shape.hidden + shape.vocabulary / ranks
    return (load.tokens * elements + load.made * made) / shape.parallel.pipeline


def _of_latent_attention(shape: ModelShape, latent: Latent) -> float:
    heads = shape.heads / shape.parallel.tensor
    expanded = latent.key_dim + latent.nope_dim + 2 * latent.value_dim
    compressed = (latent.query_rank or 0) + latent.cached_dim
    return 2 * shape.hidden + 2 * compressed + 2 * heads * expanded
