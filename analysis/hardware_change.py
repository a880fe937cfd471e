"""Extrapolate an engine to another GPU, or to other weights, with the roofline model.

The coefficients of prefill tokens and attention are scaled with the peak FLOP/s. The coefficient of
context tokens is scaled with the peak bytes/s. A step's base time has two parts. The time to read
the weights at peak bandwidth is scaled, and the rest is overhead, which stays the same. A real GPU
does not reach its peak bandwidth, so the effect of faster memory or smaller weights is
underestimated.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from replay.edits import EditError, Edits
from replay.engine_config import EngineConfig
from roofline.errors import UnknownShapeError
from roofline.peaks import Device, device_named, known_devices
from roofline.shape import ModelShape, Precision
from roofline.shape_from_config import read_shape
from roofline.weights import WeightElements, gpu_weights
from telemetry.starts import EngineStart, read


class _Format(NamedTuple):
    weight_bytes: float
    math: str | None
    """Number format of the matrix products. None means the number format of the activations."""


QUANTISATIONS: Final[Mapping[str, _Format]] = {
    "fp8": _Format(1.0, "fp8"),
    "int8": _Format(1.0, "int8"),
    # A weight has 4 bits. Each group of 128 weights has a 16-bit scale and a 4-bit zero point.
    "int4": _Format(0.5 + 20 / 8 / 128, None),
}
GPU_MEMORY_UTILIZATION: Final = 0.92
"""Share of the GPU memory that vLLM uses. It is the default since vLLM 0.15 (0.9 in older
versions)."""


def on_hardware(
    config: EngineConfig, start: EngineStart, edits: Edits, peaks: Mapping[str, Any]
) -> EngineConfig:
    """The configuration of an engine on another device, or with quantised weights.

    Args:
        edits: only `device` and `quantization` are used.
        peaks: the user's peaks, which override the built-in table.

    Raises:
        EditError: the device, the format or the model's shape is unknown.
    """
    if not edits.hardware:
        return config
    try:
        shape = read_shape(start.shape or "{}")
    except UnknownShapeError as error:
        raise EditError(f"{start.replica}: the model's shape is unknown: {error}") from None
    before = device_named(start.device, peaks)
    if before is None:
        raise EditError(f"{start.replica}: the peaks of {start.device or 'its device'} are unknown")
    after = before if edits.device is None else device_named(edits.device, peaks)
    if after is None:
        raise EditError(
            f"device: {edits.device!r}; allowed: {', '.join(known_devices(peaks))}, and the"
            " devices in TAILSPAN_PEAKS"
        )
    changed = replace(shape, precision=_precision(shape.precision, edits.quantization))
    flops = _flops_per_s(before, shape) / _flops_per_s(after, changed)
    bandwidth = before.bytes_per_s / after.bytes_per_s
    read_s = min(config.step.base_s, _weight_bytes(shape) / before.bytes_per_s)
    step = replace(
        config.step,
        base_s=config.step.base_s - read_s + _weight_bytes(changed) / after.bytes_per_s,
        prefill_token_s=config.step.prefill_token_s * flops,
        prefill_pair_s=config.step.prefill_pair_s * flops,
        context_token_s=config.step.context_token_s * bandwidth,
    )
    blocks = config.num_gpu_blocks + _more_blocks(config, start, before, after, shape, changed)
    try:
        return replace(config, step=step, num_gpu_blocks=blocks)
    except ValueError as error:
        raise EditError(f"{after.name}: the model does not fit: {error}") from None


def assumption(edits: Edits) -> str | None:
    """Return what a prediction for other hardware assumes, or None if the edits change no
    hardware."""
    changed = [each for each in (edits.device, edits.quantization) if each is not None]
    if not changed:
        return None
    return (
        f"step times on {' with '.join(changed)} are extrapolated by the GPU's peaks, not measured"
        + ("; the quality of the answers is not modelled" if edits.quantization else "")
    )


def _precision(now: Precision, quantization: str | None) -> Precision:
    if quantization is None:
        return now
    chosen = QUANTISATIONS.get(quantization)
    if chosen is None:
        raise EditError(f"quantization: {quantization!r}; allowed: {', '.join(QUANTISATIONS)}")
    return replace(
        now,
        linear_bytes=chosen.weight_bytes,
        expert_bytes=chosen.weight_bytes,
        linear_math=chosen.math or now.plain_math,
    )


def _flops_per_s(device: Device, shape: ModelShape) -> float:
    precision = shape.precision
    found = device.flops_in(precision.linear_math, precision.plain_math)
    if found is None:
        raise EditError(f"{device.name}: its FLOP/s in {precision.linear_math} are unknown")
    return found


def _weight_bytes(shape: ModelShape) -> float:
    """Return the bytes of weights that one GPU reads in a step, including all experts."""
    weights: WeightElements = gpu_weights(shape)
    precision = shape.precision
    count = shape.experts.count if shape.experts else 0
    linear = weights.attention + weights.dense + weights.shared
    plain = weights.head + weights.router
    return (
        linear * precision.linear_bytes
        + weights.expert * count * precision.expert_bytes
        + plain * precision.plain_bytes
    )


def _more_blocks(
    config: EngineConfig,
    start: EngineStart,
    before: Device,
    after: Device,
    shape: ModelShape,
    changed: ModelShape,
) -> int:
    """The number of additional KV blocks that fit in memory. It may be negative."""
    if before.memory_bytes is None or after.memory_bytes is None:
        return 0
    used = read(start.arguments).get("cache.gpu_memory_utilization", GPU_MEMORY_UTILIZATION)
    more = (after.memory_bytes - before.memory_bytes) * float(used)
    more += _weight_bytes(shape) - _weight_bytes(changed)
    return int(more * shape.parallel.gpus / (shape.kv_token_bytes * config.block_size))
