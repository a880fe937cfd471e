"""NVIDIA's GPU performance monitoring: what happened between two looks, Hopper and newer.

The first look seeds and tells nothing. So does one that comes too late: an average over a
minute's pause is no second's. Two sample buffers a GPU are kept, and freed at the end.
Source: NVML API reference, "GPM Functions" and `nvmlGpmMetricId_t`.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from collector.gpus.nvml_errors import absence_of, meaning
from collector.gpus.reader import GONE, Absence, Measurements, ReaderError, Why

SHORTEST_S: Final = 0.1
"""The driver refreshes its counters about as often."""
LONGEST_S: Final = 10.0
_PERCENT: Final = 0.01
_MIB: Final = float(2**20)
_ROUNDING: Final = 1.01
"""A ratio may be over 1 by what two clocks differ, and is then 1; by more it cannot be."""


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
    """The looks at one GPU, or at one MIG instance of it.

    Args:
        pynvml: the package.
        device: handle of the card.
        instance: id of the MIG instance; None for the card.
        clock: monotonic seconds.
    """

    def __init__(
        self, pynvml: Any, device: Any, instance: int | None, clock: Callable[[], float]
    ) -> None:
        self._pynvml = pynvml
        self._device = device
        self._instance = instance
        self._clock = clock
        self._before: tuple[Any, float] | None = None
        """The last look's buffer, and when it was."""
        self._spare: Any = None
        self._unsupported: Absence | None = None
        self._asked = False

    def measure(self, into: Measurements) -> None:
        """What happened since the last look, or why nobody can say.

        Raises:
            ReaderError: the GPU is gone.
        """
        try:
            why = self._look(into)
        except self._pynvml.NVMLError as error:
            why = absence_of(self._pynvml, error)
            self.free()  # whatever the last look held, the next begins anew
        if why is not None:
            if why.why in GONE:
                raise ReaderError(why)
            for metric in METRICS.values():
                into.miss(metric.name, why)

    def free(self) -> None:
        """Give the buffers back."""
        held = [self._spare, None if self._before is None else self._before[0]]
        self._spare = self._before = None
        for buffer in held:
            if buffer is not None:
                # Where the library is shut down its memory is gone with it.
                with contextlib.suppress(self._pynvml.NVMLError):
                    self._pynvml.nvmlGpmSampleFree(buffer)

    def _look(self, into: Measurements) -> Absence | None:
        if not self._asked:
            self._unsupported = self._support()
            self._asked = True
        if self._unsupported is not None:
            return self._unsupported
        now_s = self._clock()
        if self._before is not None and now_s - self._before[1] < SHORTEST_S:
            return Absence(Why.FIRST_LOOK, "too soon after the last")
        taken = self._spare if self._spare is not None else self._pynvml.nvmlGpmSampleAlloc()
        self._spare = taken  # ours to free, should the look fail
        if self._instance is None:
            self._pynvml.nvmlGpmSampleGet(self._device, taken)
        else:
            self._pynvml.nvmlGpmMigSampleGet(self._device, self._instance, taken)
        before, self._before = self._before, (taken, now_s)
        self._spare = None if before is None else before[0]
        if before is None:
            return Absence(Why.FIRST_LOOK)
        if now_s - before[1] > LONGEST_S:
            return Absence(Why.FIRST_LOOK, f"the last was {now_s - before[1]:.0f} s ago")
        self._compare(before[0], taken, into)
        return None

    def _support(self) -> Absence | None:
        try:
            told = self._pynvml.nvmlGpmQueryDeviceSupport(self._device)
        except self._pynvml.NVMLError as error:
            return absence_of(self._pynvml, error)
        if told.isSupportedDevice:
            return None
        return Absence(Why.NOT_SUPPORTED, "older than Hopper; a dcgm-exporter may tell")

    def _compare(self, before: Any, after: Any, into: Measurements) -> None:
        asked = self._pynvml.c_nvmlGpmMetricsGet_t()
        asked.version = self._pynvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(METRICS)
        asked.sample1, asked.sample2 = before, after
        for place, name in enumerate(METRICS):
            asked.metrics[place].metricId = getattr(self._pynvml, name)
        self._pynvml.nvmlGpmMetricsGet(asked)
        for place, metric in enumerate(METRICS.values()):
            told = asked.metrics[place]
            if told.nvmlReturn != self._pynvml.NVML_SUCCESS:
                into.miss(metric.name, meaning(self._pynvml, told.nvmlReturn))
                continue
            value = _checked(told.value * metric.scale, is_ratio=metric.scale == _PERCENT)
            if value is None:
                into.miss(metric.name, Absence(Why.IMPOSSIBLE, f"{told.value:g}"))
            else:
                into.tell(metric.name, value)


def _checked(value: float, *, is_ratio: bool) -> float | None:
    """NaN compares as false and is refused with what is below zero."""
    if not 0 <= value < (_ROUNDING if is_ratio else float("inf")):
        return None
    return min(value, 1.0) if is_ratio else value
