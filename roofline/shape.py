"""The shape of a model as an engine runs it: what its bytes and FLOPs follow from.

Pure. Sizes are in elements and counts, widths of the whole model; what a GPU holds of them
follows from `Parallel`. Biases and norms are left out: under 0.2 % of the parameters.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention: a token's keys and values are kept as one short vector.

    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.
    """

    kv_rank: int
    query_rank: int | None
    """None where queries are not compressed."""
    nope_dim: int
    rope_dim: int
    value_dim: int

    @property
    def key_dim(self) -> int:
        """Of a head, once expanded."""
        return self.nope_dim + self.rope_dim

    @property
    def cached_dim(self) -> int:
        """Elements of a token in a layer's cache: 576 in DeepSeek-V3."""
        return self.kv_rank + self.rope_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The feed-forward layers that are mixtures of experts."""

    layers: int
    count: int
    """Routed experts of a layer."""
    per_token: int
    """Of those, how many each token goes through."""
    intermediate: int
    shared_intermediate: int = 0
    """Width of all that every token goes through besides; 0: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes of an element, and the arithmetic that the matrices are multiplied in."""

    plain_bytes: float
    """Of activations, and of weights that are not quantised: tables, routers."""
    linear_bytes: float
    """Of a weight of attention and feed-forward layers, its share of scales included."""
    expert_bytes: float
    kv_bytes: float
    plain_math: str
    """A key of `Device.flops_per_s`, such as bf16."""
    linear_math: str
    """Where it differs, and the device has it: fp8, int8 or fp4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Over how many GPUs an engine, and the experts of all engines, are spread."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    """Engines that share out the experts of every layer among them."""
    context: int = 1
    """Decode context parallelism: GPUs of `tensor` that share out a sequence's cache."""

    @property
    def gpus(self) -> int:
        """Of one engine."""
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder of tokens, as one engine runs it."""

    architecture: str | None = None
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    """Of the feed-forward layers that are no mixture."""
    gated: bool = True
    """Three matrices a feed-forward layer (SwiGLU), not two."""
    tied: bool = False
    """The table of embeddings is the last layer's matrix, too."""
    positions: int = 0
    """Learnt positions; 0 where they are worked out."""
    window: int | None = None
    """Tokens that a sliding layer looks back on."""
    window_layers: int = 0
    latent: Latent | None = None
    experts: Experts | None = None
    precision: Precision
    parallel: Parallel = Parallel()

    @property
    def full_layers(self) -> int:
        """Layers that look back on all of the context."""
        return self.layers - self.window_layers

    @property
    def dense_layers(self) -> int:
        """Layers whose feed-forward part is no mixture."""
        return self.layers - (self.experts.layers if self.experts else 0)

    @property
    def kv_elements(self) -> int:
        """Of one token in one layer's cache, over all GPUs, each kept once."""
        return self.latent.cached_dim if self.latent else 2 * self.kv_heads * self.head_dim

    @property
    def kv_token_bytes(self) -> float:
        """KV cache of one token in all layers, each kept once: 128 KiB for Llama-3-8B."""
        return self.layers * self.kv_elements * self.precision.kv_bytes
