"""Compute the number of weights on one GPU. Pure.

Only matrices are counted: norms and biases are under 0.2 % of the weights.
"""

from typing import NamedTuple

from roofline.shape import Latent, ModelShape


class WeightElements(NamedTuple):
    """Number of elements of each part of a model that a step reads, without embedding tables."""

    head: float
    """The matrix of the model's last layer. If it is tied to the embedding table, both use the same
    memory."""
    attention: float
    dense: float
    """Feed-forward layers without experts."""
    shared: float
    """Experts that every token uses."""
    router: float
    expert: float
    """One routed expert per layer, summed over all layers with experts."""


def gpu_weights(shape: ModelShape) -> WeightElements:
    """Return the numbers of weights that one GPU reads, as a mean over the engine's GPUs.

    Heads, widths and vocabulary are divided over tensor-parallel ranks. Every rank has a copy of
    the projections of latent attention. Experts are divided over the ranks of all engines that
    share them.
    """
    hidden, experts, tensor = shape.hidden, shape.experts, shape.parallel.tensor
    matrices = 3 if shape.gated else 2
    dense = matrices * hidden * shape.intermediate * shape.dense_layers / tensor
    shared = router = expert = 0.0
    if experts is not None:
        shared = 3 * hidden * experts.shared_intermediate * experts.layers / tensor
        router = float(hidden * experts.count * experts.layers)
        expert = 3 * hidden * experts.intermediate * experts.layers / tensor
    attention = shape.layers * (
        _latent_attention(shape, shape.latent) if shape.latent else _attention(shape)
    )
    head = shape.vocabulary * hidden / tensor
    parts = (head, attention, dense, shared, router, expert)
    return WeightElements(*(part / shape.parallel.pipeline for part in parts))


def kv_heads_of_a_gpu(shape: ModelShape) -> float:
    """The number of KV heads on one GPU. If there are fewer heads than ranks, several ranks store
    the same head."""
    return max(1.0, shape.kv_heads / shape.parallel.tensor)


def _attention(shape: ModelShape) -> float:
    """Return the number of weights of queries, keys, values and output in one attention layer."""
    heads = shape.heads / shape.parallel.tensor
    return shape.hidden * shape.head_dim * (2 * heads + 2 * kv_heads_of_a_gpu(shape))


def _latent_attention(shape: ModelShape, latent: Latent) -> float:
    """The number of weights of one layer with latent attention."""
    heads, hidden = shape.heads / shape.parallel.tensor, shape.hidden
    if latent.query_rank is None:
        queries = hidden * heads * latent.key_dim
    else:
        queries = latent.query_rank * (hidden + heads * latent.key_dim)
    expanded = latent.kv_rank * heads * (latent.nope_dim + latent.value_dim)
    return queries + hidden * latent.cached_dim + expanded + heads * latent.value_dim * hidden
