"""Read the NVIDIA GPUs of this machine through NVML.

It reads every card and every MIG slice. A lost GPU can be found again only after the library is
reopened. The first read after a reopening has no rates, so the library is reopened at most every 30
s.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from collector.gpus.gpm import GpmWindow
from collector.gpus.nvml_device import (
    peak_bytes_per_s,
    processes_of,
    read_card,
    read_clocks,
    read_memory,
    result_of,
)
from collector.gpus.nvml_errors import absence_of
from collector.gpus.reader import (
    LOST_GPU,
    Absence,
    AbsenceReason,
    GpuReadFailure,
    GpuReading,
    Measurements,
    ReaderError,
    Reading,
)
from telemetry.gpus import GpuSource
from telemetry.installing import install_extra

REOPEN_S: Final = 30.0
_MAY_COME_BACK: Final = LOST_GPU | {AbsenceReason.FAILED}
"""Errors after which the library is reopened. The unknown error FAILED is often the first sign of a
lost GPU."""


def load() -> Any:
    """Return NVML's Python package."""
    try:
        import pynvml
    except ImportError as error:
        raise ReaderError(Absence(AbsenceReason.NO_PACKAGE, install_extra("gpu"))) from error
    return pynvml


class NvmlReader:
    """Reads GPUs through NVML, on one thread only."""

    def __init__(
        self,
        clock_unix_ns: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock_unix_ns = clock_unix_ns
        self._clock = clock
        self._nvml: Any = None
        self._opened_s = 0.0
        self._windows: dict[str, GpmWindow] = {}
        self._peaks: dict[str, float | Absence] = {}
        self._some_lost = False

    def read(self) -> Reading:
        """Return the current values of every GPU.

        Raises:
            ReaderError: the library is not usable, or finds no GPU.
        """
        if self._some_lost and self._clock() - self._opened_s >= REOPEN_S:
            self.close()
        nvml = self._open()
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self.close()
            raise ReaderError(absence_of(nvml, error)) from error
        if not count:
            self.close()
            raise ReaderError(Absence(AbsenceReason.NO_GPU, "NVML finds no GPU"))
        at_unix_ns = self._clock_unix_ns()
        gpus: list[GpuReading] = []
        failures: list[GpuReadFailure] = []
        for index in range(count):
            try:
                gpus += self._card(nvml, index, at_unix_ns, failures)
            except ReaderError as error:
                failures.append(GpuReadFailure(f"GPU {index}", error.absence))
        self._some_lost = any(each.absence.why in _MAY_COME_BACK for each in failures)
        self._forget(nvml, {each.gpu for each in gpus})
        return Reading(tuple(gpus), tuple(failures))

    def close(self) -> None:
        """Close the library. The next `read` opens it again."""
        nvml, self._nvml = self._nvml, None
        for window in self._windows.values():
            window.free()
        self._windows.clear()
        self._peaks.clear()
        self._some_lost = False
        if nvml is not None:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _open(self) -> Any:
        if self._nvml is None:
            nvml = load()
            try:
                nvml.nvmlInit()
            except nvml.NVMLError as error:
                raise ReaderError(absence_of(nvml, error)) from error
            self._nvml = nvml
            self._opened_s = self._clock()
        return self._nvml

    def _card(
        self, nvml: Any, index: int, at_unix_ns: int, failures: list[GpuReadFailure]
    ) -> Iterator[GpuReading]:
        device = _needed(result_of(nvml, lambda: nvml.nvmlDeviceGetHandleByIndex(index)))
        gpu = str(_needed(result_of(nvml, lambda: nvml.nvmlDeviceGetUUID(device))))
        into = Measurements()
        read_card(nvml, device, into)
        read_clocks(nvml, device, into)
        mode = result_of(nvml, lambda: nvml.nvmlDeviceGetMigMode(device))
        sliced = not isinstance(mode, Absence) and mode[0] == nvml.NVML_DEVICE_MIG_ENABLE
        slices: list[GpuReading] = []
        processes: frozenset[int] | None = None
        if sliced:
            into.set_rest_absent(Absence(AbsenceReason.SLICED, "reported for its slices"))
            slices += self._slices(nvml, index, device, at_unix_ns, failures)
        else:
            read_memory(nvml, device, into)
            self._window(nvml, gpu, device, None).measure(into)
            self._set_bandwidth(nvml, gpu, device, into)
            processes = processes_of(nvml, device)
        card = GpuReading(
            gpu=gpu,
            index=index,
            at_unix_ns=at_unix_ns,
            source=GpuSource.NVML,
            model_name=_name(nvml, device),
            values=into.values,
            absent=into.absent,
            processes=processes,
        )
        return iter((card, *slices))

    def _slices(
        self, nvml: Any, index: int, device: Any, at_unix_ns: int, failures: list[GpuReadFailure]
    ) -> Iterator[GpuReading]:
        most = result_of(nvml, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(device))
        for place in range(0 if isinstance(most, Absence) else most):
            part = result_of(
                nvml,
                lambda place=place: nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, place),  # type: ignore[misc]
            )
            if isinstance(part, Absence):
                if part.why is not AbsenceReason.NO_DATA:  # no slice has this index
                    failures.append(GpuReadFailure(f"GPU {index} MIG slice {place}", part))
                continue
            try:
                yield self._slice(nvml, device, part, at_unix_ns)
            except ReaderError as error:
                failures.append(GpuReadFailure(f"GPU {index} MIG slice {place}", error.absence))

    def _slice(self, nvml: Any, device: Any, part: Any, at_unix_ns: int) -> GpuReading:
        gpu = str(_needed(result_of(nvml, lambda: nvml.nvmlDeviceGetUUID(part))))
        instance = _needed(result_of(nvml, lambda: nvml.nvmlDeviceGetGpuInstanceId(part)))
        into = Measurements()
        read_memory(nvml, part, into)
        read_clocks(nvml, device, into)
        self._window(nvml, gpu, device, int(instance)).measure(into)
        of_card = Absence(AbsenceReason.SLICED, "reported for the whole card only")
        into.set_absent("power_w", of_card)
        into.set_absent("energy_j_total", of_card)
        into.set_absent("dram_bandwidth_bytes_per_s", of_card)
        into.set_rest_absent(Absence(AbsenceReason.NOT_REPORTED))
        return GpuReading(
            gpu=gpu,
            at_unix_ns=at_unix_ns,
            source=GpuSource.NVML,
            model_name=_name(nvml, part),
            values=into.values,
            absent=into.absent,
            processes=processes_of(nvml, part),
        )

    def _window(self, nvml: Any, gpu: str, device: Any, instance: int | None) -> GpmWindow:
        if gpu not in self._windows:
            self._windows[gpu] = GpmWindow(nvml, device, instance, self._clock)
        return self._windows[gpu]

    def _set_bandwidth(self, nvml: Any, gpu: str, device: Any, into: Measurements) -> None:
        name = "dram_bandwidth_bytes_per_s"
        ratio = into.values.get("dram_bandwidth_ratio")
        if ratio is None:
            into.set_absent(name, into.absent["dram_bandwidth_ratio"])
            return
        if gpu not in self._peaks:
            self._peaks[gpu] = peak_bytes_per_s(nvml, device)
        peak = self._peaks[gpu]
        if isinstance(peak, Absence):
            into.set_absent(name, peak)
        else:
            into.set(name, ratio * peak)

    def _forget(self, nvml: Any, here: set[str]) -> None:
        for gpu in self._windows.keys() - here:
            self._windows.pop(gpu).free()
            self._peaks.pop(gpu, None)


def _needed(answer: Any) -> Any:
    if isinstance(answer, Absence):
        raise ReaderError(answer)
    return answer


def _name(nvml: Any, device: Any) -> str | None:
    name = result_of(nvml, lambda: nvml.nvmlDeviceGetName(device))
    return None if isinstance(name, Absence) else str(name)
