"""Compute an engine's roofline in time windows: bytes, FLOPs, bandwidth, utilisation, bottleneck.
Pure."""

from dataclasses import dataclass

import numpy as np

from roofline.chunks import Chunks
from roofline.load import FloatArray
from roofline.modelled import Modelled, ModelSource, known, modelled_by_shape, modelled_by_vllm
from roofline.peaks import Device
from roofline.samples import Columns, Grid, Rises, grid_of, means
from roofline.shape import ModelShape
from roofline.verdict import (
    RooflineFinding,
    RooflineVerdict,
    Terms,
    findings_of,
    residual_of,
    verdict_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineWindow:
    """One time window of one engine. Bytes and FLOPs are means over the engine's GPUs. Unknown
    values are None."""

    from_unix_ns: int
    seconds: float
    """Seconds that the engine's samples cover."""
    steps: float | None
    busy_s: float | None
    model: ModelSource | None
    weight_bytes: float | None
    kv_bytes: float | None
    bytes: float | None
    """Bytes of active weights and KV cache, or all bytes if they come from vLLM's counters."""
    flops: float | None
    terms: Terms | None
    verdict: RooflineVerdict | None
    least_bytes_per_s: float | None
    """Modelled mean bandwidth for weights and KV cache only: a lower bound."""
    modelled_bytes_per_s: float | None
    """Modelled mean bandwidth including all activations between layers: an upper bound."""
    measured_bytes_per_s: float | None
    residual_ratio: float | None
    """How far the measured bandwidth is outside the two bounds (`verdict.residual_of`)."""
    sm_active_ratio: float | None
    tensor_active_ratio: float | None
    findings: tuple[RooflineFinding, ...]

    @property
    def mbu(self) -> float | None:
        """Model bandwidth utilisation."""
        return self.terms.mbu if self.terms else None

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation."""
        return self.terms.mfu if self.terms else None


def windows_of(
    engine: Columns,
    shape: ModelShape | None,
    device: Device | None,
    gpus: Columns | None = None,
    width_s: float | None = 60.0,
    chunks: Chunks | None = None,
) -> list[RooflineWindow]:
    """The windows of one engine in order of time.

    Windows whose samples cover no time are left out.

    Args:
        engine: the engine's `EngineSample`s.
        shape: the model's shape (`shape_from_config.read_shape`), if known.
        device: the device (`peaks.device_named`), if known.
        gpus: the `GpuSample`s of the engine's GPUs.
        width_s: width of a window, or None for a single window.
        chunks: limits of prompt chunks (`chunks.read_chunks`), or None to ignore the KV that chunks
            read again.

    Raises:
        ValueError: the width is 0 or less.
    """
    grid = grid_of(engine.at_unix_ns, width_s)
    if not grid.number:
        return []
    rises = Rises(engine, grid)
    seconds, steps, busy_s = rises.covered_s(), rises.of("steps_total"), rises.of("busy_s_total")
    by_shape = modelled_by_shape(rises, steps, shape, device, chunks)
    by_vllm = modelled_by_vllm(rises, shape, device)
    measured = _measured(gpus, grid, device)
    return [
        _window(
            grid.start_unix_ns(row),
            float(seconds[row]),
            known(steps[row]),
            known(busy_s[row]),
            by_shape.at(row) or by_vllm.at(row),
            measured.at(row),
            device,
        )
        for row in np.flatnonzero(seconds > 0).tolist()
    ]


@dataclass(frozen=True, slots=True)
class _MeasuredAt:
    bytes_per_s: float | None
    sm_active: float | None
    tensor_active: float | None


@dataclass(frozen=True, slots=True)
class _Measured:
    bytes_per_s: FloatArray
    sm_active: FloatArray
    tensor_active: FloatArray

    def at(self, row: int) -> _MeasuredAt:
        return _MeasuredAt(
            known(self.bytes_per_s[row]),
            known(self.sm_active[row]),
            known(self.tensor_active[row]),
        )


def _measured(gpus: Columns | None, grid: Grid, device: Device | None) -> _Measured:
    if gpus is None:
        return _Measured(*(np.full(grid.number, np.nan),) * 3)
    measured = means(gpus, "dram_bandwidth_bytes_per_s", grid)
    if device is not None:
        ratio = means(gpus, "dram_bandwidth_ratio", grid)
        measured = np.where(np.isfinite(measured), measured, ratio * device.bytes_per_s)
    return _Measured(
        measured, means(gpus, "sm_active_ratio", grid), means(gpus, "tensor_active_ratio", grid)
    )


def _window(
    from_unix_ns: int,
    seconds: float,
    steps: float | None,
    busy_s: float | None,
    work: Modelled | None,
    measured: _MeasuredAt,
    device: Device | None,
) -> RooflineWindow:
    terms = _terms(steps, busy_s, work, device)
    busy_ratio = None if busy_s is None else busy_s / seconds
    verdict = verdict_of(terms, measured.sm_active, busy_ratio)
    modelled = work.traffic_bytes / seconds if work else None
    least = work.bytes / seconds if work else None
    residual = residual_of(least, modelled, measured.bytes_per_s)
    largest = max(modelled or 0.0, measured.bytes_per_s or 0.0)
    return RooflineWindow(
        from_unix_ns=from_unix_ns,
        seconds=seconds,
        steps=steps,
        busy_s=busy_s,
        model=work.model if work else None,
        weight_bytes=work.weight_bytes if work else None,
        kv_bytes=work.kv_bytes if work else None,
        bytes=work.bytes if work else None,
        flops=work.flops if work else None,
        terms=terms,
        verdict=verdict,
        least_bytes_per_s=least,
        modelled_bytes_per_s=modelled,
        measured_bytes_per_s=measured.bytes_per_s,
        residual_ratio=residual,
        sm_active_ratio=measured.sm_active,
        tensor_active_ratio=measured.tensor_active,
        findings=findings_of(
            verdict,
            terms,
            tensor_active_ratio=measured.tensor_active,
            residual=residual,
            of_the_peak=largest / device.bytes_per_s if device else None,
        ),
    )


def _terms(
    steps: float | None, busy_s: float | None, work: Modelled | None, device: Device | None
) -> Terms | None:
    if not steps or not busy_s:
        return None
    memory_s = work.bytes / device.bytes_per_s / steps if work and device else None
    compute_s = None
    if work is not None and work.compute_s is not None:
        compute_s = work.compute_s / steps
    return Terms(step_s=busy_s / steps, memory_s=memory_s, compute_s=compute_s)
