"""Read the AMD GPUs of this machine through AMD SMI, the Python library of ROCm.

The bandwidth in bytes/s is `umc_activity` × `vram_max_bandwidth`. Only Instinct GPUs report
`umc_activity`, a share of the peak. `gfx_activity` is an upper bound of the compute units'
activity. Source: AMD SMI, "Python API reference", ROCm 6 and 7 (1 MB is 2²⁰ bytes, 1 GB/s is 10⁹
bytes/s).
"""

import contextlib
import io
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

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
from telemetry.gpus import GpuSource, throttle_reasons

_MHZ: Final = 1_000_000
_MB: Final = 2**20
_GB: Final = 1e9
_CODES: Final[Mapping[str, AbsenceReason]] = {
    "AMDSMI_STATUS_NOT_SUPPORTED": AbsenceReason.NOT_SUPPORTED,
    "AMDSMI_STATUS_NOT_YET_IMPLEMENTED": AbsenceReason.NOT_SUPPORTED,
    "AMDSMI_STATUS_FAIL_LOAD_MODULE": AbsenceReason.NO_LIBRARY,
    "AMDSMI_STATUS_FAIL_LOAD_SYMBOL": AbsenceReason.OLD_DRIVER,
    "AMDSMI_STATUS_TIMEOUT": AbsenceReason.TIMEOUT,
    "AMDSMI_STATUS_NO_PERM": AbsenceReason.NO_PERMISSION,
    "AMDSMI_STATUS_BUSY": AbsenceReason.NO_DATA,
    "AMDSMI_STATUS_RETRY": AbsenceReason.NO_DATA,
    "AMDSMI_STATUS_NOT_FOUND": AbsenceReason.LOST,
    "AMDSMI_STATUS_NO_SLOT": AbsenceReason.LOST,
    "AMDSMI_STATUS_DRIVER_NOT_LOADED": AbsenceReason.NO_DRIVER,
    "AMDSMI_STATUS_NO_DRV": AbsenceReason.NO_DRIVER,
    "AMDSMI_STATUS_NO_DATA": AbsenceReason.NO_DATA,
    "AMDSMI_STATUS_AMDGPU_RESTART_ERR": AbsenceReason.NEEDS_RESET,
}
_VIOLATIONS: Final[Mapping[str, str]] = {
    "active_prochot_thrm": "prochot_thermal",
    "active_ppt_pwr": "ppt_power",
    "active_socket_thrm": "socket_thermal",
    "active_vr_thrm": "vr_thermal",
    "active_hbm_thrm": "hbm_thermal",
    "active_gfx_clk_below_host_limit": "gfx_clock_below_host_limit",
}
REASONS: Final = frozenset(_VIOLATIONS.values())
REOPEN_S: Final = 30.0
_ACTIVITIES: Final = ("dram_bandwidth_ratio", "sm_active_ratio")


def load() -> Any:
    """Return AMD SMI's Python library. If the C library is missing, importing the Python library
    prints to stdout.

    Raises:
        ReaderError: the library is not usable.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            import amdsmi
    except ImportError as error:
        raise ReaderError(
            Absence(AbsenceReason.NO_PACKAGE, "pip install /opt/rocm/share/amd_smi")
        ) from error
    except Exception as error:
        raise ReaderError(
            Absence(AbsenceReason.NO_LIBRARY, "libamd_smi.so cannot be loaded")
        ) from error
    return amdsmi


class AmdSmiReader:
    """Reads GPUs through AMD SMI, on one thread only."""

    def __init__(
        self,
        clock_unix_ns: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock_unix_ns = clock_unix_ns
        self._clock = clock
        self._smi: Any = None
        self._opened_s = 0.0

    def read(self) -> Reading:
        """Return the current values of every GPU.

        Raises:
            ReaderError: the library is not usable, or finds no GPU.
        """
        smi = self._open()
        try:
            handles = smi.amdsmi_get_processor_handles()
        except smi.AmdSmiException as error:
            self.close()
            raise ReaderError(absence_of(smi, error)) from error
        if not handles:
            self.close()
            raise ReaderError(Absence(AbsenceReason.NO_GPU, "AMD SMI finds no GPU"))
        at_unix_ns = self._clock_unix_ns()
        gpus, failures = [], []
        for index, handle in enumerate(handles):
            try:
                gpus.append(self._gpu(smi, index, handle, at_unix_ns))
            except ReaderError as error:
                failures.append(GpuReadFailure(f"GPU {index}", error.absence))
        if failures and self._clock() - self._opened_s >= REOPEN_S:
            self.close()  # only a reopened library finds a GPU that works again
        return Reading(tuple(gpus), tuple(failures))

    def close(self) -> None:
        """Close the library. The next `read` opens it again."""
        smi, self._smi = self._smi, None
        if smi is not None:
            with contextlib.suppress(smi.AmdSmiException):
                smi.amdsmi_shut_down()

    def _open(self) -> Any:
        if self._smi is None:
            smi = load()
            try:
                smi.amdsmi_init()
            except smi.AmdSmiException as error:
                raise ReaderError(absence_of(smi, error)) from error
            self._smi = smi
            self._opened_s = self._clock()
        return self._smi

    def _gpu(self, smi: Any, index: int, handle: Any, at_unix_ns: int) -> GpuReading:
        uuid = _value_or_absence(smi, lambda: smi.amdsmi_get_gpu_device_uuid(handle))
        if isinstance(uuid, Absence):
            raise ReaderError(uuid)
        into = Measurements()
        _read_activity(smi, handle, into)
        _read_memory(smi, handle, into)
        _read_power(smi, handle, into)
        _read_clocks(smi, handle, into)
        _read_throttling(smi, handle, into)
        into.set_rest_absent(Absence(AbsenceReason.NOT_REPORTED, "AMD SMI"))
        found = _value_or_absence(smi, lambda: smi.amdsmi_get_gpu_process_list(handle))
        processes = None
        if not isinstance(found, Absence):
            processes = frozenset(int(each["pid"]) for each in found if int(each["pid"]) > 0)
        asic = _value_or_absence(smi, lambda: smi.amdsmi_get_gpu_asic_info(handle))
        name = None if isinstance(asic, Absence) else _value(asic, "market_name")
        return GpuReading(
            gpu=str(uuid),
            index=index,
            at_unix_ns=at_unix_ns,
            source=GpuSource.AMD_SMI,
            model_name=name if isinstance(name, str) else None,
            values=into.values,
            absent=into.absent,
            processes=processes,
        )


def absence_of(smi: Any, error: Exception) -> Absence:
    """The reason for an absent value, from an exception of the library."""
    code = getattr(error, "err_code", None)
    wrapper = getattr(smi, "amdsmi_wrapper", smi)
    for name, why in _CODES.items():
        if code is not None and getattr(wrapper, name, None) == code:
            words = name.removeprefix("AMDSMI_STATUS_").replace("_", " ").lower()
            return Absence(why, f"AMD SMI: {words}")
    return Absence(AbsenceReason.FAILED, f"AMD SMI error {code}")


def _read_activity(smi: Any, handle: Any, into: Measurements) -> None:
    activity = _value_or_absence(smi, lambda: smi.amdsmi_get_gpu_activity(handle))
    for name, key in zip(_ACTIVITIES, ("umc_activity", "gfx_activity"), strict=True):
        _set(into, name, activity, key, lambda percent: percent / 100, most=1.0)
    vram = _value_or_absence(smi, lambda: smi.amdsmi_get_gpu_vram_info(handle))
    ratio = into.values.get("dram_bandwidth_ratio")
    if ratio is None:
        into.set_absent("dram_bandwidth_bytes_per_s", into.absent["dram_bandwidth_ratio"])
    else:
        _set(
            into,
            "dram_bandwidth_bytes_per_s",
            vram,
            "vram_max_bandwidth",
            lambda peak: ratio * peak * _GB if peak > 0 else None,
        )


def _read_memory(smi: Any, handle: Any, into: Measurements) -> None:
    usage = _value_or_absence(smi, lambda: smi.amdsmi_get_gpu_vram_usage(handle))
    _set(into, "memory_used_bytes", usage, "vram_used", lambda value: int(value) * _MB)
    _set(into, "memory_total_bytes", usage, "vram_total", lambda value: int(value) * _MB)


def _read_power(smi: Any, handle: Any, into: Measurements) -> None:
    power = _value_or_absence(smi, lambda: smi.amdsmi_get_power_info(handle))
    # MI300 and newer report `current_socket_power`, older GPUs `average_socket_power`.
    key = "current_socket_power"
    if not isinstance(power, Absence) and _value(power, key) is None:
        key = "average_socket_power"
    _set(into, "power_w", power, key, float)
    energy = _value_or_absence(smi, lambda: smi.amdsmi_get_energy_count(handle))
    counted = "energy_accumulator"
    if not isinstance(energy, Absence) and counted not in energy:
        counted = "power"
    resolution = None if isinstance(energy, Absence) else _value(energy, "counter_resolution")
    _set(
        into,
        "energy_j_total",
        energy,
        counted,
        lambda count: count * resolution * 1e-6 if resolution else None,
    )


def _read_clocks(smi: Any, handle: Any, into: Measurements) -> None:
    kinds = smi.AmdSmiClkType
    gfx = _value_or_absence(smi, lambda: smi.amdsmi_get_clock_info(handle, kinds.GFX))
    _set(into, "sm_clock_hz", gfx, "clk", lambda mhz: int(mhz) * _MHZ)
    _set(into, "sm_clock_max_hz", gfx, "max_clk", lambda mhz: int(mhz) * _MHZ)
    memory = _value_or_absence(smi, lambda: smi.amdsmi_get_clock_info(handle, kinds.MEM))
    _set(into, "memory_clock_hz", memory, "clk", lambda mhz: int(mhz) * _MHZ)


def _read_throttling(smi: Any, handle: Any, into: Measurements) -> None:
    status = _value_or_absence(smi, lambda: smi.amdsmi_get_violation_status(handle))
    if isinstance(status, Absence):
        into.set_absent("throttle_reasons", status)
        return
    active = {key: status[key] for key in _VIOLATIONS if isinstance(status.get(key), int)}
    if not active:
        into.set_absent("throttle_reasons", Absence(AbsenceReason.NOT_SUPPORTED))
        return
    into.set(
        "throttle_reasons", throttle_reasons({_VIOLATIONS[k] for k, on in active.items() if on})
    )


def _set(
    into: Measurements,
    name: str,
    answer: Any,
    key: str,
    made: Callable[[Any], Any],
    most: float = math.inf,
) -> None:
    if isinstance(answer, Absence):
        into.set_absent(name, answer)
        return
    given = _value(answer, key)
    value = None if given is None else made(given)
    if value is None:
        into.set_absent(name, Absence(AbsenceReason.NOT_SUPPORTED, f"{key} is N/A"))
    elif not 0 <= value <= most or not math.isfinite(value):
        into.set_absent(name, Absence(AbsenceReason.IMPOSSIBLE, f"{key} {given}"))
    else:
        into.set(name, value)


def _value(answer: Mapping[str, Any], key: str) -> Any:
    """Return a value, or None if it is "N/A" because the GPU does not support the feature."""
    value = answer.get(key)
    return None if value == "N/A" else value


def _value_or_absence(smi: Any, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except smi.AmdSmiException as error:
        absence = absence_of(smi, error)
        if absence.why in LOST_GPU:
            raise ReaderError(absence) from error
        return absence
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # Functions, keys and types differ between versions of the library.
        return Absence(AbsenceReason.VERSION_MISMATCH, f"AMD SMI: {type(error).__name__}")
