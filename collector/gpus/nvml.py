"""NVIDIA GPUs of this machine, through NVML: every card and every MIG slice, each by itself.

A GPU that is lost costs itself. The library learns that it is back only when it is opened
anew, which costs the others one look at their rates: so it is tried every half minute.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from collector.gpus.gpm import GpmWindow
from collector.gpus.nvml_device import (
    asked,
    peak_bytes_per_s,
    processes_of,
    tell_card,
    tell_clocks,
    tell_memory,
)
from collector.gpus.nvml_errors import absence_of
from collector.gpus.reader import (
    GONE,
    Absence,
    Failure,
    Measurements,
    ReaderError,
    Reading,
    Told,
    Why,
)
from telemetry.gpus import GpuSource

REOPEN_S: Final = 30.0
_MAY_COME_BACK: Final = GONE | {Why.FAILED}
"""An unknown error is often how a lost GPU begins to show."""


def load() -> Any:
    """The Python package; the one seam to it."""
    try:
        import pynvml
    except ImportError as error:
        raise ReaderError(Absence(Why.NO_PACKAGE, "pip install nvidia-ml-py")) from error
    return pynvml


class NvmlReader:
    """Reads through NVML, from one thread.

    Args:
        clock_unix_ns: the present.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        clock_unix_ns: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock_unix_ns = clock_unix_ns
        self._clock = clock
        self._nvml: Any = None
        """The package while the library is open."""
        self._opened_s = 0.0
        self._windows: dict[str, GpmWindow] = {}
        self._peaks: dict[str, float | Absence] = {}
        self._amiss = False
        """A GPU was lost at the last look."""

    def read(self) -> Reading:
        """Every GPU as it is now.

        Raises:
            ReaderError: the library cannot be had, or knows of no GPU.
        """
        if self._amiss and self._clock() - self._opened_s >= REOPEN_S:
            self.close()
        nvml = self._open()
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self.close()
            raise ReaderError(absence_of(nvml, error)) from error
        if not count:
            self.close()
            raise ReaderError(Absence(Why.NO_GPU, "NVML knows of none"))
        at_unix_ns = self._clock_unix_ns()
        gpus: list[Told] = []
        failures: list[Failure] = []
        for index in range(count):
            try:
                gpus += self._card(nvml, index, at_unix_ns, failures)
            except ReaderError as error:
                failures.append(Failure(f"GPU {index}", error.absence))
        self._amiss = any(each.absence.why in _MAY_COME_BACK for each in failures)
        self._forget(nvml, {each.gpu for each in gpus})
        return Reading(tuple(gpus), tuple(failures))

    def close(self) -> None:
        """Give everything back; `read` opens it again."""
        nvml, self._nvml = self._nvml, None
        for window in self._windows.values():
            window.free()
        self._windows.clear()
        self._peaks.clear()
        self._amiss = False
        if nvml is not None:
            with contextlib.suppress(nvml.NVMLError):  # it may not be open any more
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
        self, nvml: Any, index: int, at_unix_ns: int, failures: list[Failure]
    ) -> Iterator[Told]:
        device = _needed(asked(nvml, lambda: nvml.nvmlDeviceGetHandleByIndex(index)))
        gpu = str(_needed(asked(nvml, lambda: nvml.nvmlDeviceGetUUID(device))))
        into = Measurements()
        tell_card(nvml, device, into)
        tell_clocks(nvml, device, into)
        mode = asked(nvml, lambda: nvml.nvmlDeviceGetMigMode(device))
        sliced = not isinstance(mode, Absence) and mode[0] == nvml.NVML_DEVICE_MIG_ENABLE
        told: list[Told] = []
        processes: frozenset[int] | None = None
        if sliced:
            into.miss_the_rest(Absence(Why.SLICED, "its slices tell"))
            told += self._slices(nvml, index, device, at_unix_ns, failures)
        else:
            tell_memory(nvml, device, into)
            self._window(nvml, gpu, device, None).measure(into)
            self._tell_bandwidth(nvml, gpu, device, into)
            processes = processes_of(nvml, device)
        card = Told(
            gpu=gpu,
            index=index,
            at_unix_ns=at_unix_ns,
            source=GpuSource.NVML,
            model_name=_name(nvml, device),
            values=into.values,
            absent=into.absent,
            processes=processes,
        )
        return iter((card, *told))

    def _slices(
        self, nvml: Any, index: int, device: Any, at_unix_ns: int, failures: list[Failure]
    ) -> Iterator[Told]:
        most = asked(nvml, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(device))
        for place in range(0 if isinstance(most, Absence) else most):
            part = asked(
                nvml,
                lambda place=place: nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, place),  # type: ignore[misc]
            )
            if isinstance(part, Absence):
                if part.why is not Why.NO_DATA:  # places need not be taken
                    failures.append(Failure(f"GPU {index} MIG slice {place}", part))
                continue
            try:
                yield self._slice(nvml, device, part, at_unix_ns)
            except ReaderError as error:
                failures.append(Failure(f"GPU {index} MIG slice {place}", error.absence))

    def _slice(self, nvml: Any, device: Any, part: Any, at_unix_ns: int) -> Told:
        gpu = str(_needed(asked(nvml, lambda: nvml.nvmlDeviceGetUUID(part))))
        instance = _needed(asked(nvml, lambda: nvml.nvmlDeviceGetGpuInstanceId(part)))
        into = Measurements()
        tell_memory(nvml, part, into)
        tell_clocks(nvml, device, into)
        self._window(nvml, gpu, device, int(instance)).measure(into)
        of_card = Absence(Why.SLICED, "known of the whole card alone")
        into.miss("power_w", of_card)
        into.miss("energy_j_total", of_card)
        into.miss("dram_bandwidth_bytes_per_s", of_card)
        into.miss_the_rest(Absence(Why.NOT_TOLD))
        return Told(
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

    def _tell_bandwidth(self, nvml: Any, gpu: str, device: Any, into: Measurements) -> None:
        """Bytes a second: the measured share of what the card's memory can move at most."""
        name = "dram_bandwidth_bytes_per_s"
        ratio = into.values.get("dram_bandwidth_ratio")
        if ratio is None:
            into.miss(name, into.absent["dram_bandwidth_ratio"])
            return
        if gpu not in self._peaks:
            self._peaks[gpu] = peak_bytes_per_s(nvml, device)
        peak = self._peaks[gpu]
        if isinstance(peak, Absence):
            into.miss(name, peak)
        else:
            into.tell(name, ratio * peak)

    def _forget(self, nvml: Any, here: set[str]) -> None:
        for gpu in self._windows.keys() - here:
            self._windows.pop(gpu).free()
            self._peaks.pop(gpu, None)


def _needed(answer: Any) -> Any:
    if isinstance(answer, Absence):
        raise ReaderError(answer)
    return answer


def _name(nvml: Any, device: Any) -> str | None:
    name = asked(nvml, lambda: nvml.nvmlDeviceGetName(device))
    return None if isinstance(name, Absence) else str(name)
