"""Compute the bytes and FLOPs of an engine's steps on one GPU, for each time window. Pure.

If the model's shape or the step ledger (the plugin's record of engine steps) is unknown, vLLM's
counters are used instead. README.md lists how the two sources differ.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np

from roofline.chunks import Chunks, read_back
from roofline.load import FloatArray, StepLoad, summed
from roofline.peaks import Device
from roofline.samples import Rises
from roofline.shape import ModelShape
from roofline.work import work_of


class ModelSource(StrEnum):
    """The source of the bytes and FLOPs."""

    SHAPE = "shape"
    """The values come from the model's shape and the step ledger (the plugin's record of engine
    steps)."""
    VLLM = "vllm"
    """vLLM's counters (`--enable-mfu-metrics`)."""


@dataclass(frozen=True, slots=True)
class Modelled:
    """The modelled bytes and FLOPs of one window on a GPU."""

    model: ModelSource
    weight_bytes: float | None
    kv_bytes: float | None
    bytes: float
    traffic_bytes: float
    flops: float
    compute_s: float | None


@dataclass(frozen=True, slots=True)
class ModelledWindows:
    """The modelled bytes and FLOPs of w time windows: (w,). Unknown values are NaN."""

    model: ModelSource
    weight_bytes: FloatArray
    kv_bytes: FloatArray
    bytes: FloatArray
    traffic_bytes: FloatArray
    flops: FloatArray
    compute_s: FloatArray

    def at(self, row: int) -> Modelled | None:
        """Return the values of one window, or None if its bytes and FLOPs are unknown."""
        if not np.isfinite(self.bytes[row]):
            return None
        return Modelled(
            self.model,
            known(self.weight_bytes[row]),
            known(self.kv_bytes[row]),
            float(self.bytes[row]),
            float(self.traffic_bytes[row]),
            float(self.flops[row]),
            known(self.compute_s[row]),
        )


def modelled_by_shape(
    rises: Rises,
    steps: FloatArray,
    shape: ModelShape | None,
    device: Device | None,
    chunks: Chunks | None = None,
) -> ModelledWindows:
    """Compute bytes and FLOPs from the shape and the recorded steps. The compute time is NaN if the
    peak FLOP/s of a number format is unknown."""
    if shape is None:
        unknown = np.full(steps.shape, np.nan)
        return ModelledWindows(ModelSource.SHAPE, *(unknown,) * 6)
    work = work_of(shape, _load(rises, steps, chunks))
    precision = shape.precision
    linear = device and device.flops_in(precision.linear_math, precision.plain_math)
    plain = device and device.flops_in(precision.plain_math, precision.plain_math)
    if linear and plain:
        compute_s = work.linear_flops / linear + work.plain_flops / plain
    else:
        compute_s = np.full(steps.shape, np.nan)
    return ModelledWindows(
        ModelSource.SHAPE,
        work.weight_bytes + work.table_bytes,
        work.kv_read_bytes + work.kv_write_bytes,
        work.bytes,
        work.traffic_bytes,
        work.flops,
        compute_s,
    )


def _load(rises: Rises, steps: FloatArray, chunks: Chunks | None) -> StepLoad:
    context = None
    if chunks is not None:
        context = rises.combined(
            ("steps_total", "scheduled_prefill_tokens_total", "prefill_attention_total",
             "decodes_total"),
            partial(read_back, chunks=chunks),
        )  # fmt: skip
    return summed(
        steps,
        rises.of("scheduled_prefill_tokens_total"),
        rises.of("prefill_attention_total"),
        rises.of("context_tokens_total"),
        rises.of("decodes_total"),
        rises.of("draft_tokens_total"),
        context,
    )


def modelled_by_vllm(
    rises: Rises, shape: ModelShape | None, device: Device | None
) -> ModelledWindows:
    """Compute bytes and FLOPs from vLLM's counters. All FLOPs are assumed to be in the model's
    dtype. If the dtype is unknown, a 16-bit format is assumed."""
    flops = rises.of("modelled_flops_total")
    read = rises.of("modelled_read_bytes_total")
    moved = read + np.nan_to_num(rises.of("modelled_write_bytes_total"))
    unknown = np.full(flops.shape, np.nan)
    math = shape.precision.plain_math if shape else "bf16"
    peak = device.flops_in(math, "fp16") if device else None
    compute_s = flops / peak if peak else unknown
    return ModelledWindows(ModelSource.VLLM, unknown, unknown, *(moved,) * 2, flops, compute_s)


def known(value: float) -> float | None:
    """Return the value as a float, or None if the value is NaN."""
    return float(value) if np.isfinite(value) else None
