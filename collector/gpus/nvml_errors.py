"""Maps NVML's error codes to reasons. Unlisted codes of future versions map to `Why.FAILED`.

Source: NVML API reference, `nvmlReturn_t`.
"""

from collections.abc import Mapping
from typing import Any, Final

from collector.gpus.reader import Absence, Why

CODES: Final[Mapping[str, Why]] = {
    "NVML_ERROR_UNINITIALIZED": Why.FAILED,
    "NVML_ERROR_INVALID_ARGUMENT": Why.FAILED,
    "NVML_ERROR_NOT_SUPPORTED": Why.NOT_SUPPORTED,
    "NVML_ERROR_NO_PERMISSION": Why.NO_PERMISSION,
    "NVML_ERROR_ALREADY_INITIALIZED": Why.FAILED,
    "NVML_ERROR_NOT_FOUND": Why.NO_DATA,
    "NVML_ERROR_INSUFFICIENT_SIZE": Why.FAILED,
    "NVML_ERROR_INSUFFICIENT_POWER": Why.NO_POWER,
    "NVML_ERROR_DRIVER_NOT_LOADED": Why.NO_DRIVER,
    "NVML_ERROR_TIMEOUT": Why.TIMEOUT,
    "NVML_ERROR_IRQ_ISSUE": Why.FAILED,
    "NVML_ERROR_LIBRARY_NOT_FOUND": Why.NO_LIBRARY,
    "NVML_ERROR_FUNCTION_NOT_FOUND": Why.OLD_DRIVER,
    "NVML_ERROR_CORRUPTED_INFOROM": Why.FAILED,
    "NVML_ERROR_GPU_IS_LOST": Why.LOST,
    "NVML_ERROR_RESET_REQUIRED": Why.NEEDS_RESET,
    "NVML_ERROR_OPERATING_SYSTEM": Why.NO_PERMISSION,
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": Why.VERSION_MISMATCH,
    "NVML_ERROR_IN_USE": Why.NO_DATA,
    "NVML_ERROR_MEMORY": Why.FAILED,
    "NVML_ERROR_NO_DATA": Why.NO_DATA,
    "NVML_ERROR_VGPU_ECC_NOT_SUPPORTED": Why.NOT_SUPPORTED,
    "NVML_ERROR_INSUFFICIENT_RESOURCES": Why.FAILED,
    "NVML_ERROR_FREQ_NOT_SUPPORTED": Why.NOT_SUPPORTED,
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH": Why.VERSION_MISMATCH,
    "NVML_ERROR_DEPRECATED": Why.OLD_DRIVER,
    "NVML_ERROR_NOT_READY": Why.NO_DATA,
    "NVML_ERROR_GPU_NOT_FOUND": Why.NO_GPU,
    "NVML_ERROR_INVALID_STATE": Why.NO_DATA,
    "NVML_ERROR_RESET_TYPE_NOT_SUPPORTED": Why.NOT_SUPPORTED,
    "NVML_ERROR_UNKNOWN": Why.FAILED,
}
"""The reason for each code's name. Older versions of the package lack some names."""


def meaning(pynvml: Any, code: int) -> Absence:
    """Return the reason for an absent value, from an error code."""
    for name, why in CODES.items():
        if getattr(pynvml, name, None) == code:
            return Absence(why, _words(name))
    return Absence(Why.FAILED, f"NVML error {code}")


def absence_of(pynvml: Any, error: Exception) -> Absence:
    """Return the reason for an absent value, from an exception of the package."""
    if isinstance(error, pynvml.NVMLLibraryMismatchError):
        return Absence(Why.VERSION_MISMATCH, "the package is newer than the driver's library")
    return meaning(pynvml, int(getattr(error, "value", -1)))


def _words(name: str) -> str:
    return "NVML: " + name.removeprefix("NVML_ERROR_").replace("_", " ").lower()
