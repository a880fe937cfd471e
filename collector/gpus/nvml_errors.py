"""Convert NVML's error codes to reasons for absent values.

An unlisted code becomes `AbsenceReason.FAILED`. Source: NVML API reference, `nvmlReturn_t`.
"""

from collections.abc import Mapping
from typing import Any, Final

from collector.gpus.reader import Absence, AbsenceReason

CODES: Final[Mapping[str, AbsenceReason]] = {
    "NVML_ERROR_UNINITIALIZED": AbsenceReason.FAILED,
    "NVML_ERROR_INVALID_ARGUMENT": AbsenceReason.FAILED,
    "NVML_ERROR_NOT_SUPPORTED": AbsenceReason.NOT_SUPPORTED,
    "NVML_ERROR_NO_PERMISSION": AbsenceReason.NO_PERMISSION,
    "NVML_ERROR_ALREADY_INITIALIZED": AbsenceReason.FAILED,
    "NVML_ERROR_NOT_FOUND": AbsenceReason.NO_DATA,
    "NVML_ERROR_INSUFFICIENT_SIZE": AbsenceReason.FAILED,
    "NVML_ERROR_INSUFFICIENT_POWER": AbsenceReason.NO_POWER,
    "NVML_ERROR_DRIVER_NOT_LOADED": AbsenceReason.NO_DRIVER,
    "NVML_ERROR_TIMEOUT": AbsenceReason.TIMEOUT,
    "NVML_ERROR_IRQ_ISSUE": AbsenceReason.FAILED,
    "NVML_ERROR_LIBRARY_NOT_FOUND": AbsenceReason.NO_LIBRARY,
    "NVML_ERROR_FUNCTION_NOT_FOUND": AbsenceReason.OLD_DRIVER,
    "NVML_ERROR_CORRUPTED_INFOROM": AbsenceReason.FAILED,
    "NVML_ERROR_GPU_IS_LOST": AbsenceReason.LOST,
    "NVML_ERROR_RESET_REQUIRED": AbsenceReason.NEEDS_RESET,
    "NVML_ERROR_OPERATING_SYSTEM": AbsenceReason.NO_PERMISSION,
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": AbsenceReason.VERSION_MISMATCH,
    "NVML_ERROR_IN_USE": AbsenceReason.NO_DATA,
    "NVML_ERROR_MEMORY": AbsenceReason.FAILED,
    "NVML_ERROR_NO_DATA": AbsenceReason.NO_DATA,
    "NVML_ERROR_VGPU_ECC_NOT_SUPPORTED": AbsenceReason.NOT_SUPPORTED,
    "NVML_ERROR_INSUFFICIENT_RESOURCES": AbsenceReason.FAILED,
    "NVML_ERROR_FREQ_NOT_SUPPORTED": AbsenceReason.NOT_SUPPORTED,
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH": AbsenceReason.VERSION_MISMATCH,
    "NVML_ERROR_DEPRECATED": AbsenceReason.OLD_DRIVER,
    "NVML_ERROR_NOT_READY": AbsenceReason.NO_DATA,
    "NVML_ERROR_GPU_NOT_FOUND": AbsenceReason.NO_GPU,
    "NVML_ERROR_INVALID_STATE": AbsenceReason.NO_DATA,
    "NVML_ERROR_RESET_TYPE_NOT_SUPPORTED": AbsenceReason.NOT_SUPPORTED,
    "NVML_ERROR_UNKNOWN": AbsenceReason.FAILED,
}
"""Maps error codes to reasons. Older versions of the package do not define all codes."""


def meaning(pynvml: Any, code: int) -> Absence:
    """Convert an error code to the reason for an absent value."""
    for name, why in CODES.items():
        if getattr(pynvml, name, None) == code:
            return Absence(why, _words(name))
    return Absence(AbsenceReason.FAILED, f"NVML error {code}")


def absence_of(pynvml: Any, error: Exception) -> Absence:
    """Convert an exception of the package to the reason for an absent value."""
    if isinstance(error, pynvml.NVMLLibraryMismatchError):
        return Absence(
            AbsenceReason.VERSION_MISMATCH, "the package is newer than the driver's library"
        )
    return meaning(pynvml, int(getattr(error, "value", -1)))


def _words(name: str) -> str:
    return "NVML: " + name.removeprefix("NVML_ERROR_").replace("_", " ").lower()
