"""How many weights a model has, and how many of them one GPU holds.

Pure. Matrices alone: norms and biases are under 0.2 % of any model served today.
"""

from typing import NamedTuple

from roofline.shape import Latent, ModelShape


class Weights(NamedTuple):
    """Elements by what reads them."""

    table: float
    """Embeddings of tokens and learnt positions: a step gathers a row a token."""
    head: float
    """The last layer's matrix; the same memory as the table where they are tied."""
    attention: float
    dense: float
    """Feed-forward layers that are no mixture."""
    shared: float
    """Experts that every token goes through."""
    router: float
    expert: float
    """One routed expert, in each of the layers that have them."""


def parameters(shape: ModelShape) -> float:
    """All of the model's, without norms and biases."""
    return _counted(shape, shape.experts.count if shape.experts else 0)


def active_parameters(shape: ModelShape) -> float:
    """Those that one token goes through, tables included, as models are named: "A3B"."""
    return _counted(shape, shape.experts.per_token if shape.experts else 0)


def model_weights(shape: ModelShape) -> Weights:
    """Of the whole model, each once."""
    return _weights(shape, 1, 1)


def gpu_weights(shape: ModelShape) -> Weights:
    """What one GPU of the engine has to read, as a mean over its GPUs.

    Heads, widths and vocabulary are divided over the ranks of tensor parallelism; key and
    value heads fewer than ranks, and the latent projections, are kept on each. Experts are
    divided over the ranks of all engines that share them.
    """
    return _weights(shape, shape.parallel.tensor, shape.parallel.pipeline)


def kv_heads_of_a_gpu(shape: ModelShape) -> float:
    """At least one: where there are more ranks than heads, several hold the same."""
    return max(1.0, shape.kv_heads / shape.parallel.tensor)


def _counted(shape: ModelShape, experts: int) -> float:
    whole = model_weights(shape)
    head = 0.0 if shape.tied else whole.head
    besides = whole.attention + whole.dense + whole.shared + whole.router
    return whole.table + head + besides + whole.expert * experts


def _weights(shape: ModelShape, tensor: int, pipeline: int) -> Weights:
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
    return Weights(
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
    """Queries, keys, values, output, of one layer."""
    heads = shape.heads / tensor
    kv_heads = max(1.0, shape.kv_heads / tensor)
    return shape.hidden * shape.head_dim * (2 * heads + 2 * kv_heads)


def _latent_attention(shape: ModelShape, latent: Latent, tensor: int) -> float:
    """Both halves of the compressed queries, keys and values, and the output, of one layer."""
    heads, hidden = shape.heads / tensor, shape.hidden
    if latent.query_rank is None:
        queries = hidden * heads * latent.key_dim
    else:
        queries = latent.query_rank * (hidden + heads * latent.key_dim)
    expanded = latent.kv_rank * heads * (latent.nope_dim + latent.value_dim)
    return queries + hidden * latent.cached_dim + expanded + heads * latent.value_dim * hidden
