"""Measure a GPU's activity between two samples by NVIDIA's GPU performance monitoring (GPM).

GPM needs a GPU of the Hopper generation or newer. The first sample has no values. The first sample
after a long pause also has no values. Source: NVML API reference, "GPM Functions" and
`nvmlGpmMetricId_t`.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from collector.gpus.nvml_errors import absence_of, meaning
from collector.gpus.reader import LOST_GPU, Absence, AbsenceReason, Measurements, ReaderError

SHORTEST_S: Final = 0.1
"""Approximate interval at which the driver updates its counters."""
LONGEST_S: Final = 10.0
_PERCENT: Final = 0.01
_MIB: Final = float(2**20)
_ROUNDING: Final = 1.01
"""Maximum ratio that is treated as 1. A ratio can exceed 1, because its numerator and denominator
are measured by different clocks. A ratio above this maximum is discarded."""


class _Metric(NamedTuple):
    name: str
    scale: float


METRICS: Final[Mapping[str, _Metric]] = {
    "NVML_GPM_METRIC_DRAM_BW_UTIL": _Metric("dram_bandwidth_ratio", _PERCENT),
    "NVML_GPM_METRIC_SM_UTIL": _Metric("sm_active_ratio", _PERCENT),
    "NVML_GPM_METRIC_ANY_TENSOR_UTIL": _Metric("tensor_active_ratio", _PERCENT),
    "NVML_GPM_METRIC_PCIE_RX_PER_SEC": _Metric("pcie_rx_bytes_per_s", _MIB),
    "NVML_GPM_METRIC_PCIE_TX_PER_SEC": _Metric("pcie_tx_bytes_per_s", _MIB),
    "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC": _Metric("nvlink_rx_bytes_per_s", _MIB),
    "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC": _Metric("nvlink_tx_bytes_per_s", _MIB),
}


class GpmWindow:
    """Two successive samples of a GPU or of a MIG instance. `instance` is the id of the MIG
    instance."""

    def __init__(
        self, pynvml: Any, device: Any, instance: int | None, clock: Callable[[], float]
    ) -> None:
        self._pynvml = pynvml
        self._device = device
        self._instance = instance
        self._clock = clock
        self._before: tuple[Any, float] | None = None
        self._spare: Any = None
        self._unsupported: Absence | None = None
        self._support_checked = False

    def measure(self, into: Measurements) -> None:
        """Set each activity metric in `into`, measured since the last sample. If a value is absent,
        set the reason.

        Raises:
            ReaderError: the GPU is gone.
        """
        try:
            why = self._compare_with_last(into)
        except self._pynvml.NVMLError as error:
            why = absence_of(self._pynvml, error)
            self.free()
        if why is not None:
            if why.why in LOST_GPU:
                raise ReaderError(why)
            for metric in METRICS.values():
                into.set_absent(metric.name, why)

    def free(self) -> None:
        """Free the buffers."""
        held = [self._spare, None if self._before is None else self._before[0]]
        self._spare = self._before = None
        for buffer in held:
            if buffer is not None:
                # A library that was shut down has already freed its memory.
                with contextlib.suppress(self._pynvml.NVMLError):
                    self._pynvml.nvmlGpmSampleFree(buffer)

    def _compare_with_last(self, into: Measurements) -> Absence | None:
        if not self._support_checked:
            self._unsupported = self._support()
            self._support_checked = True
        if self._unsupported is not None:
            return self._unsupported
        now_s = self._clock()
        if self._before is not None and now_s - self._before[1] < SHORTEST_S:
            return Absence(AbsenceReason.FIRST_LOOK, "too soon after the last sample")
        taken = self._spare if self._spare is not None else self._pynvml.nvmlGpmSampleAlloc()
        self._spare = taken
        if self._instance is None:
            self._pynvml.nvmlGpmSampleGet(self._device, taken)
        else:
            self._pynvml.nvmlGpmMigSampleGet(self._device, self._instance, taken)
        before, self._before = self._before, (taken, now_s)
        self._spare = None if before is None else before[0]
        if before is None:
            return Absence(AbsenceReason.FIRST_LOOK)
        if now_s - before[1] > LONGEST_S:
            return Absence(
                AbsenceReason.FIRST_LOOK, f"the last sample was {now_s - before[1]:.0f} s ago"
            )
        self._compare(before[0], taken, into)
        return None

    def _support(self) -> Absence | None:
        try:
            support = self._pynvml.nvmlGpmQueryDeviceSupport(self._device)
        except self._pynvml.NVMLError as error:
            return absence_of(self._pynvml, error)
        if support.isSupportedDevice:
            return None
        return Absence(
            AbsenceReason.NOT_SUPPORTED, "older than Hopper; a dcgm-exporter may report it"
        )

    def _compare(self, before: Any, after: Any, into: Measurements) -> None:
        request = self._pynvml.c_nvmlGpmMetricsGet_t()
        request.version = self._pynvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(METRICS)
        request.sample1, request.sample2 = before, after
        for place, name in enumerate(METRICS):
            request.metrics[place].metricId = getattr(self._pynvml, name)
        self._pynvml.nvmlGpmMetricsGet(request)
        for place, metric in enumerate(METRICS.values()):
            metric_value = request.metrics[place]
            if metric_value.nvmlReturn != self._pynvml.NVML_SUCCESS:
                into.set_absent(metric.name, meaning(self._pynvml, metric_value.nvmlReturn))
                continue
            value = _checked(metric_value.value * metric.scale, is_ratio=metric.scale == _PERCENT)
            if value is None:
                into.set_absent(
                    metric.name, Absence(AbsenceReason.IMPOSSIBLE, f"{metric_value.value:g}")
                )
            else:
                into.set(metric.name, value)


def _checked(value: float, *, is_ratio: bool) -> float | None:
    if not 0 <= value < (_ROUNDING if is_ratio else float("inf")):
        return None
    return min(value, 1.0) if is_ratio else value
