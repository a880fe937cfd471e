"""The number of weights of a model, in total and on one GPU. Pure.

Only matrices are counted: norms and biases are under 0.2 % of the weights.
"""

from typing import NamedTuple

from roofline.shape import Latent, ModelShape


class WeightElements(NamedTuple):
    """Number of elements of each part of a model."""

    table: float
    """Embedding tables of tokens and of learnt positions. A step reads one row per token."""
    head: float
    """The last layer's matrix. If it is tied to the embedding table, both are the same memory."""
    attention: float
    dense: float
    """Feed-forward layers without experts."""
    shared: float
    """Experts that every token uses."""
    router: float
    expert: float
    """One routed expert per layer, summed over all layers with experts."""


def parameters(shape: ModelShape) -> float:
    """The number of all parameters, without norms and biases."""
    return _weights_with_experts(shape, shape.experts.count if shape.experts else 0)


def active_parameters(shape: ModelShape) -> float:
    """The number of parameters that one token uses, with the embedding tables: 3B for a model named
    "A3B"."""
    return _weights_with_experts(shape, shape.experts.per_token if shape.experts else 0)


def model_weights(shape: ModelShape) -> WeightElements:
    """The weights of the whole model, without copies on several GPUs."""
    return _weights(shape, 1, 1)


def gpu_weights(shape: ModelShape) -> WeightElements:
    """The weights that one GPU reads, as a mean over the engine's GPUs.

    Heads, widths and vocabulary are divided over tensor-parallel ranks. Every rank has a copy of
    the projections of latent attention. Experts are divided over the ranks of all engines that
    share them.
    """
    return _weights(shape, shape.parallel.tensor, shape.parallel.pipeline)


def kv_heads_of_a_gpu(shape: ModelShape) -> float:
    """KV heads on one GPU. If there are fewer heads than ranks, several ranks store the same
    head."""
    return max(1.0, shape.kv_heads / shape.parallel.tensor)


def _weights_with_experts(shape: ModelShape, experts: int) -> float:
    whole = model_weights(shape)
    head = 0.0 if shape.tied else whole.head
    besides = whole.attention + whole.dense + whole.shared + whole.router
    return whole.table + head + besides + whole.expert * experts


def _weights(shape: ModelShape, tensor: int, pipeline: int) -> WeightElements:
    hidden, experts = shape.hidden, shape.experts
    matrices = 3 if shape.gated else 2
    table = (shape.vocabulary + shape.positions) * hidden / tensor
    dense = matrices * hidden * shape.intermediate * shape.dense_layers / tensor
    shared = router = expert = 0.0
    if experts is not None:
        shared = 3 * hidden * experts.shared_intermediate * experts.layers / tensor
        router = float(hidden * experts.count * experts.layers)
        expert = 3 * hidden * experts.intermediate * experts.layers / tensor
    attention = shape.layers * (
        _latent_attention(shape, shape.latent, tensor)
        if shape.latent
        else _attention(shape, tensor)
    )
    return WeightElements(
        *(
            part / pipeline
            for part in (
                table,
                shape.vocabulary * hidden / tensor,
                attention,
                dense,
                shared,
                router,
                expert,
            )
        )
    )


def _attention(shape: ModelShape, tensor: int) -> float:
    """Weights of one attention layer: queries, keys, values and output."""
    heads = shape.heads / tensor
    kv_heads = max(1.0, shape.kv_heads / tensor)
    return shape.hidden * shape.head_dim * (2 * heads + 2 * kv_heads)


def _latent_attention(shape: ModelShape, latent: Latent, tensor: int) -> float:
    """Weights of one layer with latent attention: the matrices that compress and expand queries,
    keys and values, and the output matrix."""
    heads, hidden = shape.heads / tensor, shape.hidden
    if latent.query_rank is None:
        queries = hidden * heads * latent.key_dim
    else:
        queries = latent.query_rank * (hidden + heads * latent.key_dim)
    expanded = latent.kv_rank * heads * (latent.nope_dim + latent.value_dim)
    return queries + hidden * latent.cached_dim + expanded + heads * latent.value_dim * hidden
