"""The shape of an engine's model. Pure.

Sizes are numbers of elements of the whole model. `Parallel` determines the share of each GPU.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention, which caches a token's keys and values as a single short vector.

    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.
    """

    kv_rank: int
    query_rank: int | None
    """Rank of the compressed queries, or None if queries are not compressed."""
    nope_dim: int
    rope_dim: int
    value_dim: int

    @property
    def key_dim(self) -> int:
        """Number of elements of one head's key, expanded from the cached vector."""
        return self.nope_dim + self.rope_dim

    @property
    def cached_dim(self) -> int:
        """Cached elements per token and layer, such as 576 in DeepSeek-V3."""
        return self.kv_rank + self.rope_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The feed-forward layers that are mixtures of experts."""

    layers: int
    count: int
    """Routed experts per layer."""
    per_token: int
    """Number of routed experts that each token uses."""
    intermediate: int
    shared_intermediate: int = 0
    """Total width of the shared experts, which every token uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The bytes per element, and the number formats of matrix products."""

    plain_bytes: float
    """Bytes of an activation, or of an unquantised weight (embedding tables, routers)."""
    linear_bytes: float
    """Bytes of a weight in attention and feed-forward layers, including its part of the scales."""
    expert_bytes: float
    kv_bytes: float
    plain_math: str
    """Number format of matrix products with unquantised weights: a key of `Device.flops_per_s`."""
    linear_math: str
    """Number format of matrix products in attention and feed-forward layers: fp8, int8, fp4, or the
    dtype. A device that does not support this format computes in `plain_math`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """The number of GPUs of one engine, and the number of engines that share experts."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    """Decode context parallelism: a sequence's KV cache is divided over this many of the `tensor`
    GPUs."""

    @property
    def gpus(self) -> int:
        """Number of GPUs of one engine."""
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The shape of one engine's model. Only decoder-only language models are supported."""

    architecture: str | None = None
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    """Width of feed-forward layers without experts."""
    gated: bool = True
    """True if a feed-forward layer has three matrices (SwiGLU), False if it has two."""
    tied: bool = False
    """Whether the embedding table is also the last layer's matrix."""
    positions: int = 0
    """Number of learnt positions, or 0 if positions are computed."""
    window: int | None = None
    """Tokens that a sliding-window layer attends to."""
    window_layers: int = 0
    latent: Latent | None = None
    experts: Experts | None = None
    precision: Precision
    parallel: Parallel = Parallel()

    @property
    def full_layers(self) -> int:
        """Layers that attend to the whole context."""
        return self.layers - self.window_layers

    @property
    def dense_layers(self) -> int:
        """Layers without experts."""
        return self.layers - (self.experts.layers if self.experts else 0)

    @property
    def kv_elements(self) -> int:
        """Cached elements per token and layer, without copies on several GPUs."""
        return self.latent.cached_dim if self.latent else 2 * self.kv_heads * self.head_dim

    @property
    def kv_token_bytes(self) -> float:
        """KV-cache bytes of one token in all layers, without copies on several GPUs. Llama-3-8B has
        128 KiB."""
        return self.layers * self.kv_elements * self.precision.kv_bytes
