"""Find the bytes per weight and per cached element, and the number formats of matrix products.
Pure.

The bytes of a weight include its part of the scales and zero points. For example, a 4-bit weight in
groups of 128 has 0.52 bytes.
"""

from typing import Final, NamedTuple

from roofline.config import Config
from roofline.errors import UnknownShapeError
from roofline.shape import Latent, Precision


class _Quantised(NamedTuple):
    """The format of a quantised weight.

    `math` is the number format of matrix products. It is None if weights are first converted to the
    model's dtype."""

    bytes: float
    math: str | None = None
    experts_only: bool = False


_PLAIN: Final = {
    "bfloat16": (2.0, "bf16"),
    "float16": (2.0, "fp16"),
    "half": (2.0, "fp16"),
    "float32": (4.0, "fp32"),
    "float": (4.0, "fp32"),
}

_MX_SCALE = 1 / 32
_NV_SCALE = 1 / 16
_FIXED: Final = {
    **dict.fromkeys(
        ("fp8", "fbgemm_fp8", "ptpc_fp8", "modelopt", "fp8_per_tensor", "fp8_per_block"),
        _Quantised(1.0, "fp8"),
    ),
    **dict.fromkeys(("mxfp8", "modelopt_mxfp8"), _Quantised(1 + _MX_SCALE, "fp8")),
    **dict.fromkeys(("modelopt_fp4", "petit_nvfp4", "nvfp4"), _Quantised(0.5 + _NV_SCALE, "fp4")),
    **dict.fromkeys(
        ("mxfp4", "gpt_oss_mxfp4"), _Quantised(0.5 + _MX_SCALE, None, experts_only=True)
    ),
    "experts_int8": _Quantised(1.0, None, experts_only=True),
}

_PACKED: Final = frozenset(
    {"awq", "awq_marlin", "gptq", "gptq_marlin", "auto_awq", "auto_gptq", "auto-round", "inc",
     "moe_wna16"}
)  # fmt: skip
"""Quantisation methods that divide weights into groups. Each group has a scale of 16 bits, and a
zero point with as many bits as a weight."""

_CACHE: Final = {
    "bfloat16": 2.0,
    "float16": 2.0,
    "half": 2.0,
    "float32": 4.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_inc": 1.0,
    "fp8_per_token_head": 1.0,
    "int8_per_token_head": 1.0,
    "int4_per_token_head": 0.5,
    "nvfp4": 0.5 + _NV_SCALE,
}
_FP8_LATENT_BYTES = 656
"""Bytes per token and layer of `fp8_ds_mla`: 512 elements of 1 byte, 4 scales of 4 bytes, and 64
elements of 2 bytes."""


def precision_of(config: Config, latent: Latent | None) -> Precision:
    """The bytes per element of weights and cache, and the number formats.

    Raises:
        UnknownShapeError: a dtype or method is unknown.
    """
    dtype = config.text("dtype", "torch_dtype").removeprefix("torch.")
    if dtype not in _PLAIN:
        raise UnknownShapeError("dtype", f"{dtype!r}; known: {', '.join(_PLAIN)}")
    plain_bytes, plain_math = _PLAIN[dtype]
    quantised = _quantisation(config)
    linear = _Quantised(plain_bytes) if quantised is None or quantised.experts_only else quantised
    return Precision(
        plain_bytes=plain_bytes,
        linear_bytes=linear.bytes,
        expert_bytes=plain_bytes if quantised is None else quantised.bytes,
        kv_bytes=_cached_bytes(config, plain_bytes, latent),
        plain_math=plain_math,
        linear_math=linear.math or plain_math,
    )


def _quantisation(config: Config) -> _Quantised | None:
    details = config.nested("quantization_config")
    method = config.text("quantization") or details.text("quant_method")
    if not method:
        return None
    if method in _FIXED:
        return _FIXED[method]
    if method in _PACKED:
        bits = details.whole_or_none("bits", "w_bit") or 4
        return _Quantised(_packed_bytes(bits, details.get("group_size", "q_group_size")))
    if method == "bitsandbytes":
        # One 4-byte scale per 64 weights, unless the scales are quantised too.
        return _Quantised(1.0 if details.flag("load_in_8bit", False) else 0.5 + 4 / 64)
    if method == "compressed-tensors":
        return _compressed(details)
    known = sorted({*_FIXED, *_PACKED, "bitsandbytes", "compressed-tensors"})
    raise UnknownShapeError("quantization", f"{method!r}; known: {', '.join(known)}")


def _packed_bytes(bits: int, group: object) -> float:
    size = group if isinstance(group, int) and group > 0 else None
    scales = (2 + bits / 8) / size if size else 0.0
    return bits / 8 + scales


def _compressed(details: Config) -> _Quantised:
    """The format that a compressed-tensors `QuantizationScheme` describes."""
    for group in details.nested("config_groups").parts():
        weights = group.nested("weights")
        bits = weights.whole_or_none("num_bits")
        if bits is None:
            continue
        computed = group.nested("input_activations").whole_or_none("num_bits") is not None
        if weights.text("type") == "float":
            math = {8: "fp8", 4: "fp4"}.get(bits) if computed else None
            return _Quantised(bits / 8 + (_NV_SCALE if bits == 4 else 0.0), math)
        if bits == 8 and computed:
            return _Quantised(1.0, "int8")
        return _Quantised(_packed_bytes(bits, weights.get("group_size")))
    raise UnknownShapeError(
        "quantization_config.config_groups",
        "has no weights.num_bits, which compressed-tensors requires",
    )


def _cached_bytes(config: Config, plain_bytes: float, latent: Latent | None) -> float:
    dtype = config.text("cache_dtype") or "auto"
    if dtype == "auto":
        details = config.nested("quantization_config")
        scheme = details.nested("kv_cache_scheme").whole_or_none("num_bits")
        algorithm = details.text("kv_cache_quant_algo").lower()
        return 1.0 if scheme == 8 or algorithm == "fp8" else plain_bytes
    if dtype == "fp8_ds_mla" and latent is not None:
        return _FP8_LATENT_BYTES / latent.cached_dim
    if dtype not in _CACHE:
        known = ", ".join(("auto", *_CACHE, "fp8_ds_mla"))
        raise UnknownShapeError("cache_dtype", f"{dtype!r}; known: {known}")
    return _CACHE[dtype]
