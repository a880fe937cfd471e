"""A model's shape as an engine runs it; its bytes and FLOPs follow from it.

Pure. Sizes are elements and counts, for the whole model; `Parallel` gives each GPU's part. Biases
and norms are ignored: under 0.2 % of the parameters.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention: keys and values of a token are cached as one short vector.

    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.
    """

    kv_rank: int
    query_rank: int | None
    """None if queries are not compressed."""
    nope_dim: int
    rope_dim: int
    value_dim: int

    @property
    def key_dim(self) -> int:
        """Key size of one head after expansion."""
        return self.nope_dim + self.rope_dim

    @property
    def cached_dim(self) -> int:
        """Cached elements per token and layer: 576 in DeepSeek-V3."""
        return self.kv_rank + self.rope_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The feed-forward layers that are mixtures of experts."""

    layers: int
    count: int
    """Routed experts per layer."""
    per_token: int
    """Routed experts that each token uses."""
    intermediate: int
    shared_intermediate: int = 0
    """Total width of the experts that every token uses; 0 without shared experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes per element, and the arithmetic of matrix products."""

    plain_bytes: float
    """Of activations, and of weights that are not quantised: embedding tables, routers."""
    linear_bytes: float
    """Of a weight of attention and feed-forward layers, including its share of the scales."""
    expert_bytes: float
    kv_bytes: float
    plain_math: str
    """A key of `Device.flops_per_s`, such as bf16."""
    linear_math: str
    """If it differs and the device supports it: fp8, int8 or fp4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """The number of GPUs that share an engine, and that share the experts of all engines."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    """Engines that share the experts of each layer."""
    context: int = 1
    """Decode context parallelism: GPUs of `tensor` that share a sequence's cache."""

    @property
    def gpus(self) -> int:
        """GPUs of one engine."""
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A token decoder as one engine runs it."""

    architecture: str | None = None
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    """Of feed-forward layers that are not mixtures."""
    gated: bool = True
    """Three matrices per feed-forward layer (SwiGLU) instead of two."""
    tied: bool = False
    """The embedding table is also the last layer's matrix."""
    positions: int = 0
    """Learnt positions; 0 if positions are computed."""
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
        """Layers whose feed-forward part is not a mixture."""
        return self.layers - (self.experts.layers if self.experts else 0)

    @property
    def kv_elements(self) -> int:
        """Cached elements per token and layer over all GPUs, without copies."""
        return self.latent.cached_dim if self.latent else 2 * self.kv_heads * self.head_dim

    @property
    def kv_token_bytes(self) -> float:
        """KV cache of one token in all layers, without copies: 128 KiB for Llama-3-8B."""
        return self.layers * self.kv_elements * self.precision.kv_bytes
